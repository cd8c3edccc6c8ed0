"""The gradients of a Keras optimizer on the PyTorch backend: Keras hands them over when the backward pass is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional

import torch

from hvd import _native
from hvd.arguments import process_set_number as set_id
from hvd.exceptions import HorovodInternalError
from hvd.process_set import ProcessSet
from hvd.torch.collectives import delivered_group, start_grouped_allreduce
from hvd.torch.compression import Compressor
from hvd.torch.tensors import wait_for

Gradients = Sequence[Optional[torch.Tensor]]
Tensors = list[Optional[torch.Tensor]]


class GradientReducer:
    """Reduces the gradients of a step over the ranks, those of one dtype as one operation.

    Args:
        name: goes before the operations' names, to tell this reducer's from another's; the same on every rank. None: it
            is set before the first call.
        op: Average, Sum, Min, Max, Product or Adasum.
        compression: as of `hvd.torch.Compression`.
        sparse_as_dense: sparse gradients become dense ones whatever it says: Keras's optimizers need them so.
        gradient_predivide_factor: with Average, gradients are divided by it before the sum, the rest after it.
        num_groups: into how many operations the gradients are divided. 0: one.
        groups: lists of variables, each an operation of its own; the rest is one.
        process_set: the ranks that take part.
        scale_local_gradients: local gradients are divided by the number of ranks.
    """

    def __init__(
        self,
        *,
        name: str | None,
        op: int,
        compression: type[Compressor],
        sparse_as_dense: bool,
        gradient_predivide_factor: float,
        num_groups: int,
        groups: Sequence[Sequence[Any]] | None,
        process_set: ProcessSet,
        scale_local_gradients: bool,
    ) -> None:
        self.name = name
        self._compression = compression
        self._arguments = (op, 1.0 / gradient_predivide_factor, gradient_predivide_factor, process_set)
        self._num_groups = num_groups
        self._group_of = {_key_of(member): number for number, group in enumerate(groups or (), 1) for member in group}
        self._grouped = groups  # alive, so that no other variable gets the id of one of them
        self._process_set = process_set
        self._scale_local_gradients = scale_local_gradients
        self._local: dict[int, Any] = {}

    def register_local_source(self, variable: Any) -> None:
        """The variable's gradient stays what it is on this rank."""
        self._local[_key_of(variable)] = variable

    @torch.compiler.disable
    @torch.no_grad()
    def __call__(self, gradients: Gradients, variables: Sequence[Any]) -> Tensors:
        """New tensors with the reduced gradients; None stays None, which ranks must agree on.

        Raises:
            HorovodInternalError: ranks disagree, or one was lost.
        """
        results = list(gradients)
        set_id(self._process_set)  # raises if there is no such set any more
        if self._process_set.size() == 1 or not self._process_set.included():
            return results
        shared = []
        for position, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if self._local and _key_of(variable) in self._local:
                results[position] = self._scaled(gradient)
            else:
                shared.append(position)
        started = [
            self._start(name, members, gradients) for name, members in self._operations(shared, gradients, variables)
        ]
        for (members, *_), tensors in zip(started, _results(started)):
            for position, tensor in zip(members, tensors):
                results[position] = tensor
        return results

    def _scaled(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / (self._process_set.size() or 1) if self._scale_local_gradients else gradient

    def _operations(
        self, shared: Sequence[int], gradients: Gradients, variables: Sequence[Any]
    ) -> Iterator[tuple[str, list[int]]]:
        """Names of operations, and which gradients each reduces: of one group, dtype and device."""
        members: dict[str, list[int]] = {}
        for number, position in enumerate(shared):
            gradient = gradients[position]
            assert gradient is not None
            group = 0
            if self._num_groups > 0:
                group = number * self._num_groups // len(shared)
            elif self._group_of:
                group = self._group_of.get(_key_of(variables[position]), 0)
            kind = f"{str(gradient.dtype).removeprefix('torch.')}.{gradient.device.type}"
            members.setdefault(f"{self.name}.{group}.{kind}", []).append(position)
        yield from members.items()

    def _start(self, name: str, members: Sequence[int], gradients: Gradients) -> _Started:
        compressed = [self._compression.compress(_dense(gradients[position])) for position in members]
        tensors = [tensor for tensor, _ in compressed]
        work, received = start_grouped_allreduce(tensors, False, name, *self._arguments)

        def finish() -> list[torch.Tensor]:
            results = delivered_group(received, tensors, False)
            return [self._compression.decompress(r, context) for r, (_, context) in zip(results, compressed)]

        return members, work, finish


def _key_of(variable: Any) -> int:
    """What tells parameters apart, also where Keras wraps them."""
    return id(getattr(variable, "_value", variable))


_Started = tuple[Sequence[int], _native.Work, Any]


def _dense(gradient: torch.Tensor | None) -> torch.Tensor:
    assert gradient is not None
    return gradient.to_dense() if gradient.is_sparse else gradient


def _results(started: Iterable[_Started]) -> list[list[torch.Tensor]]:
    """Waits for all of them, also where something has failed: their names are free again then."""
    failure: HorovodInternalError | None = None
    results = []
    for _, work, finish in started:
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
        counts_passes: whether the optimizer's `iterations` counts passes, not steps.
    """

    def __init__(self, passes: int, reduce: Callable[..., Tensors], average: bool, counts_passes: bool = False) -> None:
        self._passes, self._reduce, self._average = passes, reduce, average
        self.counts_passes = counts_passes
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self._passes_left = self._passes
        self._sums: Tensors = []

    @torch.compiler.disable
    @torch.no_grad()
    def compute_gradients(self, gradients: Gradients, variables: Sequence[Any]) -> Tensors:
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
