"""init_process_group("hvd") in jobs of their own: whoever starts the ranks, and when one of them dies."""

from __future__ import annotations

import re
import sys

import pytest

from launching import PROGRAMS, hvdrun, run_command, run_job
from timeouts import at_most

PROGRAM = str(PROGRAMS / "torch_group.py")


def test_one_rank_under_hvdrun():
    job = run_job(1, [PROGRAM, "works"])
    assert job.returncode == 0, job.output
    assert job.output.count("sums ok on 1") == 2


def test_under_torchrun():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    job = run_command([*torchrun, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", PROGRAM, "works"])
    assert job.returncode == 0, job.output
    assert job.output.count("sums ok on 2") == 4


def test_spawned_by_nobody_that_hvd_knows():
    job = run_command([sys.executable, PROGRAM, "spawns"])
    assert job.returncode == 0, job.output
    assert job.output.count("sums ok on 2") == 2


@pytest.mark.timed
def test_ranks_under_hvdrun_and_one_that_dies_is_named():
    command = [hvdrun(), "-np", "2", "--grace", "60", sys.executable, PROGRAM, "works", "loses_a_rank"]
    job = run_command(command)
    assert job.output.count("sums ok on 2") == 2 * 3, job.output
    assert job.returncode == 128 + 9 and "no error" not in job.output
    errors = re.findall(r"error after (\S+) s: (?:.*)rank 1\b", job.output)
    assert len(errors) == 2 and all(float(seconds) < at_most(10) for seconds in errors), job.output
