"""Started by Open MPI's mpirun and MPICH's mpiexec: the same tests as under hvdrun, whatever moves the data, and clear
words where the two do not fit together."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

from launching import LAUNCHERS, PROGRAMS, run_command  # noqa: E402

MPIS = ["mpirun", "mpiexec"]
CONFORMANCE = ROOT / "build/release/tests/conformance/test_conformance"

SUM = """
import arrays, hvd
hvd.init()
total = arrays.allreduce([hvd.rank() + 1.0], op=arrays.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_size()} here: {total.item()}", flush=True)
"""


def conformance(launcher, ranks, **variables):
    """What the tests of tests/conformance that are for every backend print."""
    if not CONFORMANCE.exists():
        pytest.skip(f"{CONFORMANCE} is not built")
    cases = "every collective*,a hundred tensors*,a group*"
    code, output = run(launcher, ranks, CONFORMANCE, cases, **variables)
    assert code == 0 and "assertions in" in output, output
    return output


IS_MPIS = "assert (hvd.mpi_enabled(), hvd.gloo_enabled(), hvd.mpi_threads_supported()) == (True, False, True)"


def run(launcher, ranks, *command, limit_s=600, **variables):
    job = run_command([*LAUNCHERS[launcher], "-np", str(ranks), *map(str, command)], variables, limit_s)
    return job.returncode, job.output


@pytest.mark.parametrize("launcher", MPIS)
def test_nothing_has_to_be_said(launcher):
    code, output = run(launcher, 4, sys.executable, "-c", SUM + IS_MPIS)
    assert code == 0, output
    for rank in range(4):
        assert f"rank {rank} of 4, 4 here: 10.0" in output


TORCHS_VARIABLES = """import os, sys, hvd
def say(*words):  # in one piece: mpirun passes on what ranks write as it comes
    os.write(sys.stdout.fileno(), (" ".join(words) + "\\n").encode())
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
for name in names:
    os.environ.pop(name, None)
os.environ["GROUP_RANK"] = "9"
hvd.init()
if hvd.rank() == 0:
    hvd.init()  # which changes nothing, and needs nobody else
values = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR")]
say("is", *values)
say("port", os.environ["MASTER_PORT"])
hvd.shutdown()
say("left", *(name for name in names if name in os.environ))"""


@pytest.mark.parametrize(("launcher", "ranks"), [("mpirun", 2), ("mpirun", 1), ("mpiexec", 1)])
def test_init_sets_torchs_variables_until_shutdown(launcher, ranks):
    code, output = run(launcher, ranks, sys.executable, "-c", TORCHS_VARIABLES)
    assert code == 0, output
    for rank in range(ranks):
        assert f"is {rank} {ranks} {rank} 9 127.0.0.1" in output, output
    ports = [line.split()[-1] for line in output.splitlines() if line.startswith("port ")]
    assert len(ports) == ranks and len(set(ports)) == 1, output
    assert [line.strip() for line in output.splitlines() if line.startswith("left")] == ["left"] * ranks, output


def test_an_mpi_with_the_standards_interface():
    """MPICH 5, which has two libraries: one with its own interface, and one with the standard's."""
    apart = ROOT / ".venv/apart"
    command = [apart / "bin/mpiexec", "-np", "2", sys.executable, "-c", SUM]
    for library in ("libmpi_abi.so.1", "libmpi.so.12"):
        for backend in ("auto", "mpi"):
            variables = {"HVD_MPI_LIB": str(apart / "lib" / library), "HVD_CPU_BACKEND": backend}
            done = run_command([str(part) for part in command], variables)
            assert done.returncode == 0, done.output
            assert done.output.count("of 2, 2 here: 3.0") == 2, done.output


def test_the_classic_line_of_horovod_works():
    line = "-np 4 -H localhost:4 -bind-to none -map-by slot -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib"
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "LD_LIBRARY_PATH": ""}
    command = ["mpirun.openmpi", *line.split(), sys.executable, "-c", SUM]
    done = subprocess.run(command, env={**os.environ, **allowed}, capture_output=True, text=True, timeout=360)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of 4, 4 here: 10.0") == 4


