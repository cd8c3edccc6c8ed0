"""The places where Keras itself has to know of distributed optimizers. Nothing changes for models without one.

A LossScaleOptimizer looks for overflows before it calls the optimizer within it, and leaves that call out on the rank
that has found one: the others would wait for it. So where the inner one is distributed, gradients are reduced first.
Keras puts one around the optimizer automatically for models of mixed_float16. (That of Keras 2 knows of such a step.)
What a backend needs besides: `hvd.keras.backend`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from typing import Any, Callable

from hvd.keras.framework import backend, is_keras_3, wrap_method
from hvd.keras.reduction import reduction_of


@functools.cache
def attach(keras_name: str) -> None:
    """Done once for each Keras, when its first optimizer becomes a distributed one."""
    keras = importlib.import_module(keras_name)
    if is_keras_3(keras.optimizers.Optimizer):
        wrap_method(keras.optimizers.LossScaleOptimizer, "apply", _reducing_first)
    backend(str(keras.backend.backend())).patch_keras(keras)


def _reducing_first(apply: Callable[..., None]) -> Callable[..., None]:
    """LossScaleOptimizer.apply of Keras 3."""

    @functools.wraps(apply)
    def apply_reduced(self: Any, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        inner = self.inner_optimizer
        reduction = reduction_of(inner)
        if reduction is None:
            apply(self, grads, trainable_variables)
            return
        if reduction.passes > 1:
            backend().refuse_passes_under_loss_scaling()
        variables = inner._trainable_variables if trainable_variables is None else list(trainable_variables)
        if not self.built:
            self.build(variables)
        reduction.step(list(grads), variables, lambda reduced: apply(self, reduced, variables), inner)

    return apply_reduced
