"""DistributedOptimizer(overlap_step=True): the same steps, of some parameters at a time."""

from __future__ import annotations

import functools
import pathlib

import pytest
import torch
from torch import nn

import hvd.torch as hvd
from timeouts import wait_until

pytestmark = pytest.mark.ranks

OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.01},
    "Adam": {"amsgrad": True},
    "AdamW": {"foreach": False},
    "NAdam": {},
    "RMSprop": {"momentum": 0.5},
    "Adafactor": {},
    "Rprop": {},
}


def make_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    model.unused = nn.Parameter(torch.ones(3))
    model.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    return model


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return (model(torch.randn(6, 5, generator=generator)) - 1).square().mean()


def values_after_training(kind: str, overlap_step: bool, **options) -> list[torch.Tensor]:
    model = make_model()
    groups = [{"params": model[:3].parameters()}, {"params": [*model[3:].parameters(), model.unused], "lr": 0.05}]
    plain = getattr(torch.optim, kind)(groups, lr=0.1, **OPTIMIZERS[kind])
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), overlap_step=overlap_step, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(options.get("backward_passes_per_step", 1)):
            loss_of(model, 10 * step + part).backward()
        optimizer.step()
        schedule.step()
    state = optimizer.state_dict()["state"]
    kept = [v for _, one in sorted(state.items()) for _, v in sorted(one.items()) if isinstance(v, torch.Tensor)]
    return [*(parameter.detach() for parameter in model.parameters()), *kept]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("options", [{}, {"num_groups": 2}, {"backward_passes_per_step": 2}], ids=str)
def test_same_bits_as_a_whole_step(kind, options):
    whole, in_parts = (values_after_training(kind, overlap, **options) for overlap in (False, True))
    assert len(whole) == len(in_parts)
    assert all(torch.equal(one, other) for one, other in zip(whole, in_parts))


def test_parameters_are_updated_while_other_gradients_travel(monkeypatch, tmp_path):
    """Rank 0's first part has been updated before the other ranks submit the rest."""
    begun = pathlib.Path(hvd.broadcast_object(str(tmp_path))) / "updated"
    sizes = []
    step = torch.optim.SGD.step

    @functools.wraps(step)
    def counted(self, closure=None):
        result = step(self, closure)
        sizes.append(sum(len(group["params"]) for group in self.param_groups))
        if hvd.rank() == 0:
            begun.touch()
        return result

    monkeypatch.setattr(torch.optim.SGD, "step", counted)
    model = nn.ModuleDict({"early": nn.Linear(4, 2), "late": nn.Linear(2, 2)})
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), overlap_step=True
    )
    model["early"](torch.ones(1, 4)).sum().backward()
    if hvd.rank() > 0:
        wait_until(begun.exists)
    model["late"](torch.ones(1, 2)).sum().backward()
    if hvd.rank() == 0 and hvd.size() > 1:
        assert not begun.exists()
    optimizer.step()
    assert sum(sizes) == 4 and (hvd.rank() > 0 or hvd.size() == 1 or len(sizes) > 1)
    assert [len(group["params"]) for group in optimizer.param_groups] == [4]
    assert not any(torch.equal(now, then) for now, then in zip(model.parameters(), before))


def test_a_step_that_raises_leaves_no_reduction_under_way(monkeypatch, tmp_path):
    """Rank 0's step raises at its first part, before the other ranks submit the rest."""
    raised = pathlib.Path(hvd.broadcast_object(str(tmp_path))) / "raised"
    step = torch.optim.SGD.step

    @functools.wraps(step)
    def raising(self, closure=None):
        if hvd.rank() == 0 and not raised.exists():
            raised.touch()
            raise ArithmeticError("in the step")
        return step(self, closure)

    monkeypatch.setattr(torch.optim.SGD, "step", raising)
    model = nn.ModuleDict({"early": nn.Linear(4, 2), "late": nn.Linear(2, 2)})
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), overlap_step=True
    )
    for attempt in range(3):
        optimizer.zero_grad()
        model["early"](torch.ones(1, 4)).sum().backward()
        if hvd.rank() > 0 and attempt == 0:
            wait_until(raised.exists)
        model["late"](torch.ones(1, 2)).sum().backward()
        if hvd.rank() == 0 and attempt == 0:
            with pytest.raises(ArithmeticError):
                optimizer.step()
            assert [len(group["params"]) for group in optimizer.param_groups] == [4]
        else:
            optimizer.step()


def test_a_failed_reduction_ends_the_step_and_frees_all_names():
    for attempt in range(2):
        model = make_model()
        extra = nn.Parameter(torch.ones(2 + (hvd.rank() if attempt == 0 else 0)))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*model.parameters(), extra], lr=0.1), overlap_step=True)
        (loss_of(model, attempt) + extra.sum()).backward()
        if attempt == 0 and hvd.size() > 1:
            with pytest.raises(hvd.HorovodInternalError, match="disagree"):
                optimizer.step()
        else:
            optimizer.step()
    assert len({repr([p.tolist() for p in one.parameters()]) for one in hvd.allgather_object(model)}) == 1


def test_gradients_are_clipped_between_synchronize_and_the_step():
    results = []
    for overlap in (False, True):
        model = make_model()
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), overlap_step=overlap)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if step < 2:
                optimizer.synchronize()
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
        results.append([parameter.detach() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results))


def test_hooks_see_whole_steps():
    model, calls = make_model(), []
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), overlap_step=True)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    loss_of(model, 0).backward()
    optimizer.step()
    assert calls == ["before", "after"]


def test_optimizers_that_keep_something_of_a_whole_step_are_refused():
    class Counting(torch.optim.SGD):
        pass

    for kind in (Counting, torch.optim.LBFGS):
        with pytest.raises(ValueError, match="not known to update each parameter by itself"):
            hvd.DistributedOptimizer(kind(make_model().parameters(), lr=0.1), overlap_step=True)