def test_hvdrun_has_mpirun_start_the_processes():
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [Path(sys.prefix, "bin/hvdrun"), "--launcher", "mpi", "-oversubscribe", "-np", "2", sys.executable]
    show = "import os; print(os.environ['OMPI_COMM_WORLD_SIZE'])\n" + SUM
    done = subprocess.run(
        [*command, "-c", show], env={**os.environ, **allowed}, capture_output=True, text=True, timeout=360
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of 2, 2 here: 3.0") == 2


@pytest.mark.parametrize(
    ("launcher", "ranks", "backend"),
    [
        ("mpirun", 2, "mpi-messages"),
        ("mpirun", 2, "mpi"),
        pytest.param("mpirun", 4, "mpi", marks=pytest.mark.long),
        pytest.param("mpirun", 4, "mpi-messages", marks=pytest.mark.long),
        ("mpiexec", 2, "mpi"),
        ("mpiexec", 2, "mpi-messages"),
        # MPICH waits busily, which takes its time where there are fewer CPUs.
        pytest.param("mpiexec", 4, "mpi", marks=pytest.mark.long),
        pytest.param("mpiexec", 4, "mpi-messages", marks=pytest.mark.long),
    ],
)
def test_collectives_equal_a_plain_loop(launcher, ranks, backend):
    """The tests of tests/conformance, also with several hosts in name, between which messages of MPI may go."""
    output = conformance(launcher, ranks, HVD_CPU_BACKEND=backend)
    assert "failed" not in output


def test_messages_of_an_mpi_over_ucx():
    """As on a network with RDMA; here UCX has the host's shared memory."""
    over_ucx = {"OMPI_MCA_pml": "ucx", "OMPI_MCA_pml_ucx_tls": "any", "OMPI_MCA_pml_ucx_devices": "any"}
    variables = {"HVD_CPU_BACKEND": "mpi-messages", "UCX_TLS": "sm,self", "UCX_LOG_LEVEL": "info"}
    output = conformance("mpirun", 2, **over_ucx, **variables)
    assert "failed" not in re.sub(".*UCX.*", "", output)
    assert re.search("ucp_worker.*tag.(sysv|posix)", output), "UCX has not connected the ranks:\n" + output


def rank_tests(launcher, ranks, backend, *files):
    """The tests that hvdrun's job runs, in a job of this launcher's."""
    variables = {"TEST_LAUNCHER": launcher, "HVD_CPU_BACKEND": backend}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"np{ranks}", *map(str, files)]
    done = subprocess.run(
        command, env={**os.environ, **variables}, cwd=ROOT, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and " failed" not in done.stdout


@pytest.mark.parametrize(("launcher", "ranks"), [("mpirun", 2), pytest.param("mpiexec", 2, marks=pytest.mark.long)])
def test_collectives_of_arrays(launcher, ranks):
    rank_tests(launcher, ranks, "mpi", "tests/python/test_arrays.py")


@pytest.mark.long
@pytest.mark.parametrize("backend", ["host", "mpi", "auto"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("launcher", MPIS)
def test_everything_of_torch(launcher, ranks, backend):
    rank_tests(launcher, ranks, backend, *sorted((ROOT / "tests/python").glob("test_torch_*.py")))


@pytest.mark.parametrize(
    ("launcher", "library", "words"),
    [
        (
            "mpirun",
            "libmpich.so.12",
            "the job was started by mpirun (Open MPI), but the MPI library libmpich.so.12 is MPICH",
        ),
        (
            "mpiexec",
            "libmpi.so.40",
            "the job was started by mpiexec (MPICH), but the MPI library libmpi.so.40 is Open MPI",
        ),
        (
            "mpirun",
            "/nowhere/libmpi.so",
            "no MPI library was found (/nowhere/libmpi.so: cannot open shared object file",
        ),
    ],
)
def test_a_library_that_does_not_fit_is_refused_on_every_rank(launcher, library, words):
    code, output = run(launcher, 2, sys.executable, "-c", SUM, HVD_MPI_LIB=library)
    assert code != 0
    assert words in output
    assert "terminate called" not in output


def test_mpi_without_its_launcher_is_refused_on_every_rank():
    done = subprocess.run(
        [Path(sys.prefix, "bin/hvdrun"), "-np", "2", sys.executable, "-c", SUM],
        env={**os.environ, "HVD_CPU_BACKEND": "mpi"},
        capture_output=True,
        text=True,
        timeout=360,
    )
    assert done.returncode != 0
    assert "HVD_CPU_BACKEND asks for MPI, which cannot be used on rank 0" in done.stderr
    assert "start all of the job with MPI's own launcher" in done.stderr


@pytest.mark.parametrize("backend", ["host", "mpi"])
@pytest.mark.parametrize("launcher", MPIS)
def test_a_killed_rank_ends_the_job_and_is_named(launcher, backend, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, arrays, hvd\n"
        "from hvd.exceptions import HorovodInternalError\n"
        "hvd.init()\n"
        "try:\n"
        "    for step in range(1_000_000):\n"
        "        arrays.allreduce([1.0] * 1000, 'gradient')\n"
        "        if step == 200 and hvd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "except HorovodInternalError as error:\n"
        "    print(f'rank {hvd.rank()} heard: {error}', flush=True)\n"
        "    raise SystemExit(3)\n"
    )
    began = time.monotonic()
    code, output = run(launcher, 2, sys.executable, program, limit_s=300, HVD_CPU_BACKEND=backend)
    assert code != 0
    assert time.monotonic() - began < 200, output
    assert "terminate called" not in output
    # MPI's launchers end the others at once: they may or may not get to say what they have heard.
    assert "rank 0 heard:" not in output or "rank 1" in output
    assert "signal 9" in output or "SIGNAL 9" in output.upper() or "Killed" in output, output
    assert shutil.which("pgrep") is None or subprocess.run(["pgrep", "-f", program]).returncode != 0


@pytest.mark.parametrize("launcher", MPIS)
def test_communicators_of_mpi4py_are_jobs_and_process_sets(launcher, tmp_path):
    pytest.importorskip("mpi4py")
    program = tmp_path / "program.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "import arrays, hvd\n"
        "from hvd.objects import allgather_object\n"
        "world = MPI.COMM_WORLD\n"
        "half = world.Split(color=world.rank % 2, key=world.rank)\n"
        "own = hvd.ProcessSet(half)\n"
        "hvd.init(world, process_sets=[own])\n"
        "assert (hvd.rank(), hvd.size()) == (world.rank, world.size)\n"
        "assert own.ranks == list(range(world.rank % 2, 4, 2)), own.ranks\n"
        "total = arrays.allreduce([1.0 + hvd.rank()], op=arrays.Sum, process_set=own.process_set_id)\n"
        "assert total.item() == sum(1 + rank for rank in own.ranks), total\n"
        "assert world.allreduce(1) == 4\n"
        "hvd.shutdown()\n"
        "reversed_ranks = world.Split(color=0, key=-world.rank)\n"
        "hvd.init(reversed_ranks)\n"
        "assert hvd.rank() == 3 - world.rank\n"
        "assert allgather_object(hvd.rank()) == [0, 1, 2, 3]\n"
        "hvd.shutdown()\n"
        "hvd.init(half)\n"
        "assert hvd.size() == 2\n"
        "assert arrays.allreduce([1.0], op=arrays.Sum).item() == 2\n"
        "print('all is well')\n"
    )
    # mpi4py's wheels look for MPICH's library under the name that it has elsewhere than on Debian.
    debian = Path("/usr/lib", sysconfig.get_config_var("MULTIARCH"), "libmpich.so.12")
    (tmp_path / "libmpi.so.12").symlink_to(debian)
    variables = {"MPI4PY_LIBMPI": "libmpi.so.40"}
    if launcher == "mpiexec":
        variables = {"MPI4PY_LIBMPI": "libmpi.so.12", "LD_LIBRARY_PATH": str(tmp_path)}
    code, output = run(launcher, 4, sys.executable, program, **variables)
    assert code == 0, output
    assert output.count("all is well") == 4


def test_an_mpi4py_of_another_mpi_is_refused():
    pytest.importorskip("mpi4py")
    program = "from mpi4py import MPI; import hvd; hvd.init(MPI.COMM_WORLD)"
    code, output = run("mpiexec", 2, sys.executable, "-c", program, MPI4PY_LIBMPI="libmpi.so.40")
    assert code != 0
    assert "rank 0 of 2, but mpi4py" in output and "rank 1 of 2, but mpi4py" in output


@pytest.mark.parametrize("backend", ["host", "mpi"])
@pytest.mark.parametrize("launcher", MPIS)
def test_init_and_shutdown_again_and_again(launcher, backend):
    indented = "".join(f"    {line}\n" for line in SUM.strip().splitlines())
    again = f"for _ in range(3):\n{indented}    hvd.shutdown()\n"
    code, output = run(launcher, 2, sys.executable, "-c", again, HVD_CPU_BACKEND=backend)
    assert code == 0, output
    assert output.count("of 2, 2 here: 3.0") == 6
    assert "leaked" not in output


def test_an_exception_on_one_rank_ends_all(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import arrays, hvd\n"
        "hvd.init()\n"
        "for step in range(100):\n"
        "    if step == 50 and hvd.rank() == 1: raise RuntimeError('my own mistake')\n"
        "    arrays.allreduce([1.0] * 4, 'x')\n"
    )
    code, output = run("mpirun", 2, sys.executable, program, limit_s=300, HVD_CPU_BACKEND="mpi")
    assert code != 0 and "killed after" not in output
    assert "my own mistake" in output


@pytest.mark.parametrize("launcher", MPIS)
def test_the_highest_of_what_is_no_number_is_the_same_on_every_rank(launcher):
    program = (
        "import arrays, hvd, numpy\n"
        "from hvd.objects import allgather_object\n"
        "hvd.init()\n"
        "values = [[numpy.nan, 1.0, 0.0], [1.0, numpy.nan, -0.0]][hvd.rank()]\n"
        "highest = arrays.allreduce(values, op=arrays.Max)\n"
        "assert numpy.isnan(highest).tolist() == [True, True, False], highest\n"
        "bits = allgather_object(highest.tobytes())\n"
        "assert bits[0] == bits[1], bits\n"
    )
    code, output = run(launcher, 2, sys.executable, "-c", program, HVD_CPU_BACKEND="mpi")
    assert code == 0, output


@pytest.mark.parametrize("launcher", MPIS)
def test_a_forked_child_leaves_mpi_alone(launcher):
    program = (
        "import os, sys, hvd\n"
        "hvd.init()\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "print('the child has ended', flush=True)\n"
    )
    code, output = run(launcher, 2, sys.executable, "-c", program, limit_s=300)
    assert code == 0 and output.count("the child has ended") == 2, output


@pytest.mark.parametrize("launcher", MPIS)
def test_a_child_of_a_rank_is_told_whose_child_it_is(launcher):
    code, output = run(launcher, 2, sys.executable, PROGRAMS / "child_of_rank.py", limit_s=300)
    assert code == 0 and "rank 0 is fine" in output and "rank 1 is fine" in output, output


def test_processes_that_are_not_in_a_communicator_have_no_set(tmp_path):
    pytest.importorskip("mpi4py")
    program = tmp_path / "program.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "import arrays, hvd\n"
        "world = MPI.COMM_WORLD\n"
        "sub = world.Split(0 if world.rank < 2 else MPI.UNDEFINED)\n"
        "own = hvd.ProcessSet(sub)\n"
        "hvd.init(world, process_sets=[own])\n"
        "assert own.included() == (world.rank < 2)\n"
        "number = own.process_set_id\n"
        "if own.included(): assert arrays.allreduce([1.0], op=arrays.Sum, process_set=number).item() == 2\n"
        "hvd.shutdown()\n"
        "if world.rank == 0: hvd.init(MPI.COMM_SELF); hvd.shutdown()\n"
        "hvd.init(world)\n"
        "assert hvd.size() == 3\n"
        "print('all is well')\n"
    )
    code, output = run("mpirun", 3, sys.executable, program, limit_s=300, MPI4PY_LIBMPI="libmpi.so.40")
    assert code == 0 and output.count("all is well") == 3, output
