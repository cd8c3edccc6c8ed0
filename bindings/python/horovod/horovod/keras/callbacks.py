"""`hvd.keras.callbacks`, with the order that BestModelCheckpoint's arguments have here."""

from __future__ import annotations

from typing import Any

import hvd.keras.callbacks as _hvd
from hvd.keras.callbacks import *  # noqa: F403

__all__ = list(_hvd.__all__)


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
