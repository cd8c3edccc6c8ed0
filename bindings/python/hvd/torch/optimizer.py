"""DistributedOptimizer: any torch optimizer, stepping with gradients that are averaged over the ranks."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, NoReturn

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from hvd import arguments, basics, elastic
from hvd.process_set import ProcessSet, global_process_set, numbered_name
from hvd.reduce_op import Adasum, Average, check_gradient_reduction
from hvd.torch.adasum import AdasumOptimizer
from hvd.torch.compression import Compression, Compressor
from hvd.torch.gradients import GradientReducer
from hvd.torch.subclassed import Behaviour, state_in_place, subclassed


class _Distributed(Behaviour):
    """What DistributedOptimizer adds to the class of the optimizer it is given; stands before it in the bases."""

    backward_passes_per_step: int
    _gradients: GradientReducer | None  # None: this rank is alone, and nothing is reduced
    _parameter_names: dict[torch.nn.Parameter, str]
    _given: torch.optim.Optimizer
    _opt_called: bool
    _overlaps_step: bool
    _should_synchronize: bool
    _synchronized: bool

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Gradients of that many backward passes are added up locally before they are reduced. Call between steps."""
        self.backward_passes_per_step = arguments.positive(passes, "backward_passes_per_step")
        if self._gradients is not None:
            self._gradients.set_passes(self.backward_passes_per_step)

    # torch.compile does not look into what moves gradients, since it would find nothing there that it can compile. The
    # step of the optimizer's own class is compiled as without hvd. torch.compiler.disable would import the compiler
    # already here, which takes a second.
    @torch._disable_dynamo
    def synchronize(self) -> None:
        """Waits until all gradients are reduced, also those that this rank's backward pass has not reached.

        When `backward()` returns, the gradients that it has reached are reduced already, and may be clipped or unscaled
        as they are. This is for models of which ranks use different parts, and for scripts that were written for
        Horovod::

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

    def release(self) -> None:
        """Leaves the parameters to another DistributedOptimizer: this one reduces nothing any more. Between steps."""
        self._gradients = None

    def _add_new_parameters(self, reducer: GradientReducer) -> None:
        """Parameters that were frozen, or in no group yet, when this optimizer was made; ranks must agree on them."""
        held = (parameter for group in self.param_groups for parameter in group["params"])
        known = {id(parameter) for parameter in reducer.parameters}
        new = {
            parameter: self._parameter_names.setdefault(parameter, f"added.{number}")
            for number, parameter in enumerate(held)
            if parameter.requires_grad and id(parameter) not in known
        }
        if new:
            reducer.add_parameters(new)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the optimizer's, in place: a scheduler that was made for the optimizer given keeps its hold of it."""
        with state_in_place(self):
            super().load_state_dict(state_dict)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within it only add up gradients on this rank; they do not count for
        backward_passes_per_step either. The first pass after it, or `step()`, reduces what has been added up. All ranks
        must use it alike."""
        if self._gradients is None:
            yield
            return
        before, self._gradients.paused = self._gradients.paused, True
        try:
            yield
        finally:
            self._gradients.paused = before

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it `step()` does not synchronize, because `synchronize()` was called already."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @torch._disable_dynamo(recursive=False)
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Synchronizes, and makes the optimizer's step. A closure's gradients are reduced each time it is called."""
        # Schedulers that were made for the optimizer given look there, also those within others (SequentialLR).
        self._opt_called = self._given._opt_called = True  # type: ignore[attr-defined]
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
        if self._overlaps_step and self._gradients is not None and not self._has_step_hooks():
            self._step_in_parts(self._gradients)
            self._synchronized = False
            return None
        self.synchronize()
        self._synchronized = False
        return super().step()

    @torch._disable_dynamo
    def _step_in_parts(self, reducer: GradientReducer) -> None:
        """The optimizer's step, of some parameters at a time: those whose gradients are back, while others travel."""
        self._add_new_parameters(reducer)
        groups = self.param_groups
        whole = [group["params"] for group in groups]
        left = {parameter for parameters in whole for parameter in parameters}

        def step_of(some: Collection[torch.nn.Parameter]) -> None:
            for group, parameters in zip(groups, whole):
                group["params"] = [parameter for parameter in parameters if parameter in some]
            self.param_groups = [group for group in groups if group["params"]]
            super(_Distributed, self).step()
            left.difference_update(some)

        try:
            for reduced in reducer.finish_in_parts():
                step_of(left.intersection(reduced))
            step_of(set(left))  # what is not reduced
        finally:
            self.param_groups = groups
            for group, parameters in zip(groups, whole):
                group["params"] = parameters

    def _has_step_hooks(self) -> bool:
        """Whether somebody is to be called before or after each step, and expects it to be a whole one."""
        own = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        return bool(own or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)

    # torch wraps the step of a class that it has not wrapped yet, to call hooks; the one called above does so already.
    step.hooked = True  # type: ignore[attr-defined]
    # A scheduler looks whether steps are made, and replaces its optimizer's step() to be told. This one tells,
    # and tells a scheduler as well that has come to this optimizer later.
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def _closed_and_synchronized(self, closure: Callable[[], Any]) -> Any:
        loss = closure()
        self.synchronize()
        self._synchronized = False
        return loss

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a DistributedOptimizer cannot be copied or pickled, since it watches its parameters: copy its "
            "state_dict(), or make another one"
        )

    @torch._disable_dynamo
    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's. AssertionError while gradients are being added up or reduced: they must not change then.
        When all passes are over it may be called instead of `step()`: then the gradients are dropped."""
        if self._gradients is not None:
            if self._gradients.under_way:
                raise AssertionError(
                    "optimizer.zero_grad() was called after loss.backward() and before optimizer.step() or "
                    "optimizer.synchronize(): the gradients are being added up or reduced"
                )
            self._gradients.forget()
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
    gradient_as_bucket_view: bool = False,
    wait_in_backward: bool = True,
    overlap_step: bool = False,
) -> torch.optim.Optimizer:
    """Wraps an optimizer: each gradient is reduced over the ranks as soon as the backward pass has it, while the pass
    goes on, and `backward()` returns when those that it has submitted are back. So they can be clipped or unscaled like
    any others; `step()` reduces the rest. On a single host whose cores are all busy with the passes themselves, all
    gradients are reduced together at the end of the pass, which is faster there.

    Every rank must make the same optimizers, in the same order, over parameters of the same shapes, and run backward
    passes of several optimizers in the same order (or within `no_sync()`). The same holds for several passes of one
    step over different parts of a model, unless `wait_in_backward=False`. A parameter that a rank's backward pass did
    not reach takes part with zeros. Parameters that all ranks add, freeze or unfreeze later take part accordingly.

    Args:
        optimizer: the optimizer, which must not be used itself any more. State and hyperparameters are shared with it.
        named_parameters: see `model.named_parameters()`. None: parameters go by their place in the optimizer.
        compression: the smaller type that is used on the wire; see `Compression`.
        backward_passes_per_step: backward passes whose gradients are added up locally (not averaged) before that.
        op: Average, Sum, Min, Max or Product of the gradients; or Adasum, which adds up the ranks' steps instead (see
            `AdasumOptimizer`), and to which the arguments after this one, but for process_set, do not apply.
        gradient_predivide_factor: with Average, gradients are divided by it before the sum, and the sum by
            size / factor after it, which keeps 16-bit gradients in range.
        num_groups: into how many groups the parameters are divided, to be reduced group by group. 0: none.
        groups: such groups, as lists of parameters, or their number. Parameters in none are reduced by themselves.
        sparse_as_dense: sparse gradients travel as dense ones. Without it their indices and values are gathered, until
            there are as many as in a dense one, and every rank's first backward pass must reach their parameters.
            Either way they come back as sparse ones, for optimizers that take no others (SparseAdam).
        process_set: the ranks that take part. On others the optimizer is like the one given.
        gradient_as_bucket_view: gradients of parameters on the CPU live in memory that the ranks of a host share, where
            they are reduced in place. For large models with `zero_grad(set_to_none=False)`, whose gradients stay the
            same tensors; new ones are copied there, which costs more than it saves (docs/performance.md). Needs room
            for them all (HVD_ARENA_LIMIT), and brings nothing together with compression.
        wait_in_backward: False: `backward()` does not wait, `step()` does, or `synchronize()`, which must then come
            before anything that reads gradients. As Horovod has it; what is computed between the two overlaps, and
            each gradient is reduced as soon as it is there, however busy the cores are.
        overlap_step: `step()` updates each parameter as soon as its gradient is back, while others still travel, with
            the same result as otherwise. Implies wait_in_backward=False. For torch's own optimizers, which update each
            parameter by itself. If a reduction fails, some parameters have been updated and others not, so in elastic
            jobs `step()` waits for all gradients first; it does so as well if it is given a closure or has hooks.

    Returns:
        An optimizer of a subclass of the given one's class, which has its name, and further `synchronize()`,
        `skip_synchronize()`, `no_sync()`, `set_backward_passes_per_step()` and `release()`.

    Raises:
        ValueError, TypeError: on wrong arguments.
    """
    if isinstance(optimizer, (_Distributed, AdasumOptimizer)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}: expected an optimizer of torch.optim")
    arguments.compressor(compression)
    check_gradient_reduction(op, gradient_predivide_factor)
    if overlap_step:
        _require_parameterwise(optimizer)
    names = _names_of(optimizer, named_parameters)
    passes = arguments.positive(backward_passes_per_step, "backward_passes_per_step")
    trained = {parameter: name for parameter, name in names.items() if parameter.requires_grad}
    chosen_groups = _grouped(list(trained), num_groups, groups)
    if basics.is_initialized() and not process_set._is_known():
        raise ValueError(arguments.not_registered(process_set))
    takes_part = (basics.size() > 1 or elastic.may_grow()) and bool(process_set.included())
    prefix = numbered_name(process_set, "optimizer")
    if op == Adasum and takes_part:
        return AdasumOptimizer.around(optimizer, names, prefix, compression, process_set, passes)
    wrapped = subclassed(optimizer, _Distributed)
    wrapped._parameter_names, wrapped.backward_passes_per_step = names, passes
    wrapped._should_synchronize, wrapped._synchronized, wrapped._gradients = True, False, None
    wrapped._overlaps_step = overlap_step and not elastic.may_grow()
    if takes_part:
        wrapped._gradients = GradientReducer(
            names=trained,
            groups=chosen_groups,
            prefix=prefix,
            passes=passes,
            compression=compression,
            op=op,
            prescale_factor=1.0 / gradient_predivide_factor,
            postscale_factor=gradient_predivide_factor,
            sparse_as_dense=sparse_as_dense,
            as_bucket_view=gradient_as_bucket_view,
            waits_in_backward=wait_in_backward and not overlap_step,
            process_set=process_set,
            add_new=_adder_of(weakref.ref(wrapped)),
        )
    return wrapped


def _adder_of(optimizer: weakref.ref[_Distributed]) -> Callable[[], None]:
    """For the optimizer's reducer, which must not keep it alive."""

    def add_new() -> None:
        alive = optimizer()
        if alive is not None and alive._gradients is not None:
            alive._add_new_parameters(alive._gradients)

    return add_new


