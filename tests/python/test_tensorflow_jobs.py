"""Jobs of TensorFlow programs from their first call to their end, and those that need settings of their own."""

from __future__ import annotations

import importlib.util
import time

import pytest

from launching import PROGRAMS, run_job

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "15"}


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_orders_that_are_opposite(threads):
    job = run_job(2, [str(PROGRAMS / "tensorflow_orders.py"), str(threads)], QUIET, limit_s=300)
    assert job.returncode == 0, job.output
    assert "rank 0 is fine" in job.output and "rank 1 is fine" in job.output


@pytest.mark.timed
def test_a_killed_rank_is_named():
    job = run_job(2, [str(PROGRAMS / "tensorflow_loses_a_rank.py")], QUIET, limit_s=300)
    assert job.returncode != 0
    assert "rank 0 heard of it" in job.output, job.output


def test_lifecycle():
    beside = ["torch"] if importlib.util.find_spec("torch") else []
    job = run_job(2, [str(PROGRAMS / "tensorflow_lifecycle.py"), *beside], QUIET, limit_s=300)
    assert job.returncode == 0, job.output
    assert "rank 0 is fine" in job.output and "rank 1 is fine" in job.output


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2, 0])
def test_soak(threads):
    start = time.monotonic()
    job = run_job(2, [str(PROGRAMS / "tensorflow_soak.py"), str(threads), "200"], QUIET, limit_s=960)
    assert job.returncode == 0, job.output[-4000:]
    assert "rank 0 is fine" in job.output and "rank 1 is fine" in job.output
    assert time.monotonic() - start > 200
