"""Groups of allgathers and reducescatters, and sparse tensors: values, gradients, process sets, handles."""

from __future__ import annotations

import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.ranks

DTYPES = [torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def rows(rank: int, number: int, dtype: torch.dtype = torch.float32, width: int = 3) -> torch.Tensor:
    return (torch.arange(number * width).reshape(number, width) % 7 + rank).to(dtype)


def equal(results: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    assert isinstance(results, list) and len(results) == len(expected)
    return all(r.dtype == e.dtype and torch.equal(r, e) for r, e in zip(results, expected))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grouped_allgather(dtype):
    def of(rank: int) -> list[torch.Tensor]:
        return [rows(rank, rank + 1, dtype), rows(rank, 3 - rank % 4, dtype, 5), rows(rank, 0, dtype)]

    expected = [torch.cat(parts) for parts in zip(*(of(rank) for rank in range(hvd.size())))]
    mine = of(hvd.rank())
    assert equal(hvd.grouped_allgather(mine), expected)
    assert equal(hvd.grouped_allgather(tuple(mine), name="group"), expected)
    assert equal(hvd.synchronize(hvd.grouped_allgather_async(mine, name="group")), expected)


def test_a_group_may_come_from_a_generator():
    tensors = [torch.ones(hvd.size()), torch.full((hvd.size(), 2), 2.0)]
    for function in (hvd.grouped_allreduce, hvd.grouped_allreduce_, hvd.grouped_reducescatter, hvd.grouped_allgather):
        wanted = function([tensor.clone() for tensor in tensors])
        assert equal(function(tensor.clone() for tensor in tensors), wanted)
        start = getattr(hvd, f"{function.__name__.rstrip('_')}_async")
        assert equal(hvd.synchronize(start(tensor.clone() for tensor in tensors)), wanted)


def test_a_group_of_allgathers_may_have_several_dtypes():
    results = hvd.grouped_allgather([rows(hvd.rank(), 1, dtype) for dtype in DTYPES])
    assert [(len(result), result.dtype) for result in results] == [(hvd.size(), dtype) for dtype in DTYPES]


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_grouped_reducescatter(dtype):
    size, me = hvd.size(), hvd.rank()
    numbers = (2 * size + 1, size, 1)

    def parts(divided_by: int) -> list[torch.Tensor]:
        parts = []
        for number in numbers:
            total = sum(rows(rank, number, torch.float64) for rank in range(size)) / divided_by
            total = total if dtype.is_floating_point else total.trunc()
            parts.append(total.to(dtype).split([number // size + (r < number % size) for r in range(size)])[me])
        return parts

    mine = [rows(me, number, dtype) for number in numbers]
    assert equal(hvd.grouped_reducescatter(mine, op=hvd.Sum), parts(1))
    assert equal(hvd.grouped_reducescatter(mine, name="group"), parts(size))
    assert equal(hvd.synchronize(hvd.grouped_reducescatter_async(mine, "group", hvd.Sum)), parts(1))
    scaled = hvd.grouped_reducescatter(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    assert equal(scaled, parts(1))


def test_compression_of_groups():
    tensors = [torch.full((hvd.size(), 2), 1.5), torch.ones(hvd.size(), dtype=torch.int64)]
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        assert equal(hvd.grouped_reducescatter(tensors, compression=compression), [t[:1] for t in tensors])
        assert equal(hvd.grouped_allreduce(tensors, compression=compression), tensors)


def leaf(number: int) -> torch.Tensor:
    return rows(hvd.rank(), number, torch.float64).requires_grad_()


def test_gradients_of_grouped_allgather():
    tensors = [leaf(hvd.rank() + 1), leaf(2)]
    gathered = hvd.grouped_allgather(tensors)
    sum((g * torch.arange(len(g)).unsqueeze(1)).sum() * (hvd.rank() + 1) for g in gathered).backward()
    mean_factor = sum(range(1, hvd.size() + 1)) / hvd.size()
    for tensor, first in zip(tensors, (sum(range(1, hvd.rank() + 1)), 2 * hvd.rank())):
        places = torch.arange(first, first + len(tensor), dtype=torch.float64).unsqueeze(1)
        torch.testing.assert_close(tensor.grad, (places * mean_factor).expand(-1, 3))


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_gradients_of_grouped_reducescatter(op):
    size = hvd.size()
    tensors = [leaf(2 * size + 1), leaf(size)]
    parts = hvd.grouped_reducescatter(tensors, op=getattr(hvd, op), prescale_factor=0.5)
    sum(part.sum() * (hvd.rank() + 1) for part in parts).backward()
    factor = 0.5 * (size if op == "Sum" else 1)
    for tensor in tensors:
        each, extra = divmod(len(tensor), size)
        lengths = [each + (rank < extra) for rank in range(size)]
        expected = torch.cat([torch.full((n, 3), factor * (rank + 1)).double() for rank, n in enumerate(lengths)])
        torch.testing.assert_close(tensor.grad, expected)
    with pytest.raises(NotImplementedError):
        hvd.grouped_reducescatter([leaf(size)], op=hvd.Max)[0].sum().backward()


def sparse(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rank r has r + 1 elements in a row of its own, twice, and one in row 0."""
    indices = torch.tensor([[0] + [rank] * (rank + 1) * 2])
    return torch.sparse_coo_tensor(indices, torch.ones(indices.shape[1], 2, dtype=dtype), (hvd.size(), 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16], ids=str)
def test_sparse_allreduce(dtype):
    expected = sum(sparse(rank, dtype).to_dense() for rank in range(hvd.size()))
    handles = [hvd.sparse_allreduce_async(sparse(hvd.rank(), dtype), f"sparse.{i}", hvd.Sum) for i in range(3)]
    for handle in handles:
        assert callable(handle)
        result = handle()
        assert result.is_sparse and result.shape == (hvd.size(), 2)
        assert torch.equal(result.to_dense(), expected)
    if dtype.is_floating_point:
        result = hvd.sparse_allreduce_async(sparse(hvd.rank(), dtype), name="mean", op=hvd.Average)()
        torch.testing.assert_close(result.to_dense(), expected / hvd.size())


def test_sparse_tensors_without_elements_and_of_two_sparse_dimensions():
    tensor = torch.zeros(3, 4)
    if hvd.rank() == 0:
        tensor[1, 2] = 5
    result = hvd.sparse_allreduce_async(tensor.to_sparse(), "matrix", hvd.Sum)()
    expected = torch.zeros(3, 4)
    expected[1, 2] = 5
    assert torch.equal(result.to_dense(), expected)


@pytest.mark.ranks(4)
def test_process_sets():
    half = [rank for rank in range(4) if rank % 2 == hvd.rank() % 2]
    sets = [hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])]
    own = sets[hvd.rank() % 2]
    try:
        mine = rows(hvd.rank(), 2, torch.float64)
        assert equal(hvd.grouped_allgather([mine], process_set=own), [torch.cat([rows(r, 2).double() for r in half])])
        place = half.index(hvd.rank())
        total = sum(rows(r, 2, torch.float64) for r in half)
        assert equal(hvd.grouped_reducescatter([mine], op=hvd.Sum, process_set=own), [total[place : place + 1]])
        result = hvd.sparse_allreduce_async(mine.to_sparse(1), "set", hvd.Average, process_set=own)()
        assert torch.equal(result.to_dense(), total / 2)
        # Gradients are averaged over the set, and arrive at its ranks.
        for collective in (
            lambda t: hvd.allgather(t, process_set=own),
            lambda t: hvd.grouped_allgather([t], process_set=own)[0],
            lambda t: hvd.broadcast(t, half[0], process_set=own),
            lambda t: hvd.alltoall(t, process_set=own),
            lambda t: hvd.reducescatter(t, process_set=own),
            lambda t: hvd.allreduce(t, process_set=own),
        ):
            tensor = leaf(2)
            (collective(tensor) * (hvd.rank() + 1)).sum().backward()
            assert tensor.grad.abs().max() <= max(half) + 1
        assert tensor.grad.tolist() == [[sum(rank + 1 for rank in half) / 2] * 3] * 2
    finally:
        for process_set in sets:
            hvd.remove_process_set(process_set)
