"""allgather, broadcast, alltoall, reducescatter, barrier and join, against results made with plain torch."""

from __future__ import annotations

import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.ranks

DTYPES = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
]
UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]


def rows(rank: int, number: int, dtype: torch.dtype = torch.float32, width: int = 3) -> torch.Tensor:
    numbers = torch.arange(number * width).reshape(number, width) % 10 + rank * 10
    return (numbers % 2 == rank % 2) if dtype is torch.bool else numbers.to(dtype)


def equal(result: torch.Tensor, expected: torch.Tensor) -> bool:
    return result.dtype == expected.dtype and torch.equal(result, expected)


@pytest.mark.parametrize("dtype", [*DTYPES, *UNSIGNED], ids=str)
def test_allgather(dtype):
    for number in (0, 1, 5, 10_000):
        expected = torch.cat([rows(rank, number, dtype) for rank in range(hvd.size())])
        mine = rows(hvd.rank(), number, dtype)
        assert equal(hvd.allgather(mine), expected)
        assert equal(hvd.synchronize(hvd.allgather_async(mine, name="gathered")), expected)


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_wide_unsigned_integers_only_move(dtype):
    highest = torch.iinfo(dtype).max
    mine = torch.tensor([highest, hvd.rank()], dtype=dtype)
    assert hvd.allgather(mine).tolist() == [value for rank in range(hvd.size()) for value in (highest, rank)]
    for reduction in (hvd.allreduce, hvd.reducescatter):
        with pytest.raises(ValueError, match=r"not reduced; .* takes uint8, int8, int16, int32, int64, float16"):
            reduction(torch.zeros(8, dtype=dtype), op=hvd.Sum)


def test_allgather_of_different_first_dimensions():
    for lengths in ([3, 0, 7, 1], [0, 0, 0, 2], [5, 1, 1, 1]):
        mine = rows(hvd.rank(), lengths[hvd.rank()])
        expected = torch.cat([rows(rank, lengths[rank]) for rank in range(hvd.size())])
        assert equal(hvd.allgather(mine, name="uneven"), expected)


def test_allgather_result_is_a_tensor_like_any_other():
    result = hvd.allgather(torch.ones(2, 2))
    result += 1
    assert result.is_contiguous() and (result @ result.t()).shape == (2 * hvd.size(), 2 * hvd.size())


@pytest.mark.parametrize("dtype", [*DTYPES, *UNSIGNED], ids=str)
def test_broadcast(dtype):
    for root in range(hvd.size()):
        for number in (0, 1, 20_000):
            expected = rows(root, number, dtype)
            given = rows(hvd.rank(), number, dtype)
            assert equal(hvd.broadcast(given, root), expected)
            assert equal(hvd.synchronize(hvd.broadcast_async(given, root)), expected)
            assert equal(given, rows(hvd.rank(), number, dtype))
            for form in (hvd.broadcast_, lambda t, root: hvd.synchronize(hvd.broadcast_async_(t, root))):
                tensor = given.clone()
                assert form(tensor, root) is tensor
                assert equal(tensor, expected)


def test_broadcast_of_a_scalar():
    assert hvd.broadcast(torch.tensor(hvd.rank()), root_rank=hvd.size() - 1).item() == hvd.size() - 1


@pytest.mark.parametrize("dtype", [*DTYPES, *UNSIGNED], ids=str)
def test_alltoall_of_equal_parts(dtype):
    for each in (0, 1, 3000):
        number = each * hvd.size()
        parts = [rows(rank, number, dtype).split(each or 1)[hvd.rank()] for rank in range(hvd.size())] if each else []
        expected = torch.cat(parts) if parts else rows(0, 0, dtype)
        assert equal(hvd.alltoall(rows(hvd.rank(), number, dtype)), expected)


def test_alltoall_with_splits():
    size, me = hvd.size(), hvd.rank()
    # Rank r sends (r + 2 d) % 4 rows to rank d: zero for some.
    splits = [[(rank + 2 * to) % 4 for to in range(size)] for rank in range(size)]
    expected = torch.cat([rows(rank, sum(splits[rank])).split(splits[rank])[me] for rank in range(size)])
    received = torch.tensor([splits[rank][me] for rank in range(size)], dtype=torch.int32)
    mine = rows(me, sum(splits[me]))
    for given in (splits[me], torch.tensor(splits[me]), torch.tensor(splits[me], dtype=torch.int32)):
        output, received_splits = hvd.alltoall(mine, splits=given, name="split")
        assert equal(output, expected) and equal(received_splits, received)


def test_alltoall_handle_always_gives_the_pair():
    output, received_splits = hvd.synchronize(hvd.alltoall_async(torch.arange(hvd.size() * 2)))
    assert output.tolist() == [2 * hvd.rank(), 2 * hvd.rank() + 1] * hvd.size()
    assert received_splits.tolist() == [2] * hvd.size()


REDUCIBLE = [dtype for dtype in DTYPES if dtype is not torch.bool]


@pytest.mark.parametrize("dtype", REDUCIBLE, ids=str)
@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, 8, 9001])
def test_reducescatter(dtype, number):
    size, me = hvd.size(), hvd.rank()
    # The remainder goes to the first ranks, a row each.
    lengths = [number // size + (rank < number % size) for rank in range(size)]
    given = [(rows(rank, number) % 7).to(dtype) for rank in range(size)]
    total = sum(tensor.double() for tensor in given)
    expected = total.to(dtype).split(lengths)[me]
    assert equal(hvd.reducescatter(given[me], op=hvd.Sum), expected)
    assert equal(hvd.synchronize(hvd.reducescatter_async(given[me], op=hvd.Sum, name="scattered")), expected)
    average = total / size
    average = average if dtype.is_floating_point else average.trunc()
    assert equal(hvd.reducescatter(given[me]), average.to(dtype).split(lengths)[me])


def test_reducescatter_of_minimum_and_maximum():
    given = torch.arange(4.0 * hvd.size()) + hvd.rank()
    mine = torch.arange(4.0 * hvd.size()).chunk(hvd.size())[hvd.rank()]
    assert equal(hvd.reducescatter(given, op=hvd.Min), mine)
    assert equal(hvd.reducescatter(given, op=hvd.Max), mine + hvd.size() - 1)


def test_reducescatter_scales_and_compresses():
    given = torch.ones(hvd.size() * 2, 3)
    result = hvd.reducescatter(given, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    assert equal(result, torch.full((2, 3), 0.5 * hvd.size()))
    result = hvd.reducescatter(given, compression=hvd.Compression.fp16)
    assert equal(result, torch.ones(2, 3))


def test_barrier():
    for _ in range(20):
        assert hvd.barrier() is None


def test_join():
    # Rank r has r + 1 batches; an average still divides by all ranks.
    size = hvd.size()
    for step in range(hvd.rank() + 1):
        result = hvd.allreduce(torch.full((5,), 2.0), name=f"batch.{step}")
        assert result.tolist() == [2.0 * (size - step) / size] * 5
    last = hvd.join()
    assert last in range(size)
    assert len(set(hvd.allgather_object(last))) == 1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


def test_results_of_dropped_handles_are_no_harm():
    for step in range(50):
        hvd.allgather_async(torch.ones(1000), name=f"dropped.{step}")
    hvd.barrier()


def test_threads_may_submit_by_name():
    import threading

    results: dict[int, float] = {}

    def work(number: int) -> None:
        for step in range(20):
            tensor = torch.full((10,), float(number))
            results[number] = hvd.allreduce(tensor, op=hvd.Sum, name=f"thread.{number}.{step}")[0].item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: float(number * hvd.size()) for number in range(4)}
