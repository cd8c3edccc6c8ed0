"""Collectives within torch.compile: no graph break, the same values and gradients as without it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import hvd.torch as hvd

FUNCTIONS = {
    "allreduce": lambda x: hvd.allreduce(x * 2, name="compiled").sin() + hvd.allreduce(x, op=hvd.Sum),
    "factors": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
    "compression": lambda x: hvd.allreduce(x, compression=hvd.Compression.bf16),
    "allgather": lambda x: hvd.allgather(x) ** 2 * (hvd.rank_here + 1),
    "broadcast": lambda x: hvd.broadcast(x, 1) ** 2 * (hvd.rank_here + 1),
    "reducescatter": lambda x: hvd.reducescatter(x[1:], op=hvd.Sum) ** 2 * (hvd.rank_here + 1),
    "alltoall": lambda x: hvd.alltoall(x) ** 2 * (hvd.rank_here + 1),
}


def local_input() -> torch.Tensor:
    torch.manual_seed(hvd.rank())
    return torch.randn(2 * hvd.size(), 3, requires_grad=True)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_without_a_graph_break(function, monkeypatch):
    monkeypatch.setattr(hvd, "rank_here", hvd.rank(), raising=False)  # a constant, of a module that is compiled over
    torch._dynamo.reset()
    eager, compiled = local_input(), local_input()
    expected = FUNCTIONS[function](eager)
    result = torch.compile(FUNCTIONS[function], fullgraph=True, backend="aot_eager")(compiled)
    assert result.equal(expected)
    expected.sum().backward()
    result.sum().backward()
    assert compiled.grad.equal(eager.grad)


@pytest.mark.ranks(4)
def test_process_sets():
    odd = hvd.add_process_set([1, 3])
    try:
        if odd.included():
            compiled = torch.compile(
                lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=odd) + hvd.allgather(x, process_set=odd)[:2],
                fullgraph=True,
                backend="aot_eager",
            )
            assert compiled(torch.full((2,), float(hvd.rank()))).tolist() == [5, 5]
            assert compiled(torch.full((2,), float(hvd.rank()))).tolist() == [5, 5]
    finally:
        hvd.remove_process_set(odd)
    if odd.included():
        with pytest.raises(ValueError, match="not registered"):
            torch.ops.hvd.allreduce(torch.ones(2), None, hvd.Sum, 1.0, 1.0, 12345)


@pytest.mark.ranks(2)
def test_rows_that_differ():
    gather = torch.compile(lambda x: hvd.allgather(x), fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match="as many rows on every rank"):
        gather(torch.ones(2 + hvd.rank(), 2))
    assert hvd.allgather(torch.ones(2 + hvd.rank(), 2)).shape == (5, 2)


@pytest.mark.ranks(2)
def test_gradients_of_what_has_none():
    largest = torch.compile(lambda x: hvd.allreduce(x, op=hvd.Max), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert largest(torch.tensor([float(hvd.rank())])).tolist() == [1]
    with pytest.raises(NotImplementedError, match="only averages and sums"):
        largest(local_input()).sum().backward()


OPERATORS = {
    "allreduce": (None, hvd.Average, 1.0, 1.0, 0),
    "allgather": (None, 0),
    "broadcast": (1, None, 0),
    "reducescatter": (None, hvd.Sum, 1.0, 1.0, 0),
    "alltoall": (None, 0),
}


@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", OPERATORS)
def test_torch_finds_the_operators_right(name):
    torch.library.opcheck(getattr(torch.ops.hvd, name).default, (local_input(), *OPERATORS[name]))


def trained(model: nn.Module, number: int, backend: str | None) -> list[torch.Tensor]:
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    run = torch.compile(model, backend=backend) if backend else model
    torch.manual_seed(number + hvd.rank())
    for _ in range(3):
        optimizer.zero_grad()
        run(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def compiled_equals_eager(backend: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    compiled, eager = trained(copy.deepcopy(model), 1, backend), trained(model, 1, None)
    for one, other in zip(compiled, eager):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.ranks(2)
def test_a_compiled_model_with_the_hooks_of_an_optimizer():
    compiled_equals_eager("aot_eager")


@pytest.mark.long
@pytest.mark.ranks(2)
def test_inductor():
    compiled_equals_eager("inductor")
    eager, compiled = local_input(), local_input()
    expected = FUNCTIONS["allreduce"](eager)
    result = torch.compile(FUNCTIONS["allreduce"], fullgraph=True)(compiled)
    expected.sum().backward()
    result.sum().backward()
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(compiled.grad, eager.grad)
