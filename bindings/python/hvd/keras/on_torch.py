"""Keras 3 on PyTorch. With it, jit_compile means torch.compile, from which the reduction is excluded."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

import numpy as np
import torch

import hvd.torch
from hvd import _native
from hvd.exceptions import HorovodInternalError
from hvd.keras import gradients
from hvd.keras.backend import Backend
from hvd.keras.framework import native
from hvd.process_set import ProcessSet
from hvd.torch.collectives import delivered_group, grouped_allreduce_call
from hvd.torch.tensors import wait_for

Tensors = list[Optional[torch.Tensor]]


class OnTorch(Backend):
    package = hvd.torch

    def tensor(self, value: Any) -> Any:
        return value if isinstance(value, torch.Tensor) else torch.as_tensor(value)

    def to_numpy(self, tensor: Any) -> Any:
        return np.asarray(tensor.detach().cpu() if isinstance(tensor, torch.Tensor) else tensor)

    def snapshot(self, variable: Any) -> Any:
        return variable.detach().clone()

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet) -> None:
        parameters = [(str(number), native(variable)) for number, variable in enumerate(variables)]
        self.package.broadcast_parameters(parameters, root_rank, process_set)

    def reducer(self, **settings: Any) -> Any:
        return GradientReducer(**settings)

    def aggregation(self, passes: int, reduce: Callable[..., Any], averages: bool) -> Any:
        return LocalAggregation(passes, reduce, averages)

    def on_distributed(self, optimizer: Any) -> None:
        """torch.compile looks for methods in `optimizer.__class__`, which is the plain optimizer's, but first here."""
        optimizer.__dict__["apply"] = functools.partial(_apply, optimizer)


def _apply(optimizer: Any, grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None) -> None:
    type(optimizer).apply(optimizer, grads, trainable_variables)


class GradientReducer(gradients.GradientReducer):
    @torch.compiler.disable
    @torch.no_grad()
    def __call__(self, gradients: gradients.Gradients, variables: Sequence[Any]) -> list[Any]:
        return super().__call__(gradients, variables)

    def key(self, variable: Any) -> int:
        """Of the parameter, also where Keras wraps it."""
        return id(getattr(variable, "_value", variable))

    def kind(self, gradient: torch.Tensor) -> str:
        return f"{str(gradient.dtype).removeprefix('torch.')}.{gradient.device.type}"

    def reduce(self, groups: list[gradients.Group]) -> list[list[Any]]:
        return _results([self._start(name, members) for name, members in groups])

    def _start(self, name: str, members: Sequence[torch.Tensor]) -> _Started:
        compressed = [self.compression.compress(_dense(gradient)) for gradient in members]
        tensors = [tensor for tensor, _ in compressed]
        call, received = grouped_allreduce_call(tensors, False, name, self.op, *self.factors, self.process_set)

        def finish() -> list[torch.Tensor]:
            results = delivered_group(received, tensors, False)
            return [self.compression.decompress(r, context) for r, (_, context) in zip(results, compressed)]

        return _native.submit(*call), finish


_Started = tuple[_native.Work, Callable[[], list[torch.Tensor]]]


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient


def _results(started: Iterable[_Started]) -> list[list[torch.Tensor]]:
    """Waits for all of them, also where something has failed: their names are free again then."""
    failure: HorovodInternalError | None = None
    results = []
    for work, finish in started:
        try:
            wait_for(work)
            results.append(finish())
        except HorovodInternalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


class LocalAggregation:
    """Adds up the gradients of several backward passes on this rank, with the methods that
    `hvd.tensorflow.LocalGradientAggregationHelper` has.

    Args:
        passes: how many.
        reduce: called with the sums after the last one, and the variables.
        average: whether the sums are divided by their number before that.
    """

    def __init__(self, passes: int, reduce: Callable[..., Tensors], average: bool) -> None:
        self._passes, self._reduce, self._average = passes, reduce, average
        self.counts_passes = False
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self._passes_left = self._passes
        self._sums: Tensors = []

    @torch.compiler.disable
    @torch.no_grad()
    def compute_gradients(self, gradients: Sequence[torch.Tensor | None], variables: Sequence[Any]) -> Tensors:
        """Takes the gradients of a pass. Returns the reduced sums after the last one, and nothing of use before."""
        if self._passes_left == 0:
            self.forget()  # the step before this one has failed
        self._passes_left -= 1
        if self._passes == 1:
            return self._reduce(list(gradients), variables)
        previous = self._sums or [None] * len(gradients)
        self._sums = [_added(total, gradient) for total, gradient in zip(previous, gradients)]
        if self._passes_left > 0:
            return self._sums
        divisor = self._passes if self._average else 1
        return self._reduce([None if total is None else total / divisor for total in self._sums], variables)

    @property
    def counter(self) -> int:
        """Passes since the last step."""
        return self._passes - self._passes_left

    def apply_gradients(self, update: Callable[[], object], optimizer: Any) -> None:
        """Calls `update` after the last pass."""
        if self._passes_left == 0:
            self.forget()
            update()
        elif self.counts_passes:
            optimizer.iterations.assign_add(1)


def _added(total: torch.Tensor | None, gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is None:
        return total
    return _dense(gradient).clone() if total is None else total.add_(_dense(gradient))


BACKEND = OnTorch()
