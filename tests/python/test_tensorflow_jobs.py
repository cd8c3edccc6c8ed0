"""Programs of TensorFlow from their first call to their end, scripts written for Horovod among them, and those that
need settings of their own. Several run in turn in one job: importing TensorFlow takes seconds."""

from __future__ import annotations

import functools
import importlib.util
import sys
import time

import pytest

from launching import PROGRAMS, Job, in_turn, run_command, run_job

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "15"}
OPPOSITE_ORDERS = "tensorflow_orders.py 1"  # sets the number of threads, and is therefore the first
HOROVODS = "horovod_tensorflow2.py"


@functools.cache
def job() -> Job:
    horovodrun = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable]
    return run_command([*horovodrun, *in_turn(OPPOSITE_ORDERS, HOROVODS, "tensorflow_loses_a_rank.py")], QUIET)


@pytest.mark.xdist_group("programs of TensorFlow")
@pytest.mark.parametrize("program", [OPPOSITE_ORDERS, HOROVODS])
def test_programs_that_end_well(program):
    assert job().output.count(f"{program} has ended") == 2, job().output


@pytest.mark.timed
@pytest.mark.xdist_group("programs of TensorFlow")
def test_a_killed_rank_is_named():
    assert job().returncode != 0
    assert "rank 0 heard of it" in job().output, job().output


BESIDE = " torch" if importlib.util.find_spec("torch") else ""
# Each ends with what no program could follow: an operation under way, settings that hold for the whole process.
OTHER_JOBS = [["horovod_keras.py", f"tensorflow_lifecycle.py{BESIDE}"], ["horovod_tensorflow1.py"]]


@pytest.mark.parametrize("programs", OTHER_JOBS, ids=" ".join)
def test_programs(programs):
    job = run_job(2, in_turn(*programs), QUIET)
    assert job.returncode == 0, job.output
    for program in programs:
        assert job.output.count(f"{program} has ended") == 2, job.output


@pytest.mark.long
def test_orders_that_are_opposite_on_two_threads():
    job = run_job(2, [str(PROGRAMS / "tensorflow_orders.py"), "2"], QUIET, limit_s=300)
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
