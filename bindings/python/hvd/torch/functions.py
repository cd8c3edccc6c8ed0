"""What a script sends around before and beside its training: parameters, optimizer state, and Python objects."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping

import cloudpickle
import torch

from hvd import basics
from hvd.process_set import ProcessSet, global_process_set
from hvd.torch.collectives import broadcast_, start_broadcast
from hvd.torch.differentiable import allgather
from hvd.torch.tensors import wait_for


def broadcast_parameters(
    params: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | Iterable[torch.Tensor], root_rank: int
) -> None:
    """Overwrites parameters with the root's. All ranks must call it.

    Args:
        params: `model.state_dict()`, `model.named_parameters()`, `model.parameters()` or the like. The same names and
            shapes on every rank; None is passed over.
        root_rank: the rank whose values everybody gets.

    Raises:
        ValueError: params is something else.
        HorovodInternalError: ranks disagree, or one was lost.
    """
    named = [(name, tensor) for name, tensor in _named(params) if tensor is not None]
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} is not a tensor but a {type(tensor).__name__}")
    _broadcast_all(named, root_rank, "parameters")


def _named(params: object) -> list[tuple[str, torch.Tensor]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise ValueError(f"params must be a state_dict, named parameters or parameters; not {type(params).__name__}")
    return [item if isinstance(item, tuple) else (str(number), item) for number, item in enumerate(params)]


def _broadcast_all(named: list[tuple[str, torch.Tensor]], root_rank: int, prefix: str) -> None:
    """In place, all at once. Tensors with other strides than row-major (channels_last) travel as copies."""
    started = []
    for name, tensor in named:
        tensor = tensor.detach()
        contiguous = tensor.contiguous()
        work, received = start_broadcast(contiguous, True, root_rank, f"{prefix}.{name}", global_process_set)
        started.append((work, received, tensor))
    for work, received, tensor in started:
        wait_for(work)
        if received.data_ptr() != tensor.data_ptr():
            tensor.copy_(received)


class _Sent:
    """Stands for a tensor within the optimizer state while the tensor itself travels as such."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Overwrites an optimizer's state and hyperparameters with the root's. All ranks must call it.

    The other ranks' optimizers need not have any state yet, and are not stepped: the root says what there is.

    Args:
        optimizer: of the same class and over the same parameters on every rank.
        root_rank: the rank whose state everybody gets.
        model: not needed; for scripts that give it.

    Raises:
        ValueError: for LBFGS, whose state belongs to the rank's own line search, and for other groups of parameters
            than the root's.
        HorovodInternalError: a rank was lost.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of LBFGS cannot be broadcast")
    is_root = basics.rank() == root_rank
    tensors: list[torch.Tensor] = []

    def taken_out(value: object) -> object:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return _Sent(value)
        return value

    def put_back(value: object) -> object:
        if isinstance(value, _Sent):
            tensors.append(torch.empty(value.shape, dtype=value.dtype))
            return tensors[-1]
        return value

    state = _mapped(taken_out, optimizer.state_dict()) if is_root else None
    state = broadcast_object(state, root_rank, "optimizer_state")
    if not is_root:
        state = _mapped(put_back, state)
    named = [(str(number), tensor) for number, tensor in enumerate(tensors)]
    _broadcast_all(named, root_rank, "optimizer_state")
    if not is_root:
        _adopt(optimizer, state)


def _adopt(optimizer: torch.optim.Optimizer, received: dict) -> None:
    """Puts a received state dictionary in place, as it is: the root's own tensors were not cast either, and a scheduler
    may hold the dictionaries of hyperparameters."""
    groups = received["param_groups"]
    sizes, own_sizes = ([len(group["params"]) for group in of] for of in (groups, optimizer.param_groups))
    if sizes != own_sizes:
        raise ValueError(f"the optimizer's groups have {own_sizes} parameters here, but {sizes} on the root")
    parameter_of = {}
    for own, group in zip(optimizer.param_groups, groups):
        parameter_of.update(zip(group["params"], own["params"]))
        own.update((key, value) for key, value in group.items() if key != "params")
    optimizer.state.clear()
    optimizer.state.update((parameter_of.get(key, key), value) for key, value in received["state"].items())


def _mapped(function, value: object) -> object:
    """The same nest of dictionaries, lists and tuples, with the function applied to what is in them."""
    if isinstance(value, dict):
        return {key: _mapped(function, inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(function, inner) for inner in value)
    return function(value)


def _pickled(obj: object) -> torch.Tensor:
    return torch.frombuffer(bytearray(cloudpickle.dumps(obj)), dtype=torch.uint8)


def _unpickled(data: torch.Tensor) -> object:
    return cloudpickle.loads(ctypes.string_at(data.data_ptr(), data.numel()))


def broadcast_object(
    obj: object, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> object:
    """Gives every rank the root's object, pickled on the way. All ranks must call it.

    Args:
        obj: anything that cloudpickle can write; looked at on the root only.
        root_rank: the rank whose object everybody gets.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        The root's own object there, a copy on the other ranks.
    """
    is_root = basics.rank() == root_rank
    data = _pickled(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([data.numel()])
    broadcast_(size, root_rank, None if name is None else f"{name}.sz", process_set)
    if not is_root:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, None if name is None else f"{name}.t", process_set)
    return obj if is_root else _unpickled(data)


def allgather_object(obj: object, name: str | None = None) -> list[object]:
    """Gives every rank the objects of all ranks, in rank order, pickled on the way. All ranks must call it."""
    data = _pickled(obj)
    sizes = allgather(torch.tensor([data.numel()]), None if name is None else f"{name}.sz")
    everything = allgather(data, None if name is None else f"{name}.t")
    return [_unpickled(part) for part in everything.split(sizes.tolist())]
