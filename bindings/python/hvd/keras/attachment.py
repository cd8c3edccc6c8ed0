"""The places where Keras itself has to know of distributed optimizers. Nothing changes for models without one.

XLA cannot compile what goes on between processes, and with `jit_compile="auto"` Keras 3 lets it compile training steps
wherever there is a GPU. So `Model.jit_compile` is False for a model with a distributed optimizer, on TensorFlow. On
PyTorch jit_compile means torch.compile, which leaves the reduction out by itself.

A LossScaleOptimizer looks for overflows before it calls the optimizer within it, and leaves that call out on the rank
that has found one: the others would wait for it. So where the inner one is distributed, gradients are reduced first.
Keras puts one around the optimizer by itself for models of mixed_float16. (That of Keras 2 knows of such a step.)

An operation that breaks the job while a graph of TensorFlow runs raises TensorFlow's own error. `fit` and
`train_on_batch` raise one that is a HorovodInternalError, too.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Iterable
from typing import Any, Callable

from hvd.keras.framework import is_keras_3, runs_tensorflow
from hvd.keras.reduction import is_distributed, reduction_of


@functools.cache
def attach(keras_name: str) -> None:
    """Done once for each Keras, when its first optimizer becomes a distributed one."""
    keras = importlib.import_module(keras_name)
    if is_keras_3(keras.optimizers.Optimizer):
        _wrap(keras.optimizers.LossScaleOptimizer, "apply", _reducing_first)
    if runs_tensorflow(keras):
        from hvd.tensorflow.errors import translated

        _wrap(keras.Model, "jit_compile", _without_xla)
        if hasattr(keras.Model, "_resolve_auto_jit_compile"):
            _wrap(keras.Model, "_resolve_auto_jit_compile", _resolving_without_xla)
        for method in ("fit", "train_on_batch"):
            _wrap(keras.Model, method, lambda inner: translated()(inner))


def _wrap(cls: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    defining = next(base for base in cls.__mro__ if name in vars(base))
    setattr(defining, name, wrapper(vars(defining)[name]))


def _reducing_first(apply: Callable[..., None]) -> Callable[..., None]:
    """LossScaleOptimizer.apply of Keras 3."""

    @functools.wraps(apply)
    def apply_reduced(self: Any, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        inner = self.inner_optimizer
        reduction = reduction_of(inner)
        if reduction is None:
            apply(self, grads, trainable_variables)
            return
        variables = inner._trainable_variables if trainable_variables is None else list(trainable_variables)
        if not self.built:
            self.build(variables)
        reduction.step(list(grads), variables, lambda reduced: apply(self, reduced, variables), inner)

    return apply_reduced


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
