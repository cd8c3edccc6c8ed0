"""allreduce and grouped allreduce in all their forms, against sums made with plain torch."""

from __future__ import annotations

import math
import os

import pytest
import torch

import hvd.torch as hvd

ROUNDS_AT_EACH_STEP = os.environ.get("HVD_CPU_BACKEND") == "mpi"

pytestmark = pytest.mark.ranks

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (0,), (1,), (3,), (7, 0, 2), (5, 200), (300_001,)]  # the last one spans chunks
REDUCTIONS = {hvd.Sum: "sum", hvd.Average: "average", hvd.Min: "min", hvd.Max: "max", hvd.Product: "product"}


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, so that every result is exact in every dtype."""
    numbers = (torch.arange(math.prod(shape)) * 7 + rank * 5) % 3 + 1
    if dtype is torch.bool:
        numbers = numbers == 1
    return numbers.reshape(shape).to(dtype)


def reduced(tensors: list[torch.Tensor], op: int) -> torch.Tensor:
    stacked = torch.stack(tensors).to(torch.float64)
    if op == hvd.Sum:
        result = stacked.sum(0)
    elif op == hvd.Average:
        result = stacked.sum(0) / len(tensors)
        result = result if tensors[0].dtype.is_floating_point else result.trunc()
    elif op == hvd.Min:
        result = stacked.amin(0)
    elif op == hvd.Max:
        result = stacked.amax(0)
    else:
        result = stacked.prod(0)
    return result.to(tensors[0].dtype)


def all_ranks(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    return [values(rank, shape, dtype) for rank in range(hvd.size())]


@pytest.mark.parametrize("form", [hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_])
def test_a_name_need_not_be_a_string(form):
    result = form(torch.ones(3), name=5, op=hvd.Sum)
    if isinstance(result, int):
        result = hvd.synchronize(result)
    assert result.tolist() == [hvd.size()] * 3


@pytest.mark.parametrize("op", REDUCTIONS, ids=REDUCTIONS.get)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_every_form_dtype_and_operation(dtype, op):
    for shape in SHAPES:
        expected = reduced(all_ranks(shape, dtype), op)
        given = values(hvd.rank(), shape, dtype)
        kept = given.clone()
        for form in (hvd.allreduce, lambda t, op: hvd.synchronize(hvd.allreduce_async(t, op=op))):
            result = form(given, op=op)
            torch.testing.assert_close(result, expected, rtol=0, atol=0)
            assert torch.equal(given, kept)
        for form in (hvd.allreduce_, lambda t, op: hvd.synchronize(hvd.allreduce_async_(t, op=op))):
            tensor = given.clone()
            assert form(tensor, op=op) is tensor
            torch.testing.assert_close(tensor, expected, rtol=0, atol=0)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max], ids=REDUCTIONS.get)
def test_bool(op):
    result = hvd.allreduce(values(hvd.rank(), (100,), torch.bool), op=op)
    torch.testing.assert_close(result, reduced(all_ranks((100,), torch.bool), op), rtol=0, atol=0)


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Product], ids=REDUCTIONS.get)
def test_bool_has_no_sum(op):
    with pytest.raises((ValueError, hvd.HorovodInternalError), match="bool"):
        hvd.allreduce(torch.ones(3, dtype=torch.bool), op=op)


def test_average_is_the_default_and_has_an_older_spelling():
    tensor = torch.tensor([float(hvd.rank())])
    total = sum(range(hvd.size()))
    assert hvd.allreduce(tensor).item() == total / hvd.size()
    assert hvd.allreduce(tensor, average=True).item() == total / hvd.size()
    assert hvd.allreduce(tensor, average=False).item() == total
    assert hvd.allreduce_(tensor.clone(), False).item() == total
    with pytest.raises(ValueError, match="op"):
        hvd.allreduce(tensor, average=True, op=hvd.Sum)


def test_negative_averages_of_integers_are_truncated():
    tensor = torch.tensor([-1 if hvd.rank() == 0 else 0, -3], dtype=torch.int32)
    expected = [math.trunc(-1 / hvd.size()), -3]
    assert hvd.allreduce(tensor).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_scales(dtype):
    tensor = values(hvd.rank(), (1000,), dtype)
    result = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    expected = sum(t.double() for t in all_ranks((1000,), dtype)) * 2
    torch.testing.assert_close(result, expected.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("factor", [0.1, 1 / 3, 1 + 1e-8, 1234.567])
def test_factors_are_those_of_torch_s_own_products(dtype, factor):
    given = torch.linspace(-7, 7, 4001, dtype=torch.float64).to(dtype)
    one_rank_s = given if hvd.rank() == 0 else torch.zeros_like(given)  # so that no addition rounds
    for scale in ("prescale_factor", "postscale_factor"):
        result = hvd.allreduce(one_rank_s, op=hvd.Sum, **{scale: factor})
        torch.testing.assert_close(result, given * factor, rtol=0, atol=0)


def test_scales_of_integers_are_taken_in_double_precision():
    tensor = torch.tensor([2**40 + 1, 3, -3])
    result = hvd.allreduce(tensor, op=hvd.Sum, postscale_factor=0.5)
    assert result.tolist() == [math.trunc(value * hvd.size() * 0.5) for value in (2**40 + 1, 3, -3)]


@pytest.mark.skipif(ROUNDS_AT_EACH_STEP, reason="MPI's own collectives round 16-bit sums at each step")
def test_sixteen_bit_sums_are_rounded_once():
    # 2048 + 1 is not a float16; 2048 + 1 + 1 ... is, if it was not rounded on the way.
    tensor = torch.full((10,), 2048.0 if hvd.rank() == 0 else 1.0, dtype=torch.float16)
    expected = torch.tensor(2048.0 + (hvd.size() - 1)).to(torch.float16)
    assert (hvd.allreduce(tensor, op=hvd.Sum) == expected).all()


def test_results_have_the_same_bits_on_all_ranks():
    generator = torch.Generator().manual_seed(hvd.rank())
    result = hvd.allreduce(torch.randn(100_003, generator=generator))
    assert len({bytes(r) for r in hvd.allgather_object(result.numpy().tobytes())}) == 1


def test_many_at_once_in_another_order_on_each_rank():
    order = torch.randperm(100, generator=torch.Generator().manual_seed(hvd.rank())).tolist()
    tensors = {i: torch.full((i * 11,), float(hvd.rank() + i)) for i in order}
    handles = {i: hvd.allreduce_async_(tensors[i], name=f"many.{i}", op=hvd.Sum) for i in order}
    for i, handle in handles.items():
        hvd.synchronize(handle)
        assert (tensors[i] == sum(range(hvd.size())) + hvd.size() * i).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_compression(dtype):
    compression = {torch.float16: hvd.Compression.fp16, torch.bfloat16: hvd.Compression.bf16}[dtype]
    tensor = torch.full((10,), 1.001 + hvd.rank())
    result = hvd.allreduce(tensor, compression=compression)
    expected = torch.stack([torch.full((10,), 1.001 + r).to(dtype).float() for r in range(hvd.size())]).mean(0)
    assert result.dtype is torch.float32
    tolerance = torch.finfo(dtype).eps * hvd.size() if ROUNDS_AT_EACH_STEP else 0
    torch.testing.assert_close(result, expected.to(dtype).float(), rtol=tolerance, atol=0)
    integers = torch.arange(5)
    assert torch.equal(hvd.allreduce(integers, compression=compression), integers)


def group(rank: int) -> list[torch.Tensor]:
    return [values(rank, shape, torch.float32) for shape in SHAPES]


def test_grouped_every_form():
    expected = [reduced([group(rank)[i] for rank in range(hvd.size())], hvd.Sum) for i in range(len(SHAPES))]
    for form in (
        hvd.grouped_allreduce,
        lambda tensors, op: hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=op)),
    ):
        given = group(hvd.rank())
        torch.testing.assert_close(form(given, op=hvd.Sum), expected, rtol=0, atol=0)
        torch.testing.assert_close(given, group(hvd.rank()), rtol=0, atol=0)
    for form in (
        hvd.grouped_allreduce_,
        lambda tensors, op: hvd.synchronize(hvd.grouped_allreduce_async_(tensors, op=op)),
    ):
        given = group(hvd.rank())
        results = form(given, op=hvd.Sum)
        assert all(result is tensor for result, tensor in zip(results, given))
        torch.testing.assert_close(given, expected, rtol=0, atol=0)


def test_grouped_average_compression_and_name():
    results = hvd.grouped_allreduce(
        [torch.full((4,), float(hvd.rank())), torch.full((2,), 1.0)], name="pair", compression=hvd.Compression.fp16
    )
    assert results[0].tolist() == [sum(range(hvd.size())) / hvd.size()] * 4
    assert results[1].tolist() == [1.0, 1.0]
