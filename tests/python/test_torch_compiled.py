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
    "grouped_allreduce": lambda x: weighted(hvd.grouped_allreduce([x, x[1:] ** 2], op=hvd.Sum)),
    "grouped_allgather": lambda x: weighted(hvd.grouped_allgather([x, x[1:] ** 2])),
    "grouped_reducescatter": lambda x: weighted(hvd.grouped_reducescatter([x[1:], x**2], op=hvd.Sum)),
    "complex": lambda x: hvd.allreduce(torch.complex(x, x * 2).conj(), op=hvd.Sum).imag ** 2,
    "in place": lambda x: in_place(x.detach() * 2) * x,
}


def weighted(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([(tensor**2 * (i + 1 + hvd.rank_here)).flatten() for i, tensor in enumerate(tensors)])


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = hvd.allreduce_(x, op=hvd.Sum) + 1
    hvd.broadcast_(y, 1, name="compiled in place")
    first, second = hvd.grouped_allreduce_([y, x], op=hvd.Sum)
    return first * 3 + second + y + x


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
    "allreduce_": (None, hvd.Average, 1.0, 1.0, 0),
    "broadcast_": (1, None, 0),
    "grouped_allreduce": (None, hvd.Average, 1.0, 1.0, 0),
    "grouped_allreduce_": (None, hvd.Average, 1.0, 1.0, 0),
    "grouped_allgather": (None, 0),
    "grouped_reducescatter": (None, hvd.Sum, 1.0, 1.0, 0),
}


@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", OPERATORS)
def test_torch_finds_the_operators_right(name):
    given = local_input().detach() if name.endswith("_") else local_input()
    given = [given, given.detach() + 1] if name.startswith("grouped") else given
    torch.library.opcheck(getattr(torch.ops.hvd, name).default, (given, *OPERATORS[name]))


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


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "capturable": lambda p: torch.optim.Adam(p, lr=0.01, capturable=True),
    "adasum": lambda p: torch.optim.SGD(p, lr=0.1),
}


def small_model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def steps(kind: str, wraps: bool, compiled: str | None) -> tuple[list[torch.Tensor], int, int]:
    """The parameters after three steps, and how many graph breaks and graphs Dynamo has counted. `compiled`: what of
    the step."""
    from torch._dynamo.utils import counters  # here: collecting tests need not import the compiler

    torch._dynamo.reset()
    counters.clear()
    model = small_model()
    optimizer = OPTIMIZERS[kind](model.parameters())
    if wraps:
        op = hvd.Adasum if kind == "adasum" else hvd.Average
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=op)

    def update() -> None:
        optimizer.step()

    update = torch.compile(update, backend="eager") if compiled == "update" else update

    def whole(rows: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(rows).square().sum()
        loss.backward()
        update()
        return loss

    step = torch.compile(whole, backend="eager") if compiled == "whole" else whole
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(3):
        step(torch.randn(5, 4, generator=generator))
    breaks, graphs = sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
    return [parameter.detach() for parameter in model.parameters()], breaks, graphs


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    "compiled, kind",
    [
        ("whole", "sgd"),
        ("update", "capturable"),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in [("whole", "fused"), ("update", "foreach")]),
        pytest.param("whole", "adasum", marks=pytest.mark.long),
    ],
)
def test_a_compiled_step_has_the_graphs_of_the_plain_optimizer(compiled, kind):
    result, *counted = steps(kind, True, compiled)
    assert counted == list(steps(kind, False, compiled)[1:]) and counted[0] > 0
    eager = steps("foreach" if kind == "capturable" else kind, True, None)[0]
    torch.testing.assert_close(result, eager, rtol=1e-5, atol=1e-6)


@pytest.mark.ranks(2)
def test_a_functional_step_is_one_graph():
    model = small_model()
    whole = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))

    def loss(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (rows,)).square().mean()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> dict[str, torch.Tensor]:
        gradients = torch.func.grad(loss)(parameters, rows)
        reduced = hvd.grouped_allreduce(list(gradients.values()), name="functional")
        return {name: parameters[name] - 0.1 * gradient for name, gradient in zip(gradients, reduced)}

    trained = expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for _ in range(2):
        trained = step(trained, whole[3 * hvd.rank() :][:3])
        gradients = torch.func.grad(loss)(expected, whole)
        expected = {name: expected[name] - 0.1 * gradient for name, gradient in gradients.items()}
    torch.testing.assert_close(trained, expected)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("setting", ["trace_autograd_ops", "compiled_autograd"])
def test_a_compiled_backward_pass_is_reduced_in_the_step(setting, monkeypatch):
    """No hook can wait within it."""
    if not hasattr(torch._dynamo.config, setting):
        pytest.skip(f"this release of PyTorch has no {setting}")
    expected = steps("sgd", True, None)[0]
    monkeypatch.setattr(torch._dynamo.config, setting, True)
    model = small_model()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    torch._dynamo.reset()

    @torch.compile(fullgraph=setting == "trace_autograd_ops", backend="eager")
    def backward(rows: torch.Tensor) -> torch.Tensor:
        loss = model(rows).square().sum()
        loss.backward()
        return loss.detach()

    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(3):
        optimizer.zero_grad()
        backward(torch.randn(5, 4, generator=generator))
        assert len({repr(local) for local in hvd.allgather_object(model[0].bias.grad.tolist())}) == 2
        optimizer.step()
    torch.testing.assert_close([parameter.detach() for parameter in model.parameters()], expected, rtol=1e-5, atol=1e-6)
    torch._dynamo.reset()


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
