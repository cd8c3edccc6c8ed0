"""broadcast_parameters, broadcast_optimizer_state, and Python objects."""

from __future__ import annotations

import pickle
from typing import NamedTuple

import pytest
import torch
from torch import nn

import hvd.torch as hvd
from hvd.torch import functions

pytestmark = pytest.mark.ranks


def same_everywhere(value: object) -> bool:
    return len({repr(v) for v in hvd.allgather_object(value)}) == 1


def make_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))


def as_lists(module: nn.Module) -> dict[str, list]:
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("what", ["state_dict", "named_parameters", "parameters"])
def test_broadcast_parameters(what):
    root = hvd.size() - 1
    model, expected = make_model(hvd.rank()), make_model(root)
    hvd.broadcast_parameters(getattr(model, what)(), root_rank=root)
    assert as_lists(model) == as_lists(expected)


def test_broadcast_parameters_of_other_strides():
    model = make_model(hvd.rank()).to(memory_format=torch.channels_last)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert as_lists(model) == as_lists(make_model(0))


def test_broadcast_parameters_of_something_else():
    for wrong in (3, torch.ones(3), {"a": 3}):
        with pytest.raises(ValueError):
            hvd.broadcast_parameters(wrong, root_rank=0)


OPTIMIZERS = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, nesterov=True),
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr, amsgrad=True),
    "adagrad": lambda p, lr: torch.optim.Adagrad(p, lr=lr),
    "dampened": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, dampening=0.1),
    "decayed": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=0.1),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr=torch.tensor(lr), betas=(0.8, 0.9)),
    "adamax": lambda p, lr: torch.optim.Adamax(p, lr=lr),
    "adadelta": lambda p, lr: torch.optim.Adadelta(p, lr=lr, weight_decay=0.1),
    "asgd": lambda p, lr: torch.optim.ASGD(p, lr=lr, t0=1),
    "nadam": lambda p, lr: torch.optim.NAdam(p, lr=lr),
    "radam": lambda p, lr: torch.optim.RAdam(p, lr=lr, weight_decay=0.1),
    "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr=lr, momentum=0.9, centered=True),
    "rprop": lambda p, lr: torch.optim.Rprop(p, lr=lr),
}


def stepped(kind: str, rank: int, steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(rank + 1.0)
    optimizer = OPTIMIZERS[kind](model.parameters(), 0.1 * (rank + 1))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "distributed"])
@pytest.mark.parametrize("others_have_state", [False, True], ids=["empty", "filled"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_broadcast_optimizer_state(kind, others_have_state, wrapped):
    root = 0
    model, optimizer = stepped(kind, hvd.rank(), steps=3 if hvd.rank() == root or others_have_state else 0)
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=root)
    _, expected = stepped(kind, root, steps=3)
    assert repr(optimizer.state_dict()) == repr(expected.state_dict())
    # And it is usable: one more step makes no difference between ranks.
    hvd.broadcast_parameters(model.parameters(), root_rank=root)
    optimizer.zero_grad()
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    assert same_everywhere([p.tolist() for p in model.parameters()])


def test_broadcast_optimizer_state_of_a_fresh_optimizer():
    """State is there afterwards, and the next steps are those of an optimizer that was never touched."""
    for kind in OPTIMIZERS:
        model, optimizer = stepped(kind, hvd.rank(), steps=0)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        before = [parameter.tolist() for parameter in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert (len(optimizer.state) == 2) == (kind not in ("sgd", "dampened")), kind
        assert before == [parameter.tolist() for parameter in model.parameters()]
        assert all(parameter.grad is None for parameter in model.parameters())
        expected, plain = stepped(kind, 0, steps=0)
        for _ in range(3):
            for some, their in ((model, optimizer), (expected, plain)):
                their.zero_grad()
                some(torch.ones(4, 3)).square().mean().backward()
                their.step()
        torch.testing.assert_close(
            list(model.parameters()), list(expected.parameters()), rtol=1e-5, atol=1e-6, msg=kind
        )


def test_state_is_received_on_the_roots_kind_of_device_and_never_twice_in_the_same_memory():
    weight = nn.Parameter(torch.ones(3, device="meta"))  # stands for a GPU
    there, shared = torch.zeros(3, device="meta"), torch.zeros(2, 3)
    places = functions._Places(torch.optim.Adam([weight, nn.Parameter(shared[0])]))
    for given, present, is_taken in [
        (torch.ones(3, device="meta"), there, True),
        (torch.ones(3, device="meta"), None, False),
        (torch.ones(3), there, False),  # such as Adam's steps
        (torch.ones(3), shared[1], False),  # a parameter's memory
    ]:
        place = places.of(functions._Sent(given), present)
        assert (place is present) == is_taken and (place.device, place.shape) == (given.device, given.shape)

    class OnGpu(nn.Parameter):
        is_cpu = False

    places = functions._Places(torch.optim.Adam([OnGpu(shared[0])]))
    assert places.of(functions._Sent(shared[1]), shared[1]) is not shared[1]
    own = torch.zeros(2, 3)
    assert [places.of(functions._Sent(row), row) is row for row in own] == [True, False]


def test_broadcast_optimizer_state_of_lbfgs():
    with pytest.raises(ValueError, match="the state of LBFGS belongs to each rank's own line search"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(nn.Linear(1, 1).parameters()), root_rank=0)


class Moments(NamedTuple):
    first: torch.Tensor
    steps: int


class WithMoments(torch.optim.SGD):
    """Keeps what it knows of a parameter in a named tuple, as optimizers of other libraries do."""

    def keep(self, value: float) -> None:
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["moments"] = Moments(torch.full((2,), value), int(value))


def test_broadcast_optimizer_state_in_a_named_tuple():
    optimizer = WithMoments(nn.Linear(1, 1).parameters(), lr=0.1)
    optimizer.keep(hvd.rank() + 1.0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for state in optimizer.state.values():
        assert type(state["moments"]) is Moments
        assert state["moments"].first.tolist() == [1.0, 1.0] and state["moments"].steps == 1


class NeedsClosure(torch.optim.SGD):
    def step(self, closure):
        return super().step(closure)


def test_broadcast_optimizer_state_of_an_optimizer_that_needs_a_closure():
    optimizer = NeedsClosure(nn.Linear(1, 1).parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.1 and not optimizer.state


def test_broadcast_object():
    for root in range(hvd.size()):
        for name in (None, "thing"):
            mine = {"rank": hvd.rank(), "list": [1, 2, "three"], "call": (lambda x: x + 1)}
            received = hvd.broadcast_object(mine if hvd.rank() == root else None, root_rank=root, name=name)
            assert received["rank"] == root and received["list"] == [1, 2, "three"] and received["call"](1) == 2
    assert hvd.broadcast_object(None) is None


def test_broadcast_object_of_a_megabyte():
    assert hvd.broadcast_object(b"x" * 1_000_000 if hvd.rank() == 0 else None) == b"x" * 1_000_000


class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("it has a lock")


def test_an_object_that_cannot_be_pickled_is_an_error_on_every_rank():
    last = hvd.size() - 1
    mine = Unpicklable() if hvd.rank() == last else "fine"
    for exchange in (
        lambda: hvd.broadcast_object(mine, root_rank=last),
        lambda: hvd.allgather_object(mine),
    ):
        with pytest.raises(pickle.PicklingError, match=f"rank {last} cannot pickle .*RuntimeError: it has a lock"):
            exchange()
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def test_allgather_object():
    for name in (None, "things"):
        gathered = hvd.allgather_object(["rank"] * hvd.rank(), name=name)
        assert gathered == [["rank"] * rank for rank in range(hvd.size())]
