"""Linear learning-rate scaling with gradual warm-up: what a rate becomes when a batch becomes k times as large.

P. Goyal, P. Dollár, R. Girshick, P. Noordhuis, L. Wesolowski, A. Kyrola, A. Tulloch, Y. Jia, K. He: "Accurate, Large
Minibatch SGD: Training ImageNet in 1 Hour", 2017, arXiv:1706.02677, sections 2.1 and 2.2.

One step on a batch k times as large stands for k steps on the small one. While the weights change little, the k
gradients of those are nearly the gradients at one place, so that their sum is k times the large batch's mean: the rate
is multiplied by k. At the beginning the weights change fast and this does not hold; there the rate rises in equal steps
from the small batch's to k times as much.

No framework is needed here. `hvd.torch.LinearScalingLR` and `hvd.keras.schedules.LinearScaling` are this for PyTorch
and Keras; optax takes a LinearScaling as a schedule as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hvd import basics

Schedule = Callable[[Any], Any]


@dataclass(frozen=True)
class LinearScaling:
    """A schedule: called with the number of steps made so far, it returns the learning rate of the next one.

    >>> rate = LinearScaling(0.1, warmup_steps=5 * steps_per_epoch)  # hvd.init() was called: scaled by the ranks
    >>> optimizer = optax.sgd(rate, momentum=0.9)

    It calculates and decides nothing, so the step may be a number, or an array or tensor of NumPy, JAX, PyTorch or
    TensorFlow, also in a compiled function. It can be pickled if `rate` can.

    Args:
        rate: the learning rate that is right for the reference batch, often that of one rank: a number, or a schedule
            of its own, which is called with the same step and multiplied. So a decay goes on below the warm-up.
        warmup_steps: the rate rises over that many steps, the first of which has the unscaled rate; 0: scaled from the
            start. The paper takes five epochs.
        factor: how many times the reference batch all ranks' batches of a step are together; by default the number of
            ranks, as it is now: for ranks that have a reference batch each. After a change of the job's size, make
            another schedule.

    Raises:
        ValueError: `factor` is not positive, `warmup_steps` is negative, or there is no factor and hvd is not
            initialised.
    """

    rate: float | Schedule
    warmup_steps: float = 0
    factor: float = field(default_factory=basics.size)

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise ValueError(f"a learning rate cannot be scaled by {self.factor}: the factor must be positive")
        if not self.warmup_steps >= 0:
            raise ValueError(f"a warm-up cannot take {self.warmup_steps} steps: the number must be 0 or more")

    def multiplier(self, step: Any) -> Any:
        """What the reference batch's rate is multiplied by after `step` steps: 1 at first, `factor` in the end."""
        remaining = self.warmup_steps - step / 1  # in floating point, which TensorFlow does not mix with integers
        remaining = (remaining + abs(remaining)) / 2  # not below zero: exact, and without a branch
        return self.factor - (self.factor - 1) * remaining / (self.warmup_steps or 1)

    def __call__(self, step: Any) -> Any:
        rate = self.rate(step) if callable(self.rate) else self.rate
        return rate * self.multiplier(step)
