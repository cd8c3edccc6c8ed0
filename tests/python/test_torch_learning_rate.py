"""Linear scaling with warm-up as a scheduler of PyTorch."""

from __future__ import annotations

import pickle

import pytest
import torch

import hvd.torch as hvd
from hvd.learning_rate import LinearScaling
from test_learning_rate import halved_every_ten


def two_groups(rates):
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in rates]
    return torch.optim.SGD([{"params": [weight], "lr": rate} for weight, rate in zip(weights, rates)])


def rates_of(optimizer, scheduler, steps):
    rates = []
    for _ in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("decay", [None, halved_every_ten])
def test_scheduler_of_torch(decay):
    optimizer = two_groups([0.1, 0.02])
    scheduler = hvd.LinearScalingLR(optimizer, warmup_steps=4, decay=decay, factor=3)
    wanted = [[LinearScaling(decay or 1.0, 4, 3)(step) * rate for rate in (0.1, 0.02)] for step in range(25)]
    assert rates_of(optimizer, scheduler, 25) == [pytest.approx(rates) for rates in wanted]


def test_a_scheduler_of_torch_goes_on_with_its_own_factor():
    optimizer = two_groups([0.1])
    scheduler = hvd.LinearScalingLR(optimizer, warmup_steps=4, factor=2, decay=lambda step: 1.0)
    rates_of(optimizer, scheduler, 10)
    saved = pickle.dumps((optimizer.state_dict(), scheduler.state_dict()))

    optimizer = two_groups([0.1])
    scheduler = hvd.LinearScalingLR(optimizer, warmup_steps=4, factor=5)
    optimizer_state, scheduler_state = pickle.loads(saved)
    optimizer.load_state_dict(optimizer_state)
    scheduler.load_state_dict(scheduler_state)
    assert scheduler.last_epoch == 10
    assert rates_of(optimizer, scheduler, 3) == [pytest.approx([rate]) for rate in (0.2, 0.5, 0.5)]


@pytest.mark.ranks(2)
def test_the_factor_is_the_number_of_ranks():
    assert LinearScaling(0.1, 4)(4) == pytest.approx(0.1 * hvd.size())
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=[("weight", weight)])
    scheduler = hvd.LinearScalingLR(optimizer, warmup_steps=2)
    rates = []
    for _ in range(4):
        before = weight.item()
        weight.sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        rates.append(before - weight.item())
    scale = hvd.size()
    assert rates == pytest.approx([0.1, 0.1 * (1 + scale) / 2, 0.1 * scale, 0.1 * scale], abs=1e-6)
