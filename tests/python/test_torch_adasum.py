"""Adasum against its definition in NumPy, in double precision."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

import hvd.torch as hvd

# Numbers of ranks that are no power of two: tests/ops/algorithms/adasum_test.cc.
pytestmark = pytest.mark.ranks(1, 2, 4)

# What rounding to the nearest may change a value by, relative to it.
ROUNDING = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24, torch.float64: 2**-53}
SHAPES = [(), (0,), (1,), (3,), (5, 200), (300_001,)]  # the last one spans chunks


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A part that all ranks have in common, and one of the rank's own."""
    common = torch.randn(shape, generator=torch.Generator().manual_seed(1000), dtype=torch.float64)
    own = torch.randn(shape, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
    return (common + own).to(dtype)


def adasum_of_two(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    ab, aa, bb = numpy.dot(a, b), numpy.dot(a, a), numpy.dot(b, b)
    return (1 - (ab / (2 * aa) if aa else 0)) * a + (1 - (ab / (2 * bb) if bb else 0)) * b


def adasum(vectors: list[numpy.ndarray]) -> numpy.ndarray:
    while len(vectors) > 1:
        pairs = [vectors[i : i + 2] for i in range(0, len(vectors), 2)]
        vectors = [adasum_of_two(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return vectors[0]


def assert_close(result: torch.Tensor, tensors: list[torch.Tensor], scale: float = 1.0) -> None:
    vectors = [tensor.double().numpy().ravel() * scale for tensor in tensors]
    expected = adasum(vectors)
    # One rounding to the tensors' type, and a few to float32 (double) on the way.
    on_the_way = 2**-19 if result.dtype is not torch.float64 else 2**-43
    largest = max((float(numpy.abs(vector).max()) for vector in vectors if vector.size), default=0.0)
    allowed = ROUNDING[result.dtype] * numpy.abs(expected) + on_the_way * largest
    assert result.dtype is tensors[0].dtype and result.shape == tensors[0].shape
    assert (numpy.abs(result.double().numpy().ravel() - expected) <= allowed).all()


def all_ranks(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    return [values(rank, shape, dtype) for rank in range(hvd.size())]


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_every_form_and_dtype(dtype):
    for shape in SHAPES:
        given = values(hvd.rank(), shape, dtype)
        kept = given.clone()
        result = hvd.allreduce(given, op=hvd.Adasum)
        assert_close(result, all_ranks(shape, dtype))
        assert torch.equal(hvd.synchronize(hvd.allreduce_async(given, op=hvd.Adasum)), result)
        assert torch.equal(given, kept)
        for form in (hvd.allreduce_, lambda t, op: hvd.synchronize(hvd.allreduce_async_(t, op=op))):
            tensor = given.clone()
            assert form(tensor, op=hvd.Adasum) is tensor
            assert torch.equal(tensor, result)


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_grouped_tensors_have_a_sum_each_with_the_bits_that_they_have_alone(dtype):
    given = [values(hvd.rank(), shape, dtype) for shape in SHAPES]
    alone = [hvd.allreduce(tensor, op=hvd.Adasum) for tensor in given]
    together = hvd.grouped_allreduce(given, op=hvd.Adasum)
    for result, expected, shape in zip(together, alone, SHAPES):
        assert_close(result, all_ranks(shape, dtype))
        assert torch.equal(result, expected)
    assert all(result is tensor for result, tensor in zip(hvd.grouped_allreduce_(given, op=hvd.Adasum), given))
    assert all(torch.equal(tensor, expected) for tensor, expected in zip(given, alone))


def test_results_have_the_same_bits_on_all_ranks():
    result = hvd.allreduce(values(hvd.rank(), (100_003,), torch.float32), op=hvd.Adasum)
    assert len(set(hvd.allgather_object(result.numpy().tobytes()))) == 1


def test_what_it_is_for():
    equal = torch.tensor([1.0, -2.0, 3.0])
    assert torch.equal(hvd.allreduce(equal, op=hvd.Adasum), equal)
    orthogonal = torch.zeros(hvd.size())
    orthogonal[hvd.rank()] = hvd.rank() + 1
    assert hvd.allreduce(orthogonal, op=hvd.Adasum).tolist() == [rank + 1 for rank in range(hvd.size())]


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_scales(dtype):
    given = values(hvd.rank(), (1000,), dtype)
    result = hvd.allreduce(given, op=hvd.Adasum, prescale_factor=0.25, postscale_factor=3.0)
    assert_close(result, all_ranks((1000,), dtype), scale=0.75)


def test_compression():
    result = hvd.allreduce(values(hvd.rank(), (100,), torch.float32), op=hvd.Adasum, compression=hvd.Compression.bf16)
    assert result.dtype is torch.float32
    assert_close(result.bfloat16(), all_ranks((100,), torch.bfloat16))


def test_not_a_number_spreads():
    tensor = torch.ones(10)
    if hvd.rank() == 0:
        tensor[3] = math.nan
    result = hvd.allreduce(tensor, op=hvd.Adasum)
    assert result.isnan().all() if hvd.size() > 1 else result[3].isnan()


def test_joined_ranks_stand_for_zeros():
    for batch in range(hvd.rank() + 1):
        result = hvd.allreduce(values(hvd.rank(), (1000,), torch.float32), op=hvd.Adasum, name="until join")
        tensors = all_ranks((1000,), torch.float32)
        assert_close(result, [t if rank >= batch else torch.zeros(1000) for rank, t in enumerate(tensors)])
    hvd.join()


def test_what_it_is_not_for():
    for dtype in (torch.uint8, torch.int32, torch.int64, torch.bool):
        with pytest.raises(ValueError, match="floating-point"):
            hvd.allreduce(torch.ones(4, dtype=dtype), op=hvd.Adasum)
    with pytest.raises(ValueError, match="floating-point"):
        hvd.grouped_allreduce([torch.ones(4), torch.ones(4, dtype=torch.int32)], op=hvd.Adasum)
    with pytest.raises(ValueError, match="only allreduce"):
        hvd.reducescatter(torch.ones(4), op=hvd.Adasum)
    with pytest.raises(NotImplementedError, match="gradient"):
        hvd.allreduce(torch.ones(4, requires_grad=True), op=hvd.Adasum).sum().backward()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
