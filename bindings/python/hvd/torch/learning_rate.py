"""Learning rates for large batches as a scheduler of PyTorch. `hvd.learning_rate` says what is calculated, and why."""

from __future__ import annotations

from typing import Any

import torch

from hvd import basics
from hvd.learning_rate import LinearScaling, Schedule


class LinearScalingLR(torch.optim.lr_scheduler.LRScheduler):
    """Linear scaling with gradual warm-up (Goyal et al., 2017, arXiv:1706.02677) of an optimizer's learning rates.

    Each parameter group's own rate is taken to be right for the reference batch. It is multiplied by a factor that
    rises from 1 to `factor` over the first `warmup_steps` calls of `step()`, and stays there::

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # 0.1 is right for one rank's batch
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        scheduler = hvd.LinearScalingLR(optimizer, warmup_steps=5 * len(loader))
        for inputs, labels in loader:
            ...
            optimizer.step()
            scheduler.step()  # after each step, not each epoch

    `state_dict()` holds how far it has come and the groups' own rates, but neither the factor nor the decay: loaded
    into a scheduler of a job of another size it goes on with that job's factor, from the next `step()` on.

    Args:
        optimizer: of PyTorch, or a DistributedOptimizer.
        warmup_steps: 0: scaled from the start. The paper takes five epochs.
        decay: called with the number of steps made so far, returns what the scaled rate is multiplied by; by default 1.
        factor: how many times the reference batch all ranks' batches of a step are together; by default the number of
            ranks.
        last_epoch: as with every scheduler of PyTorch; of steps.

    Raises:
        ValueError: as `hvd.learning_rate.LinearScaling`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup_steps: float = 0,
        decay: Schedule | None = None,
        factor: float | None = None,
        last_epoch: int = -1,
    ) -> None:
        self.multiplier = LinearScaling(decay or 1.0, warmup_steps, basics.size() if factor is None else factor)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        multiplier = self.multiplier(self.last_epoch)
        return [rate * multiplier for rate in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().state_dict().items() if key != "multiplier"}
