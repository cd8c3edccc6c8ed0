"""Dtypes that the runtime does not reduce itself: complex numbers go as pairs of floats, float8 only moves."""

from __future__ import annotations

import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.ranks

COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
FLOAT8 = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
]
FACTORS = {"prescale_factor": 0.5, "postscale_factor": 4.0}


def numbers(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, which all of them can represent exactly, as can their sums; but for float8_e8m0fnu, which
    has powers of two."""
    steps = torch.arange(4 * 6).reshape(4, 6) + 3 * rank
    if dtype.is_complex:
        return torch.complex(steps.double() % 7, -(steps.double() % 5)).to(dtype)
    return (2.0 ** (steps % 4)).to(dtype)


def same(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bit by bit: not all of these dtypes can be compared."""
    assert result.dtype is expected.dtype and not result.is_conj()
    expected = torch.empty(expected.shape, dtype=expected.dtype).copy_(expected)
    if expected.dtype.is_complex:
        return torch.equal(torch.view_as_real(result), torch.view_as_real(expected))
    return torch.equal(result.view(torch.uint8), expected.view(torch.uint8))


def of_all(dtype: torch.dtype, make=numbers) -> list[torch.Tensor]:
    return [make(rank, dtype) for rank in range(hvd.size())]


def total(dtype: torch.dtype, make=numbers) -> torch.Tensor:
    return sum(part.to(torch.complex128) for part in of_all(dtype, make)).to(dtype)


LAYOUTS = {
    "plain": lambda t: t,
    "conjugated": lambda t: t.conj(),
    "transposed and conjugated": lambda t: t.mH,
    "every second": lambda t: torch.stack([t, -t], dim=-1)[..., 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_sums_and_averages_of_complex_numbers(dtype, layout):
    def make(rank: int, dtype: torch.dtype) -> torch.Tensor:
        return LAYOUTS[layout](numbers(rank, dtype))

    given, expected = make(hvd.rank(), dtype), total(dtype, make)
    for result in (
        hvd.allreduce(given, op=hvd.Sum),
        hvd.allreduce(given, op=hvd.Sum, name="named"),
        hvd.synchronize(hvd.allreduce_async(given, op=hvd.Sum)),
        *hvd.grouped_allreduce([given, given], op=hvd.Sum),
        torch.ops.hvd.allreduce(given, None, hvd.Sum, 1.0, 1.0, 0),
    ):
        assert same(result, expected)
    parts = expected.tensor_split(hvd.size())
    assert same(hvd.reducescatter(given, op=hvd.Sum), parts[hvd.rank()])
    assert all(same(part, parts[hvd.rank()]) for part in hvd.grouped_reducescatter([given, given], op=hvd.Sum))
    if hvd.size() in (1, 2, 4) and dtype is not torch.complex32:
        assert same(hvd.allreduce(given), expected / hvd.size())
        assert same(hvd.allreduce(given, op=hvd.Sum, **FACTORS), expected * 2)
    for form in (
        lambda t: hvd.allreduce_(t, op=hvd.Sum),
        lambda t: hvd.synchronize(hvd.allreduce_async_(t, op=hvd.Sum)),
        lambda t: hvd.grouped_allreduce_([t], op=hvd.Sum)[0],
    ):
        tensor = make(hvd.rank(), dtype).detach()
        assert form(tensor) is tensor
        assert torch.equal(torch.view_as_real(tensor.resolve_conj()), torch.view_as_real(expected.resolve_conj()))


@pytest.mark.parametrize("dtype", [*COMPLEX, *FLOAT8], ids=str)
def test_what_moves(dtype):
    given, size, me = numbers(hvd.rank(), dtype), hvd.size(), hvd.rank()
    root = size - 1
    assert same(hvd.broadcast(given, root), numbers(root, dtype))
    assert same(hvd.broadcast(given[0, 0], root), numbers(root, dtype)[0, 0])
    tensor = given.clone()
    assert hvd.broadcast_(tensor, root) is tensor and same(tensor, numbers(root, dtype))
    whole = torch.cat(of_all(dtype))
    assert same(hvd.allgather(given), whole)
    assert same(hvd.allgather(given[: me % 2]), torch.cat([part[: i % 2] for i, part in enumerate(of_all(dtype))]))
    assert all(same(result, whole) for result in hvd.grouped_allgather([given, given]))
    assert same(hvd.alltoall(given), torch.cat([part.split(4 // size)[me] for part in of_all(dtype)]))
    received, splits = hvd.alltoall(given.t(), [1] * size)
    assert same(received, torch.stack([part.t()[me] for part in of_all(dtype)])) and splits.tolist() == [1] * size


@pytest.mark.parametrize("dtype", [torch.complex64, *FLOAT8], ids=str)
def test_other_reductions_are_refused(dtype):
    given = numbers(hvd.rank(), dtype)
    text = "it has Average and Sum" if dtype.is_complex else r"this type only moves \(allgather, .*; convert it"
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum, *(() if dtype.is_complex else (hvd.Sum, hvd.Average))):
        for reduction in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.reducescatter):
            with pytest.raises(ValueError, match=text):
                reduction(given, op=op)
        for reduction in (hvd.grouped_allreduce, hvd.grouped_allreduce_, hvd.grouped_reducescatter):
            with pytest.raises(ValueError, match=text):
                reduction([torch.ones(1), given], op=op)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


@pytest.mark.parametrize("dtype", FLOAT8[:1], ids=str)
def test_compression_reduces_eight_bit_floats_as_wider_ones(dtype):
    result = hvd.allreduce(torch.full((3,), 2.0).to(dtype), op=hvd.Sum, compression=hvd.Compression.bf16)
    assert result.dtype is dtype and result.float().tolist() == [2.0 * hvd.size()] * 3


def test_gradients_of_complex_numbers():
    weights = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
    for form in (lambda t: hvd.allreduce(t, op=hvd.Sum), lambda t: hvd.grouped_allreduce([t], op=hvd.Sum)[0]):
        given = torch.ones(2, dtype=torch.complex128, requires_grad=True)
        (form(given) * weights).real.sum().backward()
        assert torch.equal(given.grad.resolve_conj(), weights.conj().resolve_conj() * hvd.size())
    given = torch.ones(1, dtype=torch.complex64, requires_grad=True)
    (hvd.allgather(given) * 1j).real.sum().backward()
    assert given.grad.tolist() == [-1j]


def test_sparse_complex_numbers():
    tensor = torch.sparse_coo_tensor([[hvd.rank(), 4]], [1j, 2 + 0j], (5,), dtype=torch.complex64)
    total = hvd.sparse_allreduce_async(tensor, "sparse", hvd.Sum)().to_dense()
    assert total.tolist() == [1j] * hvd.size() + [0j] * (4 - hvd.size()) + [2 * hvd.size()]


def test_complex_numbers_in_shared_memory():
    views = hvd.bucket_views([torch.empty(3, 2, dtype=torch.complex64), torch.empty(5, dtype=torch.complex64)])[1]
    assert [view.shape for view in views] == [(3, 2), (5,)]
    tensor = hvd.empty(3, 2, dtype=torch.complex64).copy_(views[0] + 1j)
    assert hvd.allreduce_(tensor, op=hvd.Sum).tolist() == [[1j * hvd.size()] * 2] * 3


def steps(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], rank: int | None) -> None:
    """Steps with a rank's loss, or without one the average of all."""
    for step in range(3):
        optimizer.zero_grad()
        ranks = range(hvd.size()) if rank is None else [rank]
        whole = torch.zeros((), dtype=torch.float64)
        for number in ranks:
            input = torch.complex(torch.arange(3.0) + number, torch.ones(3) * step).to(torch.complex128)
            error = (parameters[0] @ input + parameters[1]) * parameters[2]
            whole = whole + error.abs().square().sum() / len(ranks)
        whole.backward()
        optimizer.step()


@pytest.mark.parametrize(
    "options",
    [{}, {"num_groups": 2}, {"gradient_as_bucket_view": True}, {"compression": hvd.Compression.fp16}],
    ids=str,
)
def test_an_optimizer_with_complex_parameters(options):
    trained = []
    for together in (True, False):
        torch.manual_seed(5)
        shapes_and_dtypes = [((2, 3), torch.complex128), ((2,), torch.complex128), ((2,), torch.float64)]
        parameters = [torch.nn.Parameter(torch.randn(s, dtype=dtype)) for s, dtype in shapes_and_dtypes]
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        if together:
            optimizer = hvd.DistributedOptimizer(optimizer, **options)
        steps(optimizer, parameters, hvd.rank() if together else None)
        trained.append(parameters)
    tolerance = 1e-3 if "compression" in options else 1e-10
    torch.testing.assert_close(*trained, rtol=tolerance, atol=tolerance)
