"""Whichever way one rank fails, it is the one that is named: by hvdrun and its exit code, by the other ranks' errors,
by hvd.run, and, as far as they can, by mpirun and torchrun."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import failing_job
import pytest
from failing_job import CODES

import hvd

HERE = Path(__file__).parent
JOB = HERE / "failing_job.py"
LEAVING = HERE / "leaving_job.py"
THROWING = HERE.parents[1] / "build/release/tests/end_to_end/throwing_loop"
RANKS = 4
# On a busy machine the others may take longer than usual to say what they know.
HVDRUN = ["hvdrun", "--grace", 60, "-np", RANKS]
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", RANKS]
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


def trials(few):
    """A few in the default run; 200 with --all, on a machine that does nothing else, and beside two busy loops."""
    return pytest.mark.parametrize(
        ("trials", "burners"), [(few, 0), *(pytest.param(200, burners, marks=pytest.mark.long) for burners in (0, 2))]
    )


def run(*command):
    done = subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout


def check_names(output, rank, told):
    """Every error of the other ranks names the one that failed, and nobody else."""
    causes = re.findall(r"HorovodInternalError: (rank \d+ on .*)", output)
    assert causes and all(re.match(rf"rank {rank} on \S+( \(pid \d+\))? ?{told}$", cause) for cause in causes), output


def words_of_cpp(output, rank):
    """How many of the other ranks name the one that failed; none of them names another."""
    others = re.findall(r"what\(\): +(rank \d+ .*)", output)
    told = rf"rank {rank} on \S+ raised std::runtime_error: bad data$"
    assert all(re.match(told, each) for each in others), output
    return len(others)


def check_blame(code, output, rank, how):
    assert code == CODES[how], output
    assert re.findall(r"hvdrun: rank (\d+) failed first", output) == [str(rank)], output
    if how == "exception":
        assert re.search(r"^hvdrun: it raised ValueError: bad data \(failing_job\.py:\d+\)$", output, re.M), output
    if how == "os_exit_0":
        assert f"rank {rank} failed first: ended without shutdown (exit code 0) (pid" in output, output
    check_names(output, rank, TOLD[how])


@trials(few=RANKS)
@pytest.mark.parametrize("how", CODES)
def test_hvdrun_names_the_rank_that_failed_first(how, trials, burners):
    with busy_cpus(burners):
        for trial in range(trials):
            rank = trial % RANKS
            code, output = run(*HVDRUN, sys.executable, JOB, how, rank)
            check_blame(code, output, rank, how)


@trials(few=RANKS)
def test_an_exception_of_cpp_is_told_by_type_and_message(trials, burners):
    with busy_cpus(burners):
        for trial in range(trials):
            rank = trial % RANKS
            code, output = run(*HVDRUN, THROWING, rank)
            assert code == 134, output
            assert re.findall(r"hvdrun: rank (\d+) failed first", output) == [str(rank)], output
            assert "hvdrun: it raised std::runtime_error: bad data\n" in output
            assert words_of_cpp(output, rank), output


@pytest.mark.parametrize("how", ["exception", "raised_exit"])
def test_a_rank_that_takes_long_to_end_has_its_own_code(hvdrun, how):
    """Longer than the others are given."""
    code, output = run(hvdrun, "-np", 2, "--grace", 0.2, sys.executable, JOB, how, 1, 1.5)
    check_blame(code, output, 1, how)


LOOP = """
import failing_job, hvd
hvd.init()
print("ready", flush=True)
while True:
    failing_job.meet()
