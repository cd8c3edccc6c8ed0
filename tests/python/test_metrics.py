"""What hvd.metrics() counts."""

from __future__ import annotations

import pytest


def counts(metrics, *names):
    return tuple(metrics[name] for name in names)


@pytest.mark.ranks
def test_a_name_that_comes_again_is_a_hit(ranks):
    import torch

    import hvd.torch as hvd

    hvd.allreduce(torch.ones(10), name="metrics.known")
    before = hvd.metrics()
    for _ in range(5):
        hvd.allreduce(torch.ones(10), name="metrics.known")
    step = hvd.metrics(since=before)
    assert counts(step, "operations", "buckets", "cache_hits", "cache_misses", "bytes") == (5, 5, 5, 0, 5 * 40)
    sent = {0: 5 * (ranks - 1)}.get(hvd.rank(), 5)  # the coordinator answers everyone
    assert step["control_messages"] == sent
    assert step["rounds"] == 5
    assert (step["control_bytes"] > 0) == (sent > 0)
    hvd.barrier()


@pytest.mark.ranks
def test_waiting_at_once_hides_nothing_and_waiting_late_hides_all(ranks):
    import time

    import torch

    import hvd.torch as hvd

    hvd.barrier()
    before = hvd.metrics()
    for _ in range(20):
        hvd.allreduce(torch.ones(1_000_000), name="metrics.awaited")
    awaited = hvd.metrics(since=before)
    assert 0 < awaited["collective_seconds"] <= awaited["communication_seconds"]
    assert awaited["exposed_seconds"] > 0

    hvd.barrier()
    before = hvd.metrics()
    handles = [hvd.allreduce_async(torch.ones(1_000_000), name=f"metrics.late.{i}") for i in range(20)]
    while not all(hvd.poll(handle) for handle in handles):
        time.sleep(0.01)
    for handle in handles:
        hvd.synchronize(handle)
    late = hvd.metrics(since=before)
    assert late["overlap"] > 0.9 > awaited["overlap"]
    hvd.barrier()


def test_there_is_none_without_a_job():
    import hvd

    with pytest.raises(ValueError, match="init"):
        hvd.metrics()
