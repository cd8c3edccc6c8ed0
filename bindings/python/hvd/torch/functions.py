"""What a script sends around before and beside its training: parameters, optimizer state, and Python objects."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, Callable

import torch

from hvd import basics
from hvd.objects import broadcast_object
from hvd.process_set import ProcessSet, global_process_set
from hvd.torch.collectives import start_broadcast
from hvd.torch.tensors import delivered, wait_for


def broadcast_parameters(
    params: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | Iterable[torch.Tensor],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites parameters with the root's. All ranks of the set must call it.

    Args:
        params: `model.state_dict()`, `model.named_parameters()`, `model.parameters()` or the like. The same names and
            shapes on every rank; None is passed over.
        root_rank: the rank in the job, and in the set, whose values everybody gets.
        process_set: whose ranks take part.

    Raises:
        ValueError: params is something else, has a value that is no tensor or cannot be sent (sparse, quantized), or
            the root is not in the set.
        HorovodInternalError: the ranks have other names or shapes, or one was lost.
    """
    named = [(name, tensor) for name, tensor in _named(params) if tensor is not None]
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"params has {name!r}, which is no tensor but of type {type(tensor).__name__}: leave it out, and use "
                "broadcast_object() for it"
            )
    _broadcast_all(named, root_rank, "parameters", process_set)


def _named(params: object) -> list[tuple[str, torch.Tensor]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise ValueError(f"params must be a state_dict, named parameters or parameters; not {type(params).__name__}")
    return [item if isinstance(item, tuple) else (str(number), item) for number, item in enumerate(params)]


def _broadcast_all(named: list[tuple[str, torch.Tensor]], root_rank: int, prefix: str, process_set: ProcessSet) -> None:
    """In place, all at once."""
    started = []
    for name, tensor in named:
        tensor = tensor.detach()
        work, received = start_broadcast(tensor, True, root_rank, f"{prefix}.{name}", process_set)
        started.append((work, received, tensor))
    for work, received, tensor in started:
        wait_for(work)
        delivered(received, tensor, True)


class _Sent:
    """Stands for a tensor within the optimizer state while the tensor itself travels as such."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype, self.device_type = tuple(tensor.shape), tensor.dtype, tensor.device.type

    def fits(self, value: object) -> bool:
        return (
            type(value) is torch.Tensor
            and (value.shape, value.dtype, value.layout) == (self.shape, self.dtype, torch.strided)
            and value.device.type == self.device_type
            and value.is_contiguous()
        )


class _Places:
    """Chooses the tensors that receive an optimizer's state: those that are there already, unless two of them, or one
    and a parameter, share memory; else new ones, on the same kind of device as the root's."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        plain = [parameter for parameter in parameters if type(parameter.data) is torch.Tensor]  # no DTensor
        self._taken = {parameter.untyped_storage().data_ptr() for parameter in plain}
        self._devices = {parameter.device.type: parameter.device for parameter in parameters}

    def of(self, sent: _Sent, present: Any) -> torch.Tensor:
        if sent.fits(present):
            memory = present.untyped_storage().data_ptr()  # 0: it has none, as on "meta"
            if memory == 0 or memory not in self._taken:
                self._taken.add(memory)
                return present
        device = self._devices.get(sent.device_type, sent.device_type)
        return torch.empty(sent.shape, dtype=sent.dtype, device=device)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites an optimizer's state and hyperparameters with the root's. All ranks of the set must call it.

    The other ranks' optimizers need not have any state yet, and are not stepped: the root says what there is. If that
    is nothing, the root's optimizer first makes the state that it begins with, as far as it can do so without changing
    what the next step does.

    Args:
        optimizer: of the same class and over the same parameters on every rank.
        root_rank: the rank in the job, and in the set, whose state everybody gets.
        model: not needed; for scripts that give it.
        process_set: whose ranks take part.

    Raises:
        ValueError: for LBFGS, whose state belongs to the rank's own line search, for other groups of parameters than
            the root's, and for a root that is not in the set.
        pickle.PicklingError: the root cannot pickle its hyperparameters; on every rank.
        HorovodInternalError: a rank was lost.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "the state of LBFGS belongs to each rank's own line search: leave broadcast_optimizer_state() out, and "
            "broadcast the parameters"
        )
    is_root = basics.rank() == root_rank
    if is_root and not optimizer.state and not _is_dampened(optimizer):
        materialise_state(optimizer)
    tensors: list[torch.Tensor] = []

    def taken_out(value: object, _: object) -> object:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return _Sent(value)
        return value

    places = _Places(optimizer)

    def put_back(value: object, present: object) -> object:
        if isinstance(value, _Sent):
            tensors.append(places.of(value, present))
            return tensors[-1]
        return value

    present = optimizer.state_dict()
    state = _mapped(taken_out, present) if is_root else None
    state = broadcast_object(state, root_rank, "optimizer_state", process_set)
    if not is_root:
        state = _mapped(put_back, state, present)
    named = [(str(number), tensor) for number, tensor in enumerate(tensors)]
    _broadcast_all(named, root_rank, "optimizer_state", process_set)
    if not is_root:
        _adopt(optimizer, state)


