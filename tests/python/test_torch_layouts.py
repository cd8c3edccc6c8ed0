"""Tensors that are not contiguous: transposed, sliced, channels-last, expanded, negated views. In every collective."""

from __future__ import annotations

import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.ranks


def numbers(rank: int) -> torch.Tensor:
    return torch.arange(4 * 4 * 4 * 4, dtype=torch.float64).reshape(4, 4, 4, 4) + 1000 * rank


LAYOUTS = {
    "transposed": lambda t: t.clone().transpose(0, 2),
    "every second": lambda t: torch.stack([t, -t], dim=-1)[..., 0],
    "channels last": lambda t: t.clone().to(memory_format=torch.channels_last),
    "negated view": lambda t: torch.complex(t, -t).conj().imag,
    "of a parameter": lambda t: torch.nn.Parameter(t.clone().transpose(0, 1)),
}


@pytest.fixture(params=LAYOUTS)
def make(request):
    """Makes a rank's tensor in the layout."""
    return lambda rank: LAYOUTS[request.param](numbers(rank))


def total(make) -> torch.Tensor:
    return sum(make(rank).detach().resolve_neg() for rank in range(hvd.size()))


def equal(result: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.equal(result.detach().resolve_neg().contiguous(), expected.detach().resolve_neg().contiguous())


def test_new_results_have_the_values_and_the_memory_format(make):
    given, kept = make(hvd.rank()), make(hvd.rank())
    results = [
        hvd.allreduce(given, op=hvd.Sum),
        hvd.allreduce(given, op=hvd.Sum, name="named"),
        hvd.synchronize(hvd.allreduce_async(given, op=hvd.Sum)),
        *hvd.grouped_allreduce([given, given], op=hvd.Sum),
        *hvd.synchronize(hvd.grouped_allreduce_async([given], op=hvd.Sum)),
    ]
    for result in results:
        assert equal(result, total(make)) and result.stride() == torch.empty_like(given).stride()
    root = hvd.size() - 1
    for name in (None, "named"):
        assert equal(hvd.broadcast(given, root, name=name), make(root))
    assert equal(hvd.synchronize(hvd.broadcast_async(given, root)), make(root))
    assert equal(given, kept)


def test_in_place_forms_write_to_the_tensor(make):
    if make(0).requires_grad:
        make = lambda rank, make=make: make(rank).detach()  # noqa: E731
    for reduce in (
        lambda t: hvd.allreduce_(t, op=hvd.Sum),
        lambda t: hvd.allreduce_(t, op=hvd.Sum, name="named"),
        lambda t: hvd.synchronize(hvd.allreduce_async_(t, op=hvd.Sum)),
        lambda t: hvd.grouped_allreduce_([t], op=hvd.Sum)[0],
        lambda t: hvd.synchronize(hvd.grouped_allreduce_async_([t], op=hvd.Sum))[0],
    ):
        tensor = make(hvd.rank())
        strides = tensor.stride()
        assert reduce(tensor) is tensor
        assert equal(tensor, total(make)) and tensor.stride() == strides
    for send in (lambda t: hvd.broadcast_(t, 0), lambda t: hvd.synchronize(hvd.broadcast_async_(t, 0))):
        tensor = make(hvd.rank())
        assert send(tensor) is tensor and equal(tensor, make(0))


def test_rows(make):
    given, size, me = make(hvd.rank()), hvd.size(), hvd.rank()
    everything = torch.cat([make(rank).detach().resolve_neg() for rank in range(size)])
    assert equal(hvd.allgather(given), everything)
    assert all(equal(result, everything) for result in hvd.grouped_allgather([given, given]))
    part = total(make).split([4 // size] * size)[me]
    assert equal(hvd.reducescatter(given, op=hvd.Sum), part)
    assert all(equal(result, part) for result in hvd.grouped_reducescatter([given, given], op=hvd.Sum))
    exchanged = torch.cat([make(rank).detach().resolve_neg().split(4 // size)[me] for rank in range(size)])
    assert equal(hvd.alltoall(given), exchanged)
    assert equal(hvd.alltoall(given, splits=[4 // size] * size)[0], exchanged)


def test_ranks_of_different_layouts_agree_about_indices():
    layouts = list(LAYOUTS.values())[2:4]
    given = numbers(hvd.rank()) if hvd.rank() == 0 else layouts[hvd.rank() % 2](numbers(hvd.rank()))
    expected = sum(numbers(0) if rank == 0 else layouts[rank % 2](numbers(rank)) for rank in range(hvd.size()))
    assert equal(hvd.allreduce(given, op=hvd.Sum), expected)
    assert equal(hvd.allreduce(torch.ones(1).expand(3, 5), op=hvd.Sum), torch.full((3, 5), float(hvd.size())))


def test_gradients_through_them():
    tensor = numbers(hvd.rank()).requires_grad_()
    last = tensor.to(memory_format=torch.channels_last)
    weights = numbers(0).transpose(0, 3)
    for collective in (lambda t: hvd.allreduce(t, op=hvd.Sum), lambda t: hvd.grouped_allreduce([t], op=hvd.Sum)[0]):
        tensor.grad = None
        (collective(last) * weights).sum().backward(retain_graph=True)
        assert torch.equal(tensor.grad, weights * hvd.size())
