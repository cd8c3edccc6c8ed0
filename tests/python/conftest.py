"""Tests that run on several ranks, as ordinary pytest tests.

A test marked `ranks` is collected once for each number of ranks. The first of them that is reached starts
`hvdrun -np N python -m pytest` with all selected tests of that N: importing a framework takes seconds, a test
milliseconds. Where pytest-xdist runs tests side by side, one worker has all tests of an N. Every rank runs the same
tests in the same order and writes down how each ended; a test has passed if it has on every rank. Tests of different
frameworks share the job, and a rank imports those that its tests need.

    @pytest.mark.ranks            # on 1, 2 and 4
    @pytest.mark.ranks(2)         # on 2
    def test_sum(ranks): ...
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from launching import run_job

DEFAULT_RANKS = (1, 2, 4)
COMPILING = ("test_supported", "test_torch_compiled", "test_torch_distributed")  # tests that use PyTorch's compiler
# Tests of a framework: their files' names begin so.
FRAMEWORKS = ("test_tensorflow", "test_jax", "test_torch", "test_other_arrays", "test_elastic", "test_process_group")
JOB_LIMIT_S = 2400  # of all tests of a number of ranks, on a machine that does as much beside them
TEST_LIMIT_S = 240  # of one test in a job; what TensorFlow traces takes a minute on a busy machine
RUNS = pytest.StashKey[dict]()

reports_dir = os.environ.get("TEST_REPORTS")  # set within a job: this process is one of its ranks


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ranks(*numbers): run as a job of each of these numbers of ranks")
    config.stash[RUNS] = {}


# First, so that a test has the same name in a job as outside, whichever files are collected with it.
@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("ranks")
    if marker is not None:
        if "ranks" not in metafunc.fixturenames:
            metafunc.fixturenames.append("ranks")
        metafunc.parametrize("ranks", marker.args or DEFAULT_RANKS, ids="np{}".format, scope="session")


def number_of_ranks(item: pytest.Item) -> int | None:
    """How many ranks a marked test wants; None if it is not marked, whatever parameters it has."""
    return item.callspec.params["ranks"] if item.get_closest_marker("ranks") is not None else None


# Outside of a job


def own_id(item: pytest.Item) -> str:
    """As within a job: a worker of pytest-xdist has "@group" at its end."""
    return item.nodeid.removesuffix(f"@np{number_of_ranks(item)}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    ranks = number_of_ranks(pyfuncitem)
    if ranks is None or reports_dir is not None:
        return None
    runs = pyfuncitem.config.stash[RUNS]
    if ranks not in runs:
        selected = [own_id(item) for item in pyfuncitem.session.items if number_of_ranks(item) == ranks]
        with tempfile.TemporaryDirectory() as tmp:
            runs[ranks] = run_on_ranks(ranks, selected, pyfuncitem.config.rootpath, Path(tmp))
    by_rank, end = runs[ranks]
    outcomes = [by_rank[rank].get(own_id(pyfuncitem), ("missing", end)) for rank in range(ranks)]
    if all(outcome == "skipped" for outcome, _ in outcomes):
        pytest.skip(outcomes[0][1])
    bad = [f"rank {rank}: {outcome}\n{text}" for rank, (outcome, text) in enumerate(outcomes) if outcome != "passed"]
    if bad:
        pytest.fail("\n".join(bad), pytrace=False)
    return True


def run_on_ranks(ranks: int, selected: list[str], root: Path, tmp: Path) -> tuple[list[dict], str]:
    """Runs the tests; returns how they ended by rank and test, and the end of the job's output."""
    (tmp / "selected").write_text("\n".join(selected))
    files = sorted({nodeid.split("::")[0] for nodeid in selected})
    environment = {
        "TEST_REPORTS": str(tmp),
        # Where one rank's test fails, the others must not wait for it without end.
        "HVD_STALL_SHUTDOWN_TIME_SECONDS": "20",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    if any(Path(file).name.startswith(COMPILING) for file in files):
        environment["TEST_COMPILES"] = "1"
    pytest_options = ["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    job = run_job(ranks, ["-m", "pytest", *pytest_options, *files], environment, limit_s=JOB_LIMIT_S, cwd=root)
    outcomes = [read_outcomes(tmp / f"rank{rank}") for rank in range(ranks)]
    hung = "".join(path.read_text() for path in sorted(tmp.glob("hung*")))
    return outcomes, f"the job ended with {job.returncode} before; the last it wrote:\n{job.output[-4000:]}\n{hung}"


def read_outcomes(path: Path) -> dict[str, tuple[str, str]]:
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["test"]: (line["outcome"], line["text"]) for line in lines}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reports_dir is None:
        for item in items:
            if (ranks := number_of_ranks(item)) is not None:
                item.add_marker(pytest.mark.xdist_group(name=f"np{ranks}"))
                item.add_marker(pytest.mark.timeout(JOB_LIMIT_S + 60))  # the first runs the job of all
                # How a framework runs an operation has nothing to do with the number of ranks, and how one and four
                # exchange data is tested with NumPy and in C++.
                is_of_framework = item.path.name.startswith(FRAMEWORKS)
                if ranks != 2 and is_of_framework:
                    item.add_marker(pytest.mark.long)
        items.sort(key=lambda item: -(number_of_ranks(item) or 0))  # what takes longest begins first
    else:
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[nodeid] for nodeid in (Path(reports_dir) / "selected").read_text().splitlines()]


# Within a job


def pytest_collection_finish() -> None:
    """The collector looks only at what tests make: to look at all that the frameworks have made takes seconds, and in a
    forked child copies it."""
    if reports_dir is not None:
        gc.collect()
        gc.freeze()


outcomes_here: dict[str, pytest.TestReport] = {}  # by test; the first of its phases that did not pass, if any


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.nodeid not in outcomes_here or outcomes_here[report.nodeid].passed:
        outcomes_here[report.nodeid] = report


def pytest_runtest_logfinish(nodeid: str) -> None:
    if reports_dir is None:
        return
    report = outcomes_here[nodeid]
    line = {"test": nodeid, "outcome": report.outcome, "text": str(report.longrepr or "")}
    with open(Path(reports_dir) / f"rank{rank_here()}", "a") as file:
        file.write(json.dumps(line) + "\n")


def rank_here() -> int:
    from hvd import _native

    return _native.launch()[1]


@contextlib.contextmanager
def ended_if_it_hangs():
    """Ends this rank, and with it the job, after writing down where each thread is."""
    with open(Path(reports_dir) / f"hung{rank_here()}", "w") as file:
        faulthandler.dump_traceback_later(TEST_LIMIT_S, exit=True, file=file)
        yield
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def in_step(request: pytest.FixtureRequest):
    """An initialised runtime for each test; a new one on all ranks after a test that failed on any rank. Outside of a
    job, a test leaves none behind."""
    if reports_dir is None:
        yield
        basics = sys.modules.get("hvd.basics")
        if basics is not None and basics.is_initialized():
            basics.shutdown()
            pytest.fail("the test has called hvd.init(), and not hvd.shutdown()")
        return
    from hvd import basics, objects
    from hvd.exceptions import HorovodInternalError

    with ended_if_it_hangs():
        basics.init()
        yield
        basics.init()
        failed = outcomes_here[request.node.nodeid].failed
        try:
            any_failed = any(objects.allgather_object(failed, name=f"failed.{request.node.nodeid}"))
        except HorovodInternalError:
            any_failed = True
        if any_failed:
            basics.shutdown()
