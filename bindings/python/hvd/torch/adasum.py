"""The optimizer that DistributedOptimizer(op=Adasum) makes: each rank steps by itself, and the steps are added up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch

from hvd import _native
from hvd.process_set import ProcessSet
from hvd.reduce_op import Adasum
from hvd.torch.collectives import allreduce_call
from hvd.torch.compression import Compressor
from hvd.torch.subclassed import Behaviour, state_in_place, subclassed
from hvd.torch.tensors import delivered, wait_for


class AdasumOptimizer(Behaviour):
    """Stands before the class of the optimizer in the bases. A step of the optimizer, with this rank's gradients, gives
    each parameter a difference; the adaptive sum of the ranks' differences is what the parameter moves by.

    Gradients stay local, so that any number of backward passes may come before a step, and clipping is each rank's own.
    So do their overflows: a GradScaler would leave out the steps of some ranks, while the others make theirs. It does
    not go with this optimizer.
    """

    backward_passes_per_step: int
    _parameter_names: dict[torch.nn.Parameter, str]
    _prefix: str
    _compression: type[Compressor]
    _process_set: ProcessSet
    _given: torch.optim.Optimizer
    _opt_called: bool

    @staticmethod
    def around(
        optimizer: torch.optim.Optimizer,
        names: dict[torch.nn.Parameter, str],
        prefix: str,
        compression: type[Compressor],
        process_set: ProcessSet,
        passes: int,
    ) -> torch.optim.Optimizer:
        wrapped = subclassed(optimizer, AdasumOptimizer)
        wrapped._parameter_names, wrapped._prefix = names, prefix
        wrapped._compression, wrapped._process_set = compression, process_set
        wrapped.backward_passes_per_step = passes
        return wrapped

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Not needed: gradients are not reduced. For scripts that call it."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Not needed: gradients are not reduced. For scripts that call it."""

    def release(self) -> None:
        """Not needed: the parameters are not watched."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the optimizer's, in place: a scheduler that was made for the optimizer given keeps its hold of it."""
        with state_in_place(self):
            super().load_state_dict(state_dict)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Not needed: gradients are not reduced. For scripts that use it."""
        yield

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """AssertionError: the step itself is what has to be added up."""
        raise AssertionError("skip_synchronize() makes no sense with op=Adasum: step() is what the ranks add up")
        yield

    @torch._disable_dynamo(recursive=False)
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps with this rank's gradients, and replaces the step by the adaptive sum of all ranks' steps.

        Raises:
            HorovodInternalError: the sum failed; parameters are then where this rank's step has put them.
        """
        self._opt_called = self._given._opt_called = True  # type: ignore[attr-defined]
        moved = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        with torch.no_grad():
            starts = [parameter.detach().clone() for parameter in moved]
        loss = super().step(closure)
        self._add_up(moved, starts)
        return loss

    # torch wraps the step of a class that it has not wrapped yet, to call hooks; the one called above does so already.
    step.hooked = True  # type: ignore[attr-defined]
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    @torch._disable_dynamo
    @torch.no_grad()
    def _add_up(self, moved: list[torch.nn.Parameter], starts: list[torch.Tensor]) -> None:
        under_way = [
            self._start_sum(number, parameter, parameter - start)
            for number, (parameter, start) in enumerate(zip(moved, starts))
        ]
        for parameter, start, (work, received, sent, context) in zip(moved, starts, under_way):
            wait_for(work)
            step = self._compression.decompress(delivered(received, sent, True), context)
            parameter.copy_(start.add_(step))

    def _start_sum(
        self, number: int, parameter: torch.nn.Parameter, difference: torch.Tensor
    ) -> tuple[_native.Work, torch.Tensor, torch.Tensor, Any]:
        sent, context = self._compression.compress(difference)
        name = f"{self._prefix}.{self._parameter_names.setdefault(parameter, f'added.{number}')}"
        call, received = allreduce_call(sent, True, name, Adasum, 1.0, 1.0, self._process_set)
        return _native.submit(*call), received, sent, context
