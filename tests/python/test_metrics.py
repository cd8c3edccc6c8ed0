"""What hvd.metrics() counts."""

from __future__ import annotations

import time

import numpy as np
import pytest

import hvd


def counts(metrics, *names):
    return tuple(metrics[name] for name in names)


@pytest.mark.ranks
def test_a_name_that_comes_again_is_a_hit(ranks):
    hvd.allreduce(np.ones(10, np.float32), name="metrics.known")
    before = hvd.metrics()
    for i in range(5):
        hvd.allreduce(np.ones(10, np.float32), name="metrics.known")
        hvd.allreduce(np.ones(10, np.float32), name=f"metrics.new.{i}")  # no step is like the one before
    step = hvd.metrics(since=before)
    assert counts(step, "operations", "buckets", "cache_hits", "cache_misses", "bytes") == (10, 10, 5, 5, 10 * 40)
    sent = {0: 10 * (ranks - 1)}.get(hvd.rank(), 10)  # the coordinator answers everyone
    assert step["control_messages"] == sent
    assert step["rounds"] == 10
    assert (step["control_bytes"] > 0) == (sent > 0)
    hvd.barrier()


def test_what_is_no_earlier_result_is_refused():
    with pytest.raises(TypeError, match="since is 5: expected an earlier result"):
        hvd.metrics(since=5)


@pytest.mark.ranks
def test_steps_that_repeat_cost_no_message(ranks):
    def step():
        handles = [hvd.allreduce_async(np.ones(10, np.float32), name=f"metrics.step.{i}") for i in range(20)]
        return [hvd.synchronize(handle) for handle in handles]

    for _ in range(100):
        step()
    before = hvd.metrics()
    for _ in range(50):
        step()
    after = hvd.metrics(since=before)
    step()  # nobody comes to the barrier, which ends the lock, before all have looked
    assert after["lock_state"] == 2
    assert counts(after, "control_messages", "control_bytes", "rounds", "operations") == (0, 0, 0, 50 * 20)
    assert after["locked_buckets"] == after["buckets"] > 0
    hvd.barrier()
    ended = hvd.metrics(since=before)
    assert sum(value for name, value in ended.items() if name.startswith("breaks_")) >= 1


@pytest.mark.ranks
def test_waiting_at_once_hides_nothing_and_waiting_late_hides_all(ranks):
    hvd.barrier()
    before = hvd.metrics()
    for _ in range(20):
        hvd.allreduce(np.ones(1_000_000, np.float32), name="metrics.awaited")
    awaited = hvd.metrics(since=before)
    assert 0 < awaited["collective_seconds"] <= awaited["communication_seconds"]
    assert awaited["exposed_seconds"] > 0

    hvd.barrier()
    before = hvd.metrics()
    handles = [hvd.allreduce_async(np.ones(1_000_000, np.float32), name=f"metrics.late.{i}") for i in range(20)]
    while not all(hvd.poll(handle) for handle in handles):
        time.sleep(0.01)
    for handle in handles:
        hvd.synchronize(handle)
    late = hvd.metrics(since=before)
    assert late["overlap"] > 0.9 > awaited["overlap"]
    hvd.barrier()


def test_there_is_none_without_a_job():
    with pytest.raises(ValueError, match="init"):
        hvd.metrics()
