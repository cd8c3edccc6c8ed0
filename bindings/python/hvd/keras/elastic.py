"""Elastic training with Keras: a state of a model, its optimizer and Python objects, and callbacks that keep it.

@hvd.elastic.run
def train(state):
    model.fit(data, epochs=epochs - state.epoch, callbacks=[
        hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, batches_per_commit=100)])

train(hvd.elastic.KerasState(model, epoch=0))
"""

from __future__ import annotations

import pathlib
from typing import Any, Callable, cast

from hvd import basics
from hvd.elastic import ObjectState, State, from_source, sync_root, sync_set
from hvd.keras.elastic_callbacks import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from hvd.keras.framework import backend, native
from hvd.keras.functions import are_built, broadcast_variables, make_variables, state_of
from hvd.keras.reduction import reduction_within
from hvd.keras.twin import Twin, twin_of
from hvd.objects import allgather_object, broadcast_object

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

_FILE = "state.keras"


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function elastic: see `hvd.elastic.run_fn`. Its first argument is a State, as KerasState is."""
    return cast("Callable[..., Any]", backend().package.elastic.run(func))


class KerasState(ObjectState):
    """A training state with Keras: a model, its optimizer, and Python objects, each of these an attribute.

    Args:
        model: compiled, if no optimizer is given. Its variables, and the optimizer's, are saved and synchronised once
            they are there.
        optimizer: by default the one that the model was compiled with.
        kwargs: whatever else belongs to the state, for instance epoch=0, batch=0.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self._saved_variables: list[Any] = []
        self._twin: Twin | None = None
        self._may_have_twin = True
        self._save_variables()
        super().__init__(from_source(broadcast_object), basics.rank, **kwargs)

    def save(self) -> None:
        self._save_variables()
        super().save()

    def _save_variables(self) -> None:
        backend().sync_variables(self.model)
        if self.model.built and not are_built(self.model, self.optimizer):
            make_variables(self.optimizer, self.model.trainable_variables)
        if are_built(self.model, self.optimizer):
            self._saved_variables = [
                backend().snapshot(native(variable)) for variable in state_of(self.model, self.optimizer)
            ]

    def restore(self) -> None:
        """Goes back to what was saved last. Variables that were not there then stay as they are."""
        if self._saved_variables:
            for variable, saved in zip(state_of(self.model, self.optimizer), self._saved_variables):
                variable.assign(saved)
        self._forget_passes()
        super().restore()

    def _forget_passes(self) -> None:
        """Drops the gradients of backward passes that have not become a step yet."""
        reduction = reduction_within(self.optimizer)
        if reduction is not None:
            reduction.forget()

    def sync(self) -> None:
        """As in State. A model without variables is the same everywhere.

        Raises:
            ValueError: the model has variables on some ranks only: call `model.build()` on all of them first.
        """
        built = allgather_object(are_built(self.model, self.optimizer))
        if any(built):
            if not all(built):
                without = [rank for rank, is_built in enumerate(built) if not is_built]
                raise ValueError(
                    f"the model or its optimizer has no variables on ranks {without}: call model.build() before making "
                    "the state"
                )
            if among := sync_set():
                broadcast_variables(state_of(self.model, self.optimizer), sync_root(), among)
        super().sync()

    def saved(self) -> dict[str, Any]:
        is_writer = not basics.is_initialized() or basics.rank() == 0
        if is_writer and self._may_have_twin and self._saved_variables:
            self._twin = twin_of(self.model, self.optimizer)
            self._may_have_twin = False
        return super().saved() | {"variables": [backend().to_numpy(value) for value in self._saved_variables]}

    def write(self, saved: dict[str, Any], folder: pathlib.Path, rank: int = 0) -> list[pathlib.Path]:
        """The model as Keras's own file, if it can be, and the rest by pickle."""
        if self._twin is None or not saved["variables"]:
            return super().write(saved, folder, rank)
        rest = self._twin.write(saved["variables"], folder / _FILE)
        return [folder / _FILE, *super().write(saved | {"variables": rest}, folder, rank)]

    def read(self, folder: pathlib.Path) -> None:
        super().read(folder)
        if (folder / _FILE).exists():
            self.model.load_weights(folder / _FILE)
            self._save_variables()

    def load(self, saved: dict[str, Any]) -> None:
        variables = saved["variables"]
        if variables and len(variables) != len(self._saved_variables):
            count = len(self._saved_variables)
            raise ValueError(
                f"the checkpoint has {len(variables)} variables, but this state has {count}: make the same model and "
                "optimizer, and call model.build() before making the state"
            )
        for variable, value in zip(state_of(self.model, self.optimizer), variables):
            if value is not None:  # else it is in Keras's file
                variable.assign(value)
        super().load(saved)

    def reset(self) -> None:
        """Compiled functions may depend on the old job, and new ranks begin with the first backward pass of a step."""
        self._forget_passes()
        backend().forget_ranks()
        self.model.train_function = self.model.test_function = self.model.predict_function = None
