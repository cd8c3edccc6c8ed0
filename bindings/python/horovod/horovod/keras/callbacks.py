"""`hvd.keras.callbacks`, with the order that BestModelCheckpoint's arguments have here, and what a number is that
LearningRateScheduleCallback is given."""

from __future__ import annotations

from typing import Any, Callable

import hvd.keras.callbacks as _hvd
from hvd.keras.callbacks import *  # noqa: F403

__all__ = list(_hvd.__all__)


class LearningRateScheduleCallback(_hvd.LearningRateScheduleCallback):  # type: ignore[no-redef]
    """As `hvd.keras.callbacks.LearningRateScheduleCallback`; but a number as the multiplier is to the power of the
    epochs since start_epoch."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__(
            initial_lr,
            multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch),
            start_epoch,
            end_epoch,
            staircase,
            momentum_correction,
            steps_per_epoch,
        )


class BestModelCheckpoint(_hvd.BestModelCheckpoint):  # type: ignore[no-redef]
    """As `hvd.keras.callbacks.BestModelCheckpoint`, whose further arguments it takes by keyword."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        **further: Any,
    ) -> None:
        super().__init__(monitor=monitor, verbose=verbose, mode=mode, save_freq=save_freq, **further)
