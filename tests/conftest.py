"""For all Python tests."""

import hashlib
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys

import pytest

# For what test files import, and the programs that they start.
SUPPORT = str(pathlib.Path(__file__).parent / "support")
sys.path.insert(0, SUPPORT)
if SUPPORT not in os.environ.get("PYTHONPATH", "").split(os.pathsep):  # else Python has run it at this process's start
    runpy.run_path(f"{SUPPORT}/sitecustomize.py")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SUPPORT, os.environ.get("PYTHONPATH")]))

# Programs that tests start share few CPUs; with a thread for each CPU in every rank they spin for one another.
os.environ["OMP_NUM_THREADS"] = "1"

# What XLA compiles for a test runs for a moment: optimising it takes longer.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


def processor() -> str:
    """Names the processors that can run what is compiled for this one."""
    features = re.search(r"^(?:flags|Features)\s*:.*$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return hashlib.sha256(features[0].encode() if features else b"").hexdigest()[:12]


# A program that another rank or an earlier run has compiled is not compiled again.
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "hvd-jax", processor())
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# What Java compiles well takes longer than it runs. Ray's workers are to have their share of busy CPUs (default: 15).
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
os.environ.setdefault("RAY_worker_niceness", "0")

LONG_TEST_LIMIT_S = 7200
BEGAN = pytest.StashKey[float]()
NETLAB = pathlib.Path(__file__).parent / "support/netlab.sh"

# Whoever starts a command in the background of a shell script has it ignore Ctrl-C, and so would every program that a
# test starts. Signals that have a handler here have their default there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A framework is imported where a line begins so, before the first definition of a file.
IMPORT_OF_FRAMEWORK = re.compile(
    r"^(?:import|from) (?:(?:hvd|horovod)\.)?(?:torch|tensorflow|keras|jax|mxnet)\b", re.MULTILINE
)
FIRST_DEFINITION = re.compile(r"^(?:def|class|@|\w+ = )", re.MULTILINE)
# Have tests on ranks that import one, though the files do not.
IMPORT_LATER = (
    "test_other_arrays.py",
    "test_supported.py",
    "test_tensorflow_examples.py",
    "test_tensorflow_parameter_servers.py",
    "test_tensorflow_strategies.py",
)


def pytest_addoption(parser):
    parser.addoption(
        "--files",
        choices=["all", "with-frameworks", "without-frameworks"],
        default="all",
        help="collect only test files that import a framework, which takes 20 s in each process, or only the others",
    )


def pytest_ignore_collect(collection_path, config):
    files = config.getoption("--files")
    if files == "all" or collection_path.suffix != ".py":
        return None
    top = FIRST_DEFINITION.split(collection_path.read_text(), maxsplit=1)[0]
    imports_framework = IMPORT_OF_FRAMEWORK.search(top) is not None or collection_path.name in IMPORT_LATER
    return None if imports_framework == (files == "with-frameworks") else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Where pytest-xdist runs tests side by side, those that share a fixture of their module share a worker as well."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(LONG_TEST_LIMIT_S))
        fixtures = [definition for found in item._fixtureinfo.name2fixturedefs.values() for definition in found]
        grouped = any(item.get_closest_marker(name) for name in ("xdist_group", "ranks"))
        if not grouped and any(fixture.scope == "module" for fixture in fixtures):
            item.add_marker(pytest.mark.xdist_group(name=item.nodeid.partition("::")[0]))


def cpu_s() -> float:
    """CPU time of this process and of all programs that it has started and awaited."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Has each test's CPU time stand in the JUnit file, for the table at the end of a run (summary.py). Spark and Ray
    Train install a handler of SIGINT and never remove it: the earlier one is restored for the tests that follow."""
    item.stash[BEGAN] = cpu_s()
    handler = signal.getsignal(signal.SIGINT)
    try:
        return (yield)
    finally:
        signal.signal(signal.SIGINT, handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    if call.when == "teardown":
        item.user_properties.append(("cpu_s", round(cpu_s() - item.stash[BEGAN], 2)))


@pytest.fixture(scope="session")
def lab():
    """netlab.sh, where this machine permits what it does: whoever is root and may have namespaces has it run."""
    if os.geteuid() != 0:
        pytest.skip("netlab.sh needs root")
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"namespaces are not permitted: {tried.stderr.decode().strip()}")
    return NETLAB
