"""DistributedOptimizer: any torch optimizer, stepping with gradients that are averaged over the ranks."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Callable

import torch

from hvd import basics
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Adasum, Average
from hvd.torch.compression import Compression, Compressor
from hvd.torch.gradients import GradientReducer

# Two optimizers of a process may hold parameters of the same name: each puts its number before its names. The ranks of
# a process set make theirs in the same order; ranks that are not in it make none, and count no differently for that.
_numbers: weakref.WeakKeyDictionary[ProcessSet, Iterator[int]] = weakref.WeakKeyDictionary()


class _Distributed:
    """What DistributedOptimizer adds to the class of the optimizer it is given; stands before it in the bases."""

    _gradients: GradientReducer | None  # None: this rank is alone, and nothing is reduced
    _parameter_names: dict[torch.nn.Parameter, str]
    _should_synchronize: bool
    _synchronized: bool

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Gradients of that many backward passes are added up locally before they are reduced. Call between steps."""
        if self._gradients is not None:
            self._gradients.set_passes(_checked_passes(passes))

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. For looking at them before the step, as gradient clipping does::

            loss.backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()

        Raises:
            HorovodInternalError: a reduction failed; the gradients are then of no use.
        """
        if self._gradients is not None:
            self._add_new_parameters(self._gradients)
            self._gradients.finish()
        self._synchronized = True

    def _add_new_parameters(self, reducer: GradientReducer) -> None:
        """Parameters that were frozen, or in no group yet, when this optimizer was made; ranks must agree on them."""
        held = (parameter for group in self.param_groups for parameter in group["params"])
        new = {
            parameter: self._parameter_names.setdefault(parameter, f"added.{number}")
            for number, parameter in enumerate(held)
            if parameter.requires_grad and parameter not in reducer.parameters
        }
        if new:
            reducer.add_parameters(new)
            _watch(new, reducer)

    def load_state_dict(self, state_dict: dict) -> None:
        """As the optimizer's, in place: a scheduler that was made for the optimizer given keeps its hold of it."""
        groups, state = self.param_groups, self.state
        super().load_state_dict(state_dict)
        for group, loaded in zip(groups, self.param_groups):
            group.clear()
            group.update(loaded)
        state.clear()
        state.update(self.state)
        self.param_groups, self.state = groups, state

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it `step()` does not synchronize, because `synchronize()` was called already."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], object] | None = None) -> object:
        """Synchronizes, and makes the optimizer's step. A closure's gradients are reduced each time it is called."""
        if not self._should_synchronize:
            self._synchronized = False
            return super().step(closure)
        if closure is not None:
            return super().step(lambda: self._closed_and_synchronized(closure))
        if self._synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): the "
                "gradients are reduced a second time",
                stacklevel=2,
            )
        self.synchronize()
        self._synchronized = False
        return super().step()

    # torch wraps the step of a class that it has not wrapped yet, to call hooks; the one called above does so already.
    step.hooked = True  # type: ignore[attr-defined]

    def _closed_and_synchronized(self, closure: Callable[[], object]) -> object:
        loss = closure()
        self.synchronize()
        self._synchronized = False
        return loss

    def zero_grad(self, *args: object, **kwargs: object) -> None:
        """As the optimizer's. AssertionError while gradients are being reduced: they must not change then."""
        if self._gradients is not None and self._gradients.under_way:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() and before optimizer.step() or "
                "optimizer.synchronize(): the gradients are being added up or reduced"
            )
        super().zero_grad(*args, **kwargs)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.nn.Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Wraps an optimizer: each gradient is reduced over the ranks as soon as the backward pass has it, while the pass
    goes on, and `step()` waits for the last one.

    Every rank must make the same optimizers, in the same order, over parameters of the same shapes. A parameter that a
    rank's backward pass did not reach takes part with zeros. Parameters that all ranks add or unfreeze later take part
    from then on.

    Args:
        optimizer: the optimizer, which must not be used itself any more. State and hyperparameters are shared with it.
        named_parameters: as of `model.named_parameters()`. None: parameters go by their place in the optimizer.
        compression: smaller type for the time of the travel; see `Compression`.
        backward_passes_per_step: backward passes whose gradients are added up locally (not averaged) before that.
        op: Average, Sum, Min, Max or Product; not Adasum, which is for the ranks' steps instead of their gradients.
        gradient_predivide_factor: with Average, gradients are divided by it before the sum, and the sum by
            size / factor after it, which keeps 16-bit gradients in range.
        num_groups: into how many groups the parameters are divided, to be reduced group by group. 0: none.
        groups: such groups, as lists of parameters, or their number. Parameters in none are reduced by themselves.
        sparse_as_dense: makes sparse gradients dense; without it they raise ValueError.
        process_set: the ranks that take part.

    Returns:
        An optimizer of a subclass of the given one's class, which has its name, and further `synchronize()`,
        `skip_synchronize()` and `set_backward_passes_per_step()`.

    Raises:
        ValueError: on wrong arguments.
    """
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if op == Adasum:
        raise ValueError("Adasum adds up the ranks' steps, not their gradients, and this optimizer reduces gradients")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if not gradient_predivide_factor > 0:
        raise ValueError(f"gradient_predivide_factor must be positive, not {gradient_predivide_factor}")
    names = _names_of(optimizer, named_parameters)
    cls = type(optimizer.__class__.__name__, (_Distributed, optimizer.__class__), {})
    wrapped = cls.__new__(cls)
    # A scheduler made before has put its own `step` into the instance, which is bound to the optimizer given.
    wrapped.__dict__.update((key, value) for key, value in optimizer.__dict__.items() if key != "step")
    wrapped._parameter_names = names
    wrapped._should_synchronize, wrapped._synchronized = True, False
    number = next(_numbers.setdefault(process_set, itertools.count()))
    trained = {parameter: name for parameter, name in names.items() if parameter.requires_grad}
    reducer = GradientReducer(
        names=trained,
        groups=_grouped(list(trained), num_groups, groups),
        prefix=f"optimizer{number}",
        passes=_checked_passes(backward_passes_per_step),
        compression=compression,
        op=op,
        prescale_factor=1.0 / gradient_predivide_factor,
        postscale_factor=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    wrapped._gradients = reducer if basics.size() > 1 else None
    if wrapped._gradients is not None:
        _watch(trained, wrapped._gradients)
    return wrapped


def _watch(parameters: Iterable[torch.nn.Parameter], reducer: GradientReducer) -> None:
    """Tells the reducer of each gradient, for as long as its optimizer lives."""
    reference = weakref.ref(reducer)

    def on_gradient(parameter: torch.nn.Parameter) -> None:
        alive = reference()
        if alive is not None:
            alive.add_pass(parameter)

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(on_gradient)


def _checked_passes(passes: int) -> int:
    if passes < 1:
        raise ValueError(f"backward_passes_per_step must be at least 1, not {passes}")
    return passes


def _names_of(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None
) -> dict[torch.nn.Parameter, str]:
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        return {parameter: f"noname.{number}" for number, parameter in enumerate(held)}
    named = list(named_parameters)
    if not all(isinstance(item, tuple) and len(item) == 2 for item in named):
        raise ValueError("named_parameters must be pairs of a name and a parameter, as of model.named_parameters()")
    twice = [name for name, times in Counter(name for name, _ in named).items() if times > 1]
    if twice:
        raise ValueError(f"names of parameters must differ, but there is more than one of {', '.join(twice)}")
    name_of = {parameter: name for name, parameter in named}
    unnamed = [number for number, parameter in enumerate(held) if parameter not in name_of]
    if unnamed:
        raise ValueError(f"named_parameters leaves out parameters of the optimizer: number {unnamed}")
    return {parameter: name_of[parameter] for parameter in held}


def _grouped(
    parameters: list[torch.nn.Parameter], num_groups: int, groups: int | Sequence[Sequence[torch.nn.Parameter]] | None
) -> list[list[torch.nn.Parameter]]:
    """Groups whose members have one dtype each, without the parameters that are not trained."""
    if isinstance(groups, int) and num_groups == 0:
        num_groups, groups = groups, None
    if groups is None:
        if num_groups < 0:
            raise ValueError(f"num_groups must not be negative, not {num_groups}")
        per_group = -(-len(parameters) // num_groups) if num_groups else 0
        groups = [parameters[i : i + per_group] for i in range(0, len(parameters), per_group)] if per_group else []
    elif num_groups:
        raise ValueError("num_groups and groups exclude each other")
    known = set(parameters)
    members = [parameter for group in groups for parameter in group]
    if len(members) != len(set(members)):
        raise ValueError("a parameter can be in one group only")
    chosen = [[parameter for parameter in group if parameter in known] for group in groups]
    return [
        [parameter for parameter in group if parameter.dtype == dtype]
        for group in chosen
        for dtype in dict.fromkeys(parameter.dtype for parameter in group)
    ]
