"""The gradients of a Keras optimizer on PyTorch and JAX, which hand them over when the backward pass is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvd.arguments import process_set_number
from hvd.process_set import ProcessSet

Gradients = Sequence[Any]  # None: the variable has none
Group = tuple[str, list[Any]]  # the name of an operation, and its gradients


class GradientReducer:
    """Reduces the gradients of a step over the ranks.

    Args:
        name: goes before the operations' names, to tell this reducer's from another's; the same on every rank. None: it
            is set before the first call.
        op: Average, Sum, Min, Max, Product or Adasum.
        compression: see `hvd.torch.Compression`.
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
        compression: Any,
        sparse_as_dense: bool,
        gradient_predivide_factor: float,
        num_groups: int,
        groups: Sequence[Sequence[Any]] | None,
        process_set: ProcessSet,
        scale_local_gradients: bool,
    ) -> None:
        self.name = name
        self.op, self.compression, self.process_set = op, compression, process_set
        self.factors = (1.0 / gradient_predivide_factor, gradient_predivide_factor)
        self._num_groups = num_groups
        self._group_of = {self.key(member): number for number, group in enumerate(groups or (), 1) for member in group}
        self._grouped = groups  # alive, so that no other variable gets the id of one of them
        self._scale_local_gradients = scale_local_gradients
        self._local: dict[int, Any] = {}

    def key(self, variable: Any) -> int:
        """What tells variables apart."""
        return id(variable)

    def kind(self, gradient: Any) -> str:
        """Gradients of one operation are of one kind."""
        raise NotImplementedError

    def reduce(self, groups: list[Group]) -> list[list[Any]]:
        """The reduced gradients of each group; with compression, where it is asked for.

        Raises:
            HorovodInternalError: ranks disagree, or one was lost.
        """
        raise NotImplementedError

    def register_local_source(self, variable: Any) -> None:
        """The variable's gradient stays what it is on this rank."""
        self._local[self.key(variable)] = variable

    def __call__(self, gradients: Gradients, variables: Sequence[Any]) -> list[Any]:
        """New tensors with the reduced gradients; None stays None, which ranks must agree on. Raises as `reduce`."""
        results = list(gradients)
        process_set_number(self.process_set)  # raises if there is no such set any more
        if self.process_set.size() == 1 or not self.process_set.included():
            return results
        shared = []
        for position, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if self._local and self.key(variable) in self._local:
                results[position] = self._scaled(gradient)
            else:
                shared.append(position)
        operations = self._operations(shared, gradients, variables)
        groups = [(name, [gradients[position] for position in members]) for name, members in operations.items()]
        for members, tensors in zip(operations.values(), self.reduce(groups)):
            for position, tensor in zip(members, tensors):
                results[position] = tensor
        return results

    def _scaled(self, gradient: Any) -> Any:
        return gradient / (self.process_set.size() or 1) if self._scale_local_gradients else gradient

    def _operations(
        self, shared: Sequence[int], gradients: Gradients, variables: Sequence[Any]
    ) -> dict[str, list[int]]:
        """Names of operations, and which gradients each reduces: of one group and kind."""
        members: dict[str, list[int]] = {}
        for number, position in enumerate(shared):
            group = 0
            if self._num_groups > 0:
                group = number * self._num_groups // len(shared)
            elif self._group_of:
                group = self._group_of.get(self.key(variables[position]), 0)
            members.setdefault(f"{self.name}.{group}.{self.kind(gradients[position])}", []).append(position)
        return members
