"""The models that `hvd bench --training` and tests/bench/training.py train. PyTorch is imported when one is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Workload:
    """A model, and the shape of its batches."""

    title: str
    make: Callable[[], torch.nn.Module]
    batch: int
    shape: tuple[int, ...]  # of one input
    classes: int = 10

    def draw(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of a step."""
        import torch

        inputs = torch.randn(self.batch, *self.shape, generator=generator)
        return inputs, torch.randint(self.classes, (self.batch,), generator=generator)


def _mlp() -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def _convolutions() -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(
        *[nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()],
        *[nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10)],
    )


def _linear() -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)])


WORKLOADS = {
    "mlp": Workload("784-512-512-10", _mlp, 32, (784,)),
    "convolutions": Workload("convolutions 3-32-64-64", _convolutions, 16, (3, 32, 32)),
    "linear": Workload("16 Linear of 1024", _linear, 4, (1024,), 1024),
}
