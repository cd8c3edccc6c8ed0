"""`hvd.keras.callbacks`, with the order that BestModelCheckpoint's arguments have here, and what a number is that
LearningRateScheduleCallback is given."""

from __future__ import annotations

import functools
from typing import Any, Callable

import hvd.keras.callbacks as _hvd
from hvd.keras.callbacks import *  # noqa: F403

__all__ = list(_hvd.__all__)


class LearningRateScheduleCallback(_hvd.LearningRateScheduleCallback):  # type: ignore[no-redef]
    """As `hvd.keras.callbacks.LearningRateScheduleCallback`; but a number as the multiplier is to the power of the
    epochs since start_epoch."""

    @functools.wraps(_hvd.LearningRateScheduleCallback.__init__)  # type: ignore[misc]
    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        function = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        super().__init__(initial_lr, function, start_epoch, *args, **kwargs)


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
