"""Tensors in the memory that the ranks of a host share."""

from __future__ import annotations

import gc
import os

import pytest
import torch

import hvd.torch as hvd

MEGABYTE = 1 << 20


@pytest.mark.ranks
def test_empty_makes_tensors_like_torch_does():
    for made, like in (
        (hvd.empty(3, 4), torch.empty(3, 4)),
        (hvd.empty((2, 0), dtype=torch.int8), torch.empty((2, 0), dtype=torch.int8)),
        (hvd.empty((), dtype=torch.bfloat16), torch.empty((), dtype=torch.bfloat16)),
        (hvd.empty_like(torch.empty(5, 6, dtype=torch.bool)), torch.empty(5, 6, dtype=torch.bool)),
    ):
        assert made.shape == like.shape and made.dtype == like.dtype and made.is_contiguous()


@pytest.mark.ranks
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_allreduce_of_shared_tensors(dtype):
    numbers = torch.arange(MEGABYTE) % 100
    shared = hvd.empty(MEGABYTE, dtype=dtype)
    for step in range(3):
        shared.copy_(numbers + hvd.rank() + step)
        hvd.allreduce_(shared, op=hvd.Sum, name=f"shared.{dtype}")
        expected = numbers * hvd.size() + sum(range(hvd.size())) + step * hvd.size()
        assert torch.equal(shared, expected.to(dtype))


@pytest.mark.ranks(2, 4)
def test_allreduce_where_only_some_ranks_have_shared_tensors():
    tensor = torch.empty(MEGABYTE) if hvd.rank() == 0 else hvd.empty(MEGABYTE)
    tensor.fill_(hvd.rank() + 1)
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert torch.all(tensor == sum(range(1, hvd.size() + 1)))


@pytest.mark.ranks
def test_bucket_views():
    likes = [torch.empty(3, 5), torch.empty(()), torch.empty(0, 2), torch.empty(100_000)]
    bucket, views = hvd.bucket_views(likes)
    assert [view.shape for view in views] == [like.shape for like in likes]
    for number, view in enumerate(views):
        view.fill_(float(hvd.rank() + number))
    hvd.allreduce_(bucket, op=hvd.Sum)
    for number, view in enumerate(views):
        assert torch.all(view == sum(rank + number for rank in range(hvd.size())))
    with pytest.raises(ValueError, match="one dtype"):
        hvd.bucket_views([torch.empty(1), torch.empty(1, dtype=torch.int8)])
    with pytest.raises(ValueError, match="at least one tensor"):
        hvd.bucket_views([])


@pytest.mark.ranks(1, 2)
def test_usage_counts_what_is_alive():
    before = hvd.arena_usage()
    tensor = hvd.empty(MEGABYTE, dtype=torch.uint8)
    during = hvd.arena_usage()
    view = tensor[5:10]
    del tensor
    gc.collect()
    with_view = hvd.arena_usage()
    del view
    gc.collect()
    assert hvd.arena_usage()["used"] == before["used"]
    taken = MEGABYTE if hvd.size() > 1 else 0
    assert during["used"] == with_view["used"] == before["used"] + taken
    assert (during["limit"] > 0) == (hvd.size() > 1) and during["peak"] >= taken


@pytest.mark.ranks(2)
def test_no_room_is_an_error_that_names_the_bound():
    with pytest.raises(ValueError, match="HVD_ARENA_LIMIT"):
        hvd.empty(1 << 40, dtype=torch.uint8)
    with pytest.raises(ValueError, match="quantized"):
        hvd.empty(3, dtype=torch.qint8)
    with pytest.raises(ValueError, match="a dimension cannot be negative"):
        hvd.empty(3, -1)


@pytest.mark.ranks(2)
def test_a_forked_child_may_drop_a_shared_tensor():
    tensor = hvd.empty(MEGABYTE).fill_(7)
    gc.collect()
    gc.freeze()  # what other tests have left: a forked child cannot end TensorFlow's functions
    child = os.fork()
    if child == 0:
        del tensor
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.all(tensor == 7)


@pytest.mark.ranks(2)
def test_operations_that_never_repeat_leave_nothing_behind():
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    tensor = torch.ones(100_000)
    for _ in range(300):
        hvd.allgather(tensor)
    before = resident()
    for _ in range(600):
        hvd.allgather(tensor)  # its result is large, its name new, and what is kept of it would be in the way
    assert resident() - before < 100 * MEGABYTE


@pytest.mark.ranks(2)
def test_shared_tensors_outlive_the_runtime():
    rank = hvd.rank()
    tensor = hvd.empty(MEGABYTE).fill_(rank)
    hvd.shutdown()
    assert torch.all(tensor == rank)
    hvd.init()
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert torch.all(tensor == 1)
    usage = hvd.arena_usage()["used"]
    again = hvd.empty(1000)
    assert hvd.arena_usage()["used"] > usage
    del tensor, again
    assert hvd.arena_usage()["used"] == usage
