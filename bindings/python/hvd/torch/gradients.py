"""Moves the gradients of one optimizer: knows which parameters become ready together, starts their reduction when they
have, and puts the results back where autograd left the gradients. Called from autograd's hooks and by the optimizer, on
whichever thread runs the backward pass; never on two at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from hvd import _native
from hvd.process_set import ProcessSet
from hvd.torch.collectives import start_allreduce, start_grouped_allreduce
from hvd.torch.compression import Compressor
from hvd.torch.tensors import wait_for


class GradientReducer:
    """Reduces gradients by name.

    Args:
        names: each parameter's name, the same on every rank.
        groups: parameters whose gradients are submitted as one, once all of them are ready; the rest go alone.
        prefix: goes before each name, to tell this reducer's from another's.
        passes: backward passes that a gradient adds up before it is reduced.
    """

    def __init__(
        self,
        names: dict[torch.nn.Parameter, str],
        groups: Sequence[Sequence[torch.nn.Parameter]],
        prefix: str,
        passes: int,
        compression: type[Compressor],
        op: int,
        prescale_factor: float,
        postscale_factor: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self._prefix = prefix
        self._names: dict[torch.nn.Parameter, str] = {}
        self._passes_left: dict[torch.nn.Parameter, int] = {}
        self._groups = {parameter: group for group in groups for parameter in group}
        self._compression = compression
        self._arguments = (op, prescale_factor, postscale_factor, process_set)
        self._sparse_as_dense = sparse_as_dense
        self._started: list[tuple[_native.Work, list[torch.nn.Parameter], list[torch.Tensor], list[object]]] = []
        self._ready: set[torch.nn.Parameter] = set()
        self._passes = passes
        self.add_parameters(names)

    def add_parameters(self, names: dict[torch.nn.Parameter, str]) -> None:
        """Reduces these too from now on, each by itself."""
        self._names.update((parameter, f"{self._prefix}.{name}") for parameter, name in names.items())
        self._passes_left.update(dict.fromkeys(names, self._passes))

    def set_passes(self, passes: int) -> None:
        self._passes = passes
        self._passes_left = dict.fromkeys(self._names, passes)

    @property
    def parameters(self) -> Collection[torch.nn.Parameter]:
        return self._names.keys()

    @property
    def under_way(self) -> bool:
        """Whether there are gradients that were submitted, wait for their group or for further passes, and are not
        back yet."""
        return bool(self._ready) or any(left != self._passes for left in self._passes_left.values())

    def add_pass(self, parameter: torch.nn.Parameter) -> None:
        """A backward pass has added to the parameter's gradient. Submits it if that was the last one."""
        if parameter in self._ready:
            raise AssertionError(
                "a gradient was computed again after its last expected backward pass and before step(); to add up "
                "gradients locally, raise backward_passes_per_step"
            )
        self._passes_left[parameter] -= 1
        if self._passes_left[parameter] == 0:
            self._submit(parameter)

    def finish(self) -> None:
        """Submits what no backward pass has reached (other ranks' may have), and waits until all gradients are back."""
        try:
            for parameter in self._names:
                if parameter not in self._ready:
                    self._submit(parameter)
            for work, parameters, sent, contexts in self._started:
                wait_for(work)
                for parameter, tensor, context in zip(parameters, sent, contexts):
                    self._put_back(parameter, tensor, context)
        finally:
            self._started.clear()
            self._ready.clear()
            self.set_passes(self._passes)

    def _submit(self, parameter: torch.nn.Parameter) -> None:
        self._ready.add(parameter)
        group = self._groups.get(parameter)
        if group is None:
            tensor, context = self._to_send(parameter)
            work, _ = start_allreduce(tensor, True, self._names[parameter], *self._arguments)
            self._started.append((work, [parameter], [tensor], [context]))
        elif self._ready.issuperset(group):
            compressed = [self._to_send(member) for member in group]
            sent = [tensor for tensor, _ in compressed]
            work, _ = start_grouped_allreduce(sent, True, self._names[group[0]], *self._arguments)
            self._started.append((work, group, sent, [context for _, context in compressed]))

    def _to_send(self, parameter: torch.nn.Parameter) -> tuple[torch.Tensor, object]:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        elif parameter.grad.is_sparse:
            if not self._sparse_as_dense:
                raise ValueError(f"{self._names[parameter]} has a sparse gradient: give sparse_as_dense=True")
            parameter.grad = parameter.grad.to_dense()
        tensor, context = self._compression.compress(parameter.grad)
        return tensor.contiguous(), context

    def _put_back(self, parameter: torch.nn.Parameter, received: torch.Tensor, context: object) -> None:
        received = self._compression.decompress(received, context)
        if received is not parameter.grad:
            with torch.no_grad():
                parameter.grad.copy_(received)
