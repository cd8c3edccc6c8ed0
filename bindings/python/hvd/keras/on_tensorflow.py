"""Keras on TensorFlow: Keras 3's backend of that name, and all of Keras 2.

XLA cannot compile what goes on between processes, and with `jit_compile="auto"` Keras 3 lets it compile training steps
wherever there is a GPU. So `Model.jit_compile` is False for a model with a distributed optimizer.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import hvd.tensorflow
from hvd.keras.backend import Backend
from hvd.keras.framework import native, wrap_method
from hvd.keras.reduction import is_distributed
from hvd.process_set import ProcessSet
from hvd.tensorflow import aggregation, gradients
from hvd.tensorflow.errors import translated
from hvd.tensorflow.tape import gradients_of


class OnTensorflow(Backend):
    package = hvd.tensorflow

    def tensor(self, value: Any) -> Any:
        return tf.convert_to_tensor(value)

    def to_numpy(self, tensor: Any) -> Any:
        return np.asarray(tensor)

    def snapshot(self, variable: Any) -> Any:
        return variable.numpy().copy()

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet) -> None:
        self.package.broadcast_variables([native(variable) for variable in variables], root_rank, process_set)

    def reducer(self, **settings: Any) -> Any:
        return gradients.GradientReducer(**settings)

    def aggregation(self, passes: int, reduce: Callable[..., Any], averages: bool) -> Any:
        return aggregation.LocalGradientAggregationHelper(passes, reduce, average_aggregated_gradients=averages)

    def gradients_of(self, loss: Any, variables: Sequence[Any], grad_loss: Any, tape: Any) -> Sequence[Any]:
        found: Sequence[Any] = gradients_of(loss, variables, grad_loss, tape)
        return found

    def patch_keras(self, keras: Any) -> None:
        """An operation that breaks the job while a graph runs raises TensorFlow's own error: `fit` and `train_on_batch`
        raise one that is a HorovodInternalError, too."""
        wrap_method(keras.Model, "jit_compile", _without_xla)
        if hasattr(keras.Model, "_resolve_auto_jit_compile"):
            wrap_method(keras.Model, "_resolve_auto_jit_compile", _resolving_without_xla)
        for method in ("fit", "train_on_batch"):
            wrap_method(keras.Model, method, lambda inner: translated()(inner))

    def on_loaded(self, model: Any) -> None:
        model.jit_compile = False


def _without_xla(jit_compile: property) -> property:
    """Model.jit_compile, which is read when a model makes its training step, wherever its optimizers came from."""
    get = jit_compile.fget
    assert get is not None

    def jit_compile_without_xla(self: Any) -> Any:
        if not _has_distributed(self):
            return get(self)
        if vars(self).get("_jit_compile"):
            _warn_once()
        return False

    return property(jit_compile_without_xla, jit_compile.fset, doc=jit_compile.__doc__)


def _resolving_without_xla(resolve: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """What Keras 3 asks where "auto" stands for an answer: no warning then."""

    @functools.wraps(resolve)
    def resolve_without_xla(self: Any) -> bool:
        if not _has_distributed(self):
            return resolve(self)
        self._jit_compile = False
        return False

    return resolve_without_xla


def _has_distributed(model: Any) -> bool:
    return any(is_distributed(one) for attribute in vars(model).values() for one in _members(attribute))


def _members(attribute: Any) -> Iterable[Any]:
    """A model may keep its optimizers in lists and dictionaries."""
    if isinstance(attribute, dict):
        return attribute.values()
    return attribute if isinstance(attribute, (list, tuple)) else (attribute,)


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "hvd: this model is trained with jit_compile=False, since XLA cannot compile the operations between processes "
        "of its hvd.DistributedOptimizer; compile(jit_compile=False) says so without this warning",
        stacklevel=3,
    )


BACKEND = OnTensorflow()
