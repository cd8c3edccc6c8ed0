"""A job's processes from their first call to their end, as programs of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from launching import PROGRAMS, hvdrun, in_turn, run_command, run_job

ALONE_TOO = ["lifecycle.py", "forks.py", "leaves_with_work.py"]  # the last one's end is the process's
JOINED = [f"HVD_JOIN_DIVISOR={divisor} joins_early.py {divisor}" for divisor in ("all", "contributing")]
JOINED_OF_TWO = ["horovod_joined.py"]  # run before JOINED: what horovod's init() sets must not last


# Importing PyTorch takes longer than each of these.
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_programs(ranks):
    programs = [*(JOINED_OF_TWO if ranks == 2 else []), *ALONE_TOO[:-1], *JOINED, ALONE_TOO[-1]]
    job = run_job(ranks, in_turn(*programs))
    assert job.returncode == 0, job.output
    for program in programs:
        assert job.output.count(f"{program} has ended") == ranks, job.output


def test_a_job_needs_little_address_space():
    """Memory for tensors is set aside when it is asked for: 4 ranks of a host would not have 128 GiB of addresses."""
    limited = ["bash", "-c", 'ulimit -v 2000000 && exec "$0" "$@"', hvdrun(), "-np", "4"]
    code = "import arrays, hvd; hvd.init(); print('sum', arrays.allreduce([1.0], op=arrays.Sum).item())"
    job = run_command([*limited, sys.executable, "-c", code])
    assert job.returncode == 0, job.output
    assert job.output.count("sum 4.0") == 4


def test_a_child_of_a_rank_is_told_whose_child_it_is():
    job = run_job(2, [str(PROGRAMS / "child_of_rank.py")])
    assert job.returncode == 0, job.output
    assert "rank 0 is fine" in job.output and "rank 1 is fine" in job.output


@pytest.mark.timed
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_killed_rank_is_named(ranks):
    command = [hvdrun(), "-np", str(ranks), "--grace", "60", sys.executable, str(PROGRAMS / "loses_a_rank.py")]
    job = run_command(command)
    assert job.returncode != 0
    for rank in range(ranks - 1):
        assert f"rank {rank} heard of it" in job.output, job.output


def test_without_a_launcher_a_process_is_a_job_of_one():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HVD_", "HOROVOD_"))}
    command = [sys.executable, *in_turn(*ALONE_TOO)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"rank 0 is fine\n{program} has ended\n" for program in ALONE_TOO)


@pytest.mark.parametrize("attempt", [0, *(pytest.param(again, marks=pytest.mark.long) for again in range(1, 5))])
def test_a_daemon_thread_inside_hvd_does_not_spoil_the_exit(attempt):
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "daemon_thread.py")], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
