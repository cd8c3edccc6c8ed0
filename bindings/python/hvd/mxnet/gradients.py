"""Sums of gradients over the ranks, as optimizer and trainer need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvd import arguments, basics
from hvd.mxnet.collectives import allreduce_, grouped_allreduce_
from hvd.mxnet.compression import Compression
from hvd.process_set import ProcessSet, numbered_name
from hvd.reduce_op import Average, Sum, check_gradient_reduction


class GradientSummer:
    """Sums gradients in place.

    `kind` and `prefix` begin the operations' names. All ranks make their summers in the same order.
    """

    def __init__(
        self,
        kind: str,
        prefix: str,
        predivide_factor: float,
        num_groups: int,
        process_set: ProcessSet,
        compression: Any = Compression.none,
    ) -> None:
        check_gradient_reduction(Average, predivide_factor)
        if num_groups < 0:
            raise ValueError(f"num_groups must not be negative, not {num_groups}")
        self._name = f"{prefix}{numbered_name(process_set, kind)}"
        self._predivide_factor = predivide_factor
        self._num_groups = num_groups
        self._process_set = process_set
        self._compression = arguments.compressor(compression)
        arguments.process_set_number(process_set)  # ValueError if it is not registered

    def _ranks(self) -> int:
        """How many ranks sum; 1: this one does not take part. Asked each time: the optimizer may have been pickled in a
        job of another size. ValueError if hvd is not initialised."""
        basics.rank()
        return (self._process_set.size() or 1) if self._process_set.included() else 1

    @property
    def scale(self) -> float:
        """By which sums are multiplied for the average."""
        ranks = self._ranks()
        return self._predivide_factor / ranks if ranks > 1 else 1.0

    def sum(self, indices: Sequence[int | str], gradients: Sequence[Any], factor: float = 1.0) -> None:
        """`indices`: the parameters', the same on every rank; the first gradients are needed first. `factor`: of the
        sums."""
        if self._ranks() == 1:
            return
        sent = [self._compression.compress(gradient) for gradient in gradients]
        arrays = [array for array, _ in sent]
        if self._num_groups:
            self._sum_groups(indices, arrays, factor)
        else:
            for position, (index, array) in enumerate(zip(indices, arrays)):
                # An optimizer may be given one after the other.
                order = index if isinstance(index, int) and len(arrays) == 1 else position
                self._sum(allreduce_, array, str(index), order, factor)
        for gradient, (array, context) in zip(gradients, sent):
            if array is not gradient:
                gradient[:] = self._compression.decompress(array, context)

    def _sum_groups(self, indices: Sequence[int | str], arrays: Sequence[Any], factor: float) -> None:
        each = max(1, -(-len(arrays) // self._num_groups))  # all parameters may be frozen
        for first in range(0, len(arrays), each):
            last = min(first + each, len(arrays)) - 1
            name = f"{indices[first]}:{indices[last]}"
            self._sum(grouped_allreduce_, arrays[first : last + 1], name, first, factor)

    def _sum(self, collective: Any, what: Any, name: str, position: int, factor: float) -> None:
        collective(
            what,
            op=Sum,
            name=f"{self._name}.{name}",
            priority=-position,
            prescale_factor=1.0 / self._predivide_factor,
            postscale_factor=factor,
            process_set=self._process_set,
        )
