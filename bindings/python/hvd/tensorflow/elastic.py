"""Elastic training states of TensorFlow programs: `hvd.elastic` has the idea, and `run`'s loop."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

from hvd import basics
from hvd.elastic import ObjectState, from_source, join_anew, run_fn, sync_root, sync_set
from hvd.exceptions import HorovodInternalError
from hvd.tensorflow.errors import is_ours
from hvd.tensorflow.functions import broadcast_object, broadcast_variables


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function elastic: see `hvd.elastic.run_fn`. Its first argument is a State, such as
    TensorFlowState or TensorFlowKerasState. TensorFlow's UnknownError with hvd's text counts as a
    HorovodInternalError."""

    @functools.wraps(func)
    def translating(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except tf.errors.OpError as error:
            if is_ours(error) and not isinstance(error, HorovodInternalError):
                raise HorovodInternalError(error.message) from error
            raise

    return run_fn(translating, join_anew)


class TensorFlowState(ObjectState):
    """Variables, and whatever keywords are given.

    Args:
        variables: to be saved, restored and synchronised; None: all global variables of tf.compat.v1's default graph.
        session: of tf.compat.v1, in whose graph the variables are; None: eager mode.
        kwargs: see `hvd.elastic.ObjectState`.
    """

    def __init__(self, variables: Iterable[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        self._session = session
        self._takes_newest = session is None  # the operation that synchronises is made once
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self._synchronize = self._synchronizing_op()
        self._values = self._read()
        super().__init__(from_source(broadcast_object), basics.rank, **kwargs)

    def _synchronizing_op(self) -> Any:
        """Made once, while the graph can be added to, and so that ranks that have come later call it the same."""
        if self._session is None:
            return None
        with self._session.graph.as_default():
            return broadcast_variables(self.variables, 0)

    def _read(self) -> list[Any]:
        if self._session is not None:
            values: list[Any] = self._session.run(self.variables)
            return values
        return [variable.numpy() for variable in self.variables]

    def save(self) -> None:
        self._values = self._read()
        super().save()

    def restore(self) -> None:
        self._assign(self._values)
        super().restore()

    def _assign(self, values: list[Any]) -> None:
        for variable, value in zip(self.variables, values):
            if self._session is not None:
                variable.load(value, self._session)
            else:
                variable.assign(value)

    def saved(self) -> dict[str, Any]:
        return super().saved() | {"variables": self._values}

    def load(self, saved: dict[str, Any]) -> None:
        if len(saved["variables"]) != len(self.variables):
            raise ValueError(
                f"the checkpoint has {len(saved['variables'])} variables, but this state has {len(self.variables)}: "
                "make the state of the same model, or use another folder"
            )
        self._values = saved["variables"]
        self._assign(self._values)
        super().load(saved)

    def sync(self) -> None:
        if self._session is not None:
            self._session.run(self._synchronize)
        elif among := sync_set():
            broadcast_variables(self.variables, sync_root(), among)
        super().sync()


class TensorFlowKerasState(TensorFlowState):
    """A Keras model and its optimizer, and whatever keywords are given.

    Args:
        model: built, so that its variables are there.
        optimizer: None: that of the compiled model.
        backend: not needed; for scripts that give it.
        kwargs: see `hvd.elastic.ObjectState`.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        super().__init__(self._current_variables(), **kwargs)

    def _current_variables(self) -> list[Any]:
        """An optimizer makes its variables with its first step."""
        of_optimizer = getattr(self.optimizer, "variables", [])
        return [*self.model.variables, *(of_optimizer() if callable(of_optimizer) else of_optimizer)]

    def save(self) -> None:
        self.variables = self._current_variables()
        super().save()

    def make_room(self) -> None:
        """Makes the optimizer's variables."""
        self._build_optimizer()

    def _build_optimizer(self) -> None:
        """Unless it has its variables: ranks that have trained have them, and newcomers need the same."""
        # Those of tf_keras.optimizers.legacy have another name for it.
        build = getattr(self.optimizer, "build", None) or getattr(self.optimizer, "_create_all_weights", None)
        if build is not None and self.model.trainable_variables:
            build(self.model.trainable_variables)

    def sync(self) -> None:
        self._build_optimizer()
        self.variables = self._current_variables()
        super().sync()

    def load(self, saved: dict[str, Any]) -> None:
        self._build_optimizer()  # the checkpoint has its variables
        self.variables = self._current_variables()
        super().load(saved)

    def restore(self) -> None:
        super().restore()
        self._forget_passes()

    def _forget_passes(self) -> None:
        """Drops the gradients of backward passes that have not become a step yet."""
        for optimizer in (self.optimizer, getattr(self.optimizer, "inner_optimizer", None)):
            reduction = getattr(optimizer, "_reduction", None)  # of hvd's optimizers
            if reduction is not None:
                reduction.forget()

    def reset(self) -> None:
        """Compiled functions may depend on the old job, and new ranks begin with the first backward pass of a step."""
        self._forget_passes()
        self.model.train_function = self.model.test_function = self.model.predict_function = None