def _require_parameterwise(optimizer: torch.optim.Optimizer) -> None:
    """Refuses those that may keep something of a whole step: a count of steps, a norm of all gradients."""
    kind = type(optimizer)
    if getattr(torch.optim, kind.__name__, None) is not kind or kind is torch.optim.LBFGS:
        raise ValueError(
            f"overlap_step: {kind.__name__} is not known to update each parameter by itself, as the optimizers of "
            "torch.optim do but for LBFGS"
        )


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
        shapes = ", ".join(f"number {number} of shape {tuple(held[number].shape)}" for number in unnamed[:5])
        raise ValueError(
            f"named_parameters leaves out {len(unnamed)} of the optimizer's {len(held)} parameters ({shapes}): give "
            "model.named_parameters() of all models that it trains, or leave named_parameters out"
        )
    return {parameter: name_of[parameter] for parameter in held}


def _grouped(
    parameters: list[torch.nn.Parameter], num_groups: int, groups: int | Sequence[Sequence[torch.nn.Parameter]] | None
) -> list[list[torch.nn.Parameter]]:
    """Groups whose members have one dtype and device each, without the parameters that are not trained."""
    if isinstance(groups, int) and num_groups == 0:
        num_groups, groups = groups, None
    if isinstance(groups, int) or (groups is not None and not _are_lists_of_tensors(groups)):
        raise ValueError(
            f"groups is of type {type(groups).__name__}: expected a number, 0 or more, or a list of lists of "
            "parameters, such as [[a.weight, a.bias], [b.weight]]"
        )
    if groups is None:
        if not hasattr(num_groups, "__index__") or num_groups < 0:
            raise ValueError(f"num_groups must be an integer, 0 or more, not {num_groups!r}")
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
        [parameter for parameter in group if (parameter.dtype, parameter.device) == kind]
        for group in chosen
        for kind in dict.fromkeys((parameter.dtype, parameter.device) for parameter in group)
    ]


def _are_lists_of_tensors(groups: object) -> bool:
    return isinstance(groups, (list, tuple)) and all(
        isinstance(group, (list, tuple)) and all(isinstance(member, torch.Tensor) for member in group)
        for group in groups
    )
