"""Callbacks for `model.fit()`. Unless one says otherwise, all ranks must use it."""

from __future__ import annotations

import os
from numbers import Number
from typing import Any, Callable

import numpy as np

from hvd import basics
from hvd.keras.elastic_callbacks import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from hvd.keras.framework import ForEitherKeras, backend, keras, native
from hvd.keras.functions import are_built, broadcast_variables, slots_of, state_of
from hvd.objects import allgather_object

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]

Logs = dict[str, Any]


class BroadcastGlobalVariablesCallback(ForEitherKeras, keras.callbacks.Callback):
    """Gives every rank the root's variables, once: those of the model, seeds included, and those of the optimizer. So
    ranks begin alike, from random weights or from a checkpoint that only the root has read.

    It happens when training begins, or after the first batch, if the model or the optimizer of some rank has no
    variables before that.

    Args:
        root_rank: the rank whose values everybody gets.
        device: not needed; for scripts that give it.
        local_variables: a variable, or several, that stay each rank's own, of which ranks may have any; the optimizer's
            slots for them do so, too.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        alone = hasattr(local_variables, "assign")  # a variable, and no iterable of them
        self._local: list[Any] = [local_variables] if alone else list(local_variables or ())

    def register_local_var(self, var: Any) -> None:
        """Adds a variable to those that stay each rank's own."""
        self._local.append(var)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not self.broadcast_done and all(allgather_object(are_built(self.model))):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        local = [*self._local, *slots_of(self.model.optimizer, self._local)]
        excluded = {id(native(variable)) for variable in local}
        variables = [variable for variable in state_of(self.model) if id(native(variable)) not in excluded]
        broadcast_variables(variables, self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(ForEitherKeras, keras.callbacks.Callback):
    """Averages what an epoch's metrics are over the ranks. Callbacks that come after it in the list (ModelCheckpoint,
    EarlyStopping, ReduceLROnPlateau) see the averages, and decide alike on every rank.

    What only some ranks measure, as where one of them validates, is averaged over those.

    Args:
        device: not needed; for scripts that give it.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is None:
            logs = {}
        own = {name: float(value) for name, value in logs.items() if _is_number(value)}
        everywhere = allgather_object(own) if basics.size() > 1 else [own]
        for name in sorted(set().union(*everywhere)):
            measured = [of_rank[name] for of_rank in everywhere if name in of_rank]
            logs[name] = sum(measured) / len(measured)


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) or getattr(value, "shape", None) == ()


class LearningRateScheduleCallback(ForEitherKeras, keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr` times a multiplier, which depends on the epoch.

    Where the optimizer has momentum, what it has gathered are steps of the old learning rate. With momentum_correction
    it is multiplied by the ratio of the new one to the old one, as arXiv 1706.02677, section 3, has it. The slots are
    multiplied, once for each change, and not the momentum itself, which is a constant of the compiled training step.

    Args:
        initial_lr: what is multiplied.
        multiplier: a number, or a function of the epoch, counted from 0.
        start_epoch: the first epoch with this multiplier.
        end_epoch: the first one without it again. None: there is none.
        staircase: the learning rate changes at the beginning of epochs; else at every batch, and the function gets
            fractions of epochs.
        momentum_correction: as above.
        steps_per_epoch: batches in an epoch; needed without staircase where Keras does not know it.
    """

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
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed: the learning rate that is multiplied")
        self.initial_lr = initial_lr
        self.multiplier: Callable[[float], float] = multiplier if callable(multiplier) else lambda _: multiplier
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not self.staircase and not self._steps():
            raise ValueError("Keras does not know how many batches an epoch has: give steps_per_epoch")

    def _steps(self) -> int | None:
        return self.steps_per_epoch or (self.params or {}).get("steps")

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if not self.staircase:
            self._adjust(self.current_epoch + batch / float(self._steps() or 1))
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs["lr"] = learning_rate_of(self.model.optimizer)

    def _adjust(self, epoch: float) -> None:
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        old, new = learning_rate_of(optimizer), self.initial_lr * self.multiplier(epoch)
        if new == old:
            return
        set_learning_rate(optimizer, new)
        if self.momentum_correction and old > 0 and getattr(optimizer, "momentum", None):
            for slot in _momenta(optimizer):
                slot.assign(slot * (new / old))


def _momenta(optimizer: Any) -> list[Any]:
    """What an optimizer has gathered as momentum, as variables."""
    if hasattr(optimizer, "get_slot"):  # one of tf_keras.optimizers.legacy: dense/kernel/momentum:0
        return [slot for slot in optimizer.weights if slot.name.rpartition("/")[2].startswith("momentum")]
    return list(getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or ())


def learning_rate_of(optimizer: Any) -> float:
    """What it is now."""
    return float(backend().to_numpy(native(optimizer.learning_rate)))


def set_learning_rate(optimizer: Any, value: float) -> None:
    try:
        optimizer.learning_rate = value
    except TypeError as error:
        raise ValueError(
            "the optimizer has a schedule for its learning rate already: give it a number to begin with, so that the "
            "callback can change it"
        ) from error


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Begins with the learning rate of one rank, and raises it, batch by batch, to that of all of them: linear scaling
    with gradual warm-up (Goyal et al., Accurate, Large Minibatch SGD, arXiv 1706.02677).

    Args:
        initial_lr: that of all ranks, which is reached in the end, for instance 0.01 * hvd.size().
        warmup_epochs: epochs until then.
        momentum_correction: see LearningRateScheduleCallback.
        steps_per_epoch: batches in an epoch, where Keras does not know it.
        verbose: 1: rank 0 says when it is done.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # Counted from the end of a batch, so that the last one of the warm-up has the full learning rate.
            done = min(1.0, (epoch + 1.0 / float(self._steps() or 1)) / warmup_epochs) if warmup_epochs > 0 else 1.0
            return (1 + (basics.size() - 1) * done) / basics.size()

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=int(np.ceil(warmup_epochs)),
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 and basics.rank() == 0:
            rate = learning_rate_of(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BestModelCheckpoint(ForEitherKeras, keras.callbacks.ModelCheckpoint):
    """Writes the model to a file whenever it is the best so far: rank 0 does. The other ranks may use it, and need not.

    For every rank's measurements to count, put MetricAverageCallback before it.

    Args:
        monitor: the metric that says how good it is.
        verbose: 1: says what it does.
        save_weights_only: leaves the rest of the model out.
        mode: whether the metric is best at its "min" or "max"; "auto": by its name.
        save_freq: "epoch", or a number of batches.
        filepath: the file. It may also be set later, as the attribute of this name.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            filepath=filepath or ("best.weights.h5" if save_weights_only else "best.keras"),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        if filepath is None:
            self.filepath = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint does not know where to write: give filepath, or set it")
        super().on_train_begin(logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if basics.rank() == 0:
            super()._save_model(*args, **kwargs)
