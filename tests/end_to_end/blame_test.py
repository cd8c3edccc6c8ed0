"""Whichever way one rank fails, it is the one that is named: by hvdrun and its exit code, by the other ranks' errors,
by hvd.run, and, as far as they can, by mpirun and torchrun."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import failing_job
import pytest
from failing_job import CODES

import hvd

HERE = Path(__file__).parent
JOB = HERE / "failing_job.py"
THROWING = HERE.parents[1] / "build/release/tests/end_to_end/throwing_loop"
LONG = pytest.mark.long
RANKS = 4
# What the others say that it did.
TOLD = {
    "exception": r"raised ValueError: bad data \(failing_job\.py:\d+\)",
    "exit": r"called sys\.exit\(7\)",
    "raised_exit": r".*has shut hvd down",
    "os_exit": r".*is lost: its connection closed without a goodbye",
    "os_exit_0": r".*is lost: its connection closed without a goodbye",
    "signal": r".*is lost: its connection closed without a goodbye",
}


@contextlib.contextmanager
def busy_cpus(number):
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def run(*command, **variables):
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout


def check_names(output, rank, told):
    """Every error of the other ranks names the one that failed, and nobody else."""
    causes = re.findall(r"HorovodInternalError: (rank \d+ on .*)", output)
    assert causes and all(re.match(rf"rank {rank} on \S+( \(pid \d+\))? ?{told}$", cause) for cause in causes), output


def check_blame(code, output, rank, how):
    assert code == CODES[how], output
    assert re.findall(r"hvdrun: rank (\d+) failed first", output) == [str(rank)], output
    if how == "exception":
        assert re.search(r"^hvdrun: it raised ValueError: bad data \(failing_job\.py:\d+\)$", output, re.M), output
    if how == "os_exit_0":
        assert f"rank {rank} failed first: ended without shutdown (exit code 0) (pid" in output, output
    check_names(output, rank, TOLD[how])


@pytest.mark.parametrize(
    ("trials", "burners"), [(20, 0), pytest.param(200, 0, marks=LONG), pytest.param(200, 2, marks=LONG)]
)
@pytest.mark.parametrize("how", CODES)
def test_hvdrun_names_the_rank_that_failed_first(how, trials, burners):
    with busy_cpus(burners):
        for trial in range(trials):
            rank = trial % RANKS
            code, output = run(shutil.which("hvdrun"), "-np", RANKS, sys.executable, JOB, how, rank)
            check_blame(code, output, rank, how)


@pytest.mark.parametrize(("trials", "burners"), [(20, 0), pytest.param(200, 2, marks=LONG)])
def test_an_exception_of_cpp_is_told_by_type_and_message(trials, burners):
    with busy_cpus(burners):
        for trial in range(trials):
            rank = trial % RANKS
            code, output = run(shutil.which("hvdrun"), "-np", RANKS, THROWING, rank)
            assert code == 134, output
            assert re.findall(r"hvdrun: rank (\d+) failed first", output) == [str(rank)], output
            assert "hvdrun: it raised std::runtime_error: bad data\n" in output
            others = re.findall(r"what\(\): +(rank \d+ .*)", output)
            assert others and all(
                re.match(rf"rank {rank} on \S+ raised std::runtime_error: bad data$", each) for each in others
            )


@pytest.mark.parametrize("how", ["exception", "raised_exit"])
def test_a_rank_that_takes_long_to_end_has_its_own_code(how):
    """Longer than the others are given."""
    code, output = run(shutil.which("hvdrun"), "-np", 2, "--grace", 0.2, sys.executable, JOB, how, 1, 1.5)
    check_blame(code, output, 1, how)


def fail(failing):
    hvd.init()
    if hvd.rank() == failing:
        raise ValueError("bad data")
    failing_job.meet()


@pytest.mark.parametrize("trials", [3, pytest.param(50, marks=LONG)])
def test_hvd_run_raises_what_the_rank_that_failed_raised(trials):
    for trial in range(trials):
        with pytest.raises(ValueError, match=r"^bad data") as raised:
            hvd.run(fail, (trial % RANKS,), np=RANKS)
        assert raised.value.__cause__.rank == trial % RANKS


@pytest.mark.parametrize("trials", [2, pytest.param(50, marks=LONG)])
@pytest.mark.parametrize("how", ["exit", "exception"])
def test_under_mpirun_the_one_that_failed_ends_first(how, trials):
    for trial in range(trials):
        rank = 1 + trial % (RANKS - 1)
        mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", RANKS]
        code, output = run(*mpirun, sys.executable, JOB, how, rank)
        assert code == CODES[how], output
        assert re.search(rf"Process name: \[\[\d+,\d+\],{rank}\]\n *Exit code: +{code}", output), output
        check_names(output, rank, TOLD[how])


@pytest.mark.parametrize("trials", [1, pytest.param(20, marks=LONG)])
def test_under_torchrun_the_one_that_failed_ends_first(trials):
    for _ in range(trials):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
        code, output = run(*torchrun, JOB, "exit", 1, OMP_NUM_THREADS="1")
        assert code == 1, output
        assert re.search(
            r"Root Cause \(first observed failure\):\n(?:.*\n)+? *rank +: 1 .*\n *exitcode +: 7 ", output
        ), output
        check_names(output, 1, TOLD["exit"])
