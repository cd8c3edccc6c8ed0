"""What the distributed optimizers are made by: further behaviour in front of any optimizer's own."""

from __future__ import annotations

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
    return wrapped
