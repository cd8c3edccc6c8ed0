"""Gradients through collectives."""

from __future__ import annotations

import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.ranks


def leaf(*shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape) + hvd.rank()).requires_grad_()


def test_allreduce():
    # The gradient that reaches rank r is r + 1.
    for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / hvd.size())):
        tensor = leaf(4)
        hvd.allreduce(tensor, op=op, prescale_factor=0.5).backward(torch.full((4,), hvd.rank() + 1.0).double())
        total = sum(rank + 1.0 for rank in range(hvd.size()))
        torch.testing.assert_close(tensor.grad, torch.full((4,), 0.5 * factor * total).double())


def test_allreduce_minimum_has_no_gradient():
    with pytest.raises(NotImplementedError):
        hvd.allreduce(leaf(2), op=hvd.Min).sum().backward()


def test_grouped_allreduce():
    tensors = [leaf(2), leaf(3, 1)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    (results[0].sum() + 2 * results[1].sum()).backward()
    assert (tensors[0].grad == hvd.size()).all()
    assert (tensors[1].grad == 2 * hvd.size()).all()


def test_allgather_gradient_is_this_ranks_slice_of_the_average():
    tensor = leaf(hvd.rank() + 1, 2)
    gathered = hvd.allgather(tensor)
    # Row i of the gathered tensor gets the gradient i on every rank: the average is i again.
    weights = torch.arange(len(gathered), dtype=torch.float64).unsqueeze(1)
    (gathered * weights).sum().backward()
    first = sum(rank + 1 for rank in range(hvd.rank()))
    expected = weights[first : first + hvd.rank() + 1].expand(-1, 2)
    torch.testing.assert_close(tensor.grad, expected)


def test_broadcast_gradient_goes_to_the_root():
    tensor, root = leaf(3), hvd.size() - 1
    hvd.broadcast(tensor, root).backward(torch.full((3,), hvd.rank() + 1.0).double())
    average = sum(rank + 1.0 for rank in range(hvd.size())) / hvd.size()
    assert tensor.grad.tolist() == [average if hvd.rank() == root else 0.0] * 3


def test_alltoall_gradient_goes_back():
    splits = [to + 1 for to in range(hvd.size())]
    tensor = leaf(sum(splits), 2)
    output, _ = hvd.alltoall(tensor, splits=splits)
    output.backward(torch.full_like(output, hvd.rank() + 10.0))
    expected = torch.cat([torch.full((rows, 2), to + 10.0).double() for to, rows in enumerate(splits)])
    torch.testing.assert_close(tensor.grad, expected)
    tensor = leaf(hvd.size())
    hvd.alltoall(tensor).sum().backward()
    assert tensor.grad.tolist() == [1.0] * hvd.size()
    tensor = leaf(2 * hvd.size())
    hvd.alltoall(tensor, splits=[1] * hvd.size())[0].sum().backward()  # the rest goes nowhere
    assert tensor.grad.tolist() == [1.0] * hvd.size() + [0.0] * hvd.size()


def test_reducescatter_gradient_is_gathered():
    for op, factor in ((hvd.Average, 1.0), (hvd.Sum, float(hvd.size()))):
        tensor = leaf(2 * hvd.size() + 1, 3)
        part = hvd.reducescatter(tensor, op=op)
        part.backward(torch.full_like(part, hvd.rank() + 1.0))
        lengths = [2 + (rank == 0) for rank in range(hvd.size())]
        expected = torch.cat([torch.full((n, 3), factor * (rank + 1)).double() for rank, n in enumerate(lengths)])
        torch.testing.assert_close(tensor.grad, expected)


def test_compression_is_differentiable():
    tensor = torch.ones(3, requires_grad=True)
    hvd.allreduce(tensor, compression=hvd.Compression.bf16).sum().backward()
    assert tensor.grad.dtype is torch.float32 and tensor.grad.tolist() == [1.0] * 3


def test_no_graph_without_gradients():
    tensor = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not hvd.allreduce(tensor).requires_grad
    assert not hvd.allreduce(tensor.detach()).requires_grad


def second_derivative_of_cube(collective, tensor: torch.Tensor) -> torch.Tensor:
    (first,) = torch.autograd.grad((collective(tensor) ** 3).sum(), tensor, create_graph=True)
    return torch.autograd.grad(first.sum(), tensor)[0]


def test_second_derivatives():
    tensor = leaf(3)
    mean = hvd.allreduce(tensor.detach())
    for collective in (hvd.allreduce, lambda t: hvd.grouped_allreduce([t])[0]):
        torch.testing.assert_close(second_derivative_of_cube(collective, tensor), 6 * mean)
    # The averages over ranks that Horovod's conventions ask for are taken twice.
    own = 6 * tensor.detach() / hvd.size()
    torch.testing.assert_close(second_derivative_of_cube(hvd.allgather, tensor), own)
    from_root = second_derivative_of_cube(lambda t: hvd.broadcast(t, 0), tensor)
    torch.testing.assert_close(from_root, own if hvd.rank() == 0 else torch.zeros_like(own))
