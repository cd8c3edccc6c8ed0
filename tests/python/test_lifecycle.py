"""A job's processes from their first call to their end, as programs of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from launching import PROGRAMS, hvdrun, run_command, run_job


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("program", ["lifecycle", "forks", "leaves_with_work"])
def test_program(program, ranks):
    job = run_job(ranks, [str(PROGRAMS / f"{program}.py")])
    assert job.returncode == 0, job.output
    for rank in range(ranks):
        assert f"rank {rank} is fine" in job.output


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
    job = run_job(ranks, [str(PROGRAMS / "loses_a_rank.py")])
    assert job.returncode != 0
    for rank in range(ranks - 1):
        assert f"rank {rank} heard of it" in job.output, job.output


@pytest.mark.parametrize("program", ["lifecycle", "forks", "leaves_with_work"])
def test_without_a_launcher_a_process_is_a_job_of_one(program):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HVD_", "HOROVOD_"))}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{program}.py")], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rank 0 is fine\n"


@pytest.mark.parametrize("attempt", range(5))
def test_a_daemon_thread_inside_hvd_does_not_spoil_the_exit(attempt):
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "daemon_thread.py")], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
