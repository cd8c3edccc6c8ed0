"""What the distributed optimizers are made by: further behaviour in front of any optimizer's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    Behaviour = torch.optim.Optimizer  # which comes after it in the bases
else:
    Behaviour = object


def subclassed(optimizer: torch.optim.Optimizer, behaviour: type[Behaviour]) -> Any:
    """An optimizer with the state and hyperparameters of the one given, which it shares, and further behaviour; of a
    subclass of its class that has the same name."""
    cls: Any = type(optimizer.__class__.__name__, (behaviour, optimizer.__class__), {})
    wrapped = cls.__new__(cls)
    # A scheduler made before has put its own `step` into the instance, which is bound to the optimizer given.
    wrapped.__dict__.update((key, value) for key, value in optimizer.__dict__.items() if key != "step")
    wrapped._given = optimizer
    return wrapped


@contextmanager
def state_in_place(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Around what gives an optimizer new groups and state: they are put into those that it had, which others share with
    it: the optimizer that it was made of, or one made of it, and schedulers."""
    groups, state = optimizer.param_groups, optimizer.state
    yield
    for group, loaded in zip(groups, optimizer.param_groups):
        if group is not loaded:
            group.clear()
            group.update(loaded)
    if state is not optimizer.state:
        state.clear()
        state.update(optimizer.state)
    optimizer.param_groups, optimizer.state = groups, state