"""


@pytest.mark.parametrize("trials", [3, pytest.param(200, marks=pytest.mark.long)])
def test_ctrl_c_shows_where_the_ranks_were_and_nothing_else(hvdrun, trials):
    for _ in range(trials):
        job = subprocess.Popen(
            [hvdrun, "-np", "2", sys.executable, "-c", LOOP],
            env={**os.environ, "PYTHONPATH": f"{HERE}:{os.environ['PYTHONPATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate(timeout=300)
        assert job.returncode == 130, errors
        others = re.sub(
            r"^(hvdrun: identical traceback from ranks.*|Traceback .*| .*|KeyboardInterrupt)\n", "", errors, flags=re.M
        )
        others = re.sub(r"^hvd\.exceptions\.HorovodInternalError: rank \d on .*\n", "", others, flags=re.M)
        assert re.fullmatch(r"hvdrun: ended by SIGINT; .*\n", others), errors


def fail(failing):
    hvd.init()
    if hvd.rank() == failing:
        raise ValueError("bad data")
    failing_job.meet()


@trials(few=3)
def test_hvd_run_raises_what_the_rank_that_failed_raised(trials, burners):
    with busy_cpus(burners):
        for trial in range(trials):
            with pytest.raises(ValueError, match=r"^bad data") as raised:
                hvd.run(fail, (trial % RANKS,), np=RANKS)
            assert raised.value.__cause__.rank == trial % RANKS


@trials(few=2)
@pytest.mark.parametrize("how", ["exit", "exception"])
def test_under_mpirun_the_one_that_failed_ends_first(how, trials, burners):
    with busy_cpus(burners):
        for trial in range(trials):
            rank = trial % RANKS
            code, output = run(*MPIRUN, sys.executable, JOB, how, rank)
            assert code == CODES[how], output
            assert re.search(rf"Process name: \[\[\d+,\d+\],{rank}\]\n *Exit code: +{code}", output), output
            check_names(output, rank, TOLD[how])


@trials(few=2)
def test_under_mpirun_an_exception_of_cpp_ends_its_rank_first(trials, burners):
    """mpirun kills the others at once, some of them before they have written their errors."""
    told = 0
    with busy_cpus(burners):
        for trial in range(trials):
            rank = trial % RANKS
            code, output = run(*MPIRUN, THROWING, rank)
            assert code == 134, output
            assert re.search(rf"process rank {rank} with PID \d+ on node \S+ exited on signal 6", output), output
            told += words_of_cpp(output, rank)
    assert told > trials // 2 or trials < 20


@trials(few=1)
@pytest.mark.parametrize("how", ["exit", "exception"])
def test_under_mpirun_the_others_leave_half_a_second_later(how, trials, burners):
    """Where mpirun lets them."""
    with busy_cpus(burners):
        for trial in range(trials):
            rank = trial % RANKS
            _, output = run(*MPIRUN, "-mca", "orte_abort_on_non_zero_status", 0, sys.executable, LEAVING, how, rank)
            check_names(output, rank, TOLD[how])
            left = {
                int(process): float(at) for process, at in re.findall(r"process (\d) left at ([\d.]+)$", output, re.M)
            }
            assert sorted(left) == list(range(RANKS)), output
            assert all(left[other] - left[rank] >= 0.5 for other in range(RANKS) if other != rank), output


def test_torchrun_reports_the_one_that_failed():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    code, output = run(*torchrun, JOB, "exit", 1)
    assert code == 1, output
    assert re.search(r"Root Cause \(first observed failure\):\n(?:.*\n)+? *rank +: 1 .*\n *exitcode +: 7 ", output), (
        output
    )
    check_names(output, 1, TOLD["exit"])


@trials(few=1)
def test_under_torchrun_the_one_that_failed_ends_first(trials, burners):
    """Some trials in each process: importing PyTorch takes longer than one."""
    ranks = [trial % RANKS for trial in range(trials)]
    with busy_cpus(burners):
        for few in (ranks[start : start + 10] for start in range(0, trials, 10)):
            command = [sys.executable, HERE / "torchrun_trials.py", RANKS, *few, "--", sys.executable, JOB, "exception"]
            code, output = run(*command)
            assert code == 0, output
            told = re.split(r"torchrun blames (.*)\n", output)
            assert told[1::2] == [f"rank {rank}: exit code 1" for rank in few], output
            for rank, words in zip(few, told[::2]):
                check_names(words, rank, TOLD["exception"])