def _is_dampened(optimizer: torch.optim.Optimizer) -> bool:
    """Only a first step is not dampened, so that a state is not the same as none."""
    return any(group.get("dampening") for group in optimizer.param_groups)


def materialise_state(optimizer: torch.optim.Optimizer) -> None:
    """Gives an optimizer the state that it begins with, as far as it has one."""
    groups = optimizer.param_groups
    trained = [[parameter for parameter in group["params"] if parameter.requires_grad] for group in groups]
    smallest = [sorted(parameters, key=torch.Tensor.numel)[:1] for parameters in trained]
    if not _states_after_step(optimizer, smallest):
        return  # before all parameters are copied
    states = _states_after_step(optimizer, trained)
    for group, parameters in zip(groups, trained):
        for parameter in parameters:
            if parameter in states:
                optimizer.state[parameter] = _before_any_step(states[parameter], group)


def _states_after_step(
    optimizer: torch.optim.Optimizer, parameters: list[list[torch.Tensor]]
) -> dict[torch.Tensor, dict[str, Any]]:
    """What a step with zero gradients makes in a twin of the optimizer that has only these parameters, by group."""
    twins = {parameter: _with_zero_gradient(parameter) for group in parameters for parameter in group}
    groups = [
        dict(group, params=[twins[parameter] for parameter in chosen])
        for group, chosen in zip(optimizer.param_groups, parameters)
    ]
    for group in groups:
        group.update({"weight_decay": 0.0} if "weight_decay" in group else {})
    cls: Any = next(cls for cls in type(optimizer).__mro__ if not cls.__module__.startswith(("hvd.", "horovod.")))
    twin = cls.__new__(cls)
    twin.__dict__.update((key, value) for key, value in optimizer.__dict__.items() if key != "step")
    twin.__dict__.update(state=defaultdict(dict), param_groups=groups)
    twin.__dict__.update(_optimizer_step_pre_hooks=OrderedDict(), _optimizer_step_post_hooks=OrderedDict())
    try:
        twin.step()
    except (RuntimeError, TypeError):  # it takes sparse gradients only, or needs a closure
        return {}
    return {parameter: twin.state[copy] for parameter, copy in twins.items() if copy in twin.state}


def _with_zero_gradient(parameter: torch.Tensor) -> torch.Tensor:
    twin = parameter.detach().clone().requires_grad_()
    twin.grad = torch.zeros_like(twin)
    return twin


def _before_any_step(state: dict[str, Any], group: dict[str, Any]) -> dict[str, Any]:
    """The state with what follows from the number of steps as it is before the first one."""
    for name, first in {"step": 0, "mu_product": 1, "eta": group.get("lr")}.items():
        if isinstance(state.get(name), torch.Tensor):
            state[name].fill_(first)
        elif name in state:
            state[name] = first
    return state


def _adopt(optimizer: torch.optim.Optimizer, received: dict[str, Any]) -> None:
    """Puts a received state dictionary in place, as it is: the root's own tensors were not cast either, and a scheduler
    may hold the dictionaries of hyperparameters."""
    groups = received["param_groups"]
    sizes, own_sizes = ([len(group["params"]) for group in of] for of in (groups, optimizer.param_groups))
    if sizes != own_sizes:
        raise ValueError(f"the optimizer's groups have {own_sizes} parameters here, but {sizes} on the root")
    parameter_of: dict[int, torch.nn.Parameter] = {}
    for own, group in zip(optimizer.param_groups, groups):
        parameter_of.update(zip(group["params"], own["params"]))
        own.update((key, value) for key, value in group.items() if key != "params")
    optimizer.state.clear()
    optimizer.state.update((parameter_of.get(key, key), value) for key, value in received["state"].items())


def _mapped(function: Callable[[object, object], object], value: Any, beside: Any = None) -> Any:
    """The same nest of dictionaries, lists and tuples, with the function applied to each leaf and to what is at its
    place in the nest `beside`, or None."""
    if isinstance(value, dict):
        named = beside if isinstance(beside, dict) else {}
        return {key: _mapped(function, inner, named.get(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        listed = beside[: len(value)] if isinstance(beside, (list, tuple)) else ()
        mapped = [_mapped(function, *pair) for pair in zip_longest(value, listed)]
        cls: Any = type(value)
        return cls(*mapped) if hasattr(value, "_fields") else cls(mapped)  # a named tuple takes each by itself
    return function(value, beside)
