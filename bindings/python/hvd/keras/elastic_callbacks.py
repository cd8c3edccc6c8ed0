"""Callbacks that keep a state of elastic training up to date during `model.fit()`."""

from __future__ import annotations

from typing import Any

from hvd.elastic import State
from hvd.keras.framework import ForEitherKeras, keras

Logs = dict[str, Any]


class CommitStateCallback(ForEitherKeras, keras.callbacks.Callback):
    """Commits the state every so many batches, and at the end of an epoch. It comes last in the list, so that what the
    others have changed is in it.

    Args:
        state: what is committed.
        batches_per_commit: more of them cost less time, and lose more if the job breaks.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class UpdateBatchStateCallback(ForEitherKeras, keras.callbacks.Callback):
    """Keeps `state.batch`, the number of batches of this epoch that are done. An epoch that was interrupted is to go on
    with what is left of it: `fit(data.skip(state.batch), ...)`; what was done before is counted in. Nothing is left
    if it was interrupted between its last batch and its end: then begin the next one instead of calling `fit`.

    Args:
        state: has an attribute `batch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done_before = 0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._done_before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self.state.batch = self._done_before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(ForEitherKeras, keras.callbacks.Callback):
    """Keeps `state.epoch`, the number of epochs that are done. `fit()` may be told to make what is left
    (epochs=total - state.epoch), or where to begin (initial_epoch=state.epoch, epochs=total).

    Args:
        state: has an attribute `epoch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._offset: int | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._offset = None

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        if self._offset is None:
            self._offset = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.state.epoch = (self._offset or 0) + epoch + 1
