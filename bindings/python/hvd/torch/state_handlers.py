"""How the values of `hvd.torch.elastic.TorchState` are saved, restored and synchronised."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch

from hvd.elastic import source_rank, sync_root, sync_set
from hvd.objects import broadcast_object
from hvd.process_set import ProcessSet
from hvd.torch.elastic_sampler import ElasticSampler
from hvd.torch.functions import broadcast_optimizer_state, broadcast_parameters, materialise_state
from hvd.torch.sharded_checkpoint import has_dtensors, is_placed_alike
from hvd.torch.subclassed import state_in_place


@runtime_checkable
class Stateful(Protocol):
    """Learning-rate schedulers, gradient scalers, loaders (`torchdata.stateful_dataloader`), and whatever else has a
    state dictionary."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object: ...


class StateHandler:
    """Saves, restores and synchronises one value of a TorchState. Subclasses say how.

    Attributes:
        value: what it is for.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        """Gives every rank the value of `hvd.elastic.source_rank()`. All ranks must call it. It need not save: `save`
        is called once every value has come, so that a state is never half of one rank and half of another."""
        raise NotImplementedError

    def make_room(self) -> None:
        """As in State."""

    def reset(self) -> None:
        """A new job was joined, or the next epoch of an elastic job."""

    # For State.finish_step(). It saves everything if a subclass has changed `save` or `restore` and not these.

    def save_step(self) -> None:
        """Keeps what the next step may change before its gradients are there."""
        raise NotImplementedError

    def is_whole(self) -> bool:
        """Whether `restore_step` can go back to the last `save_step`."""
        raise NotImplementedError

    def restore_step(self) -> None:
        raise NotImplementedError

    def saved(self) -> Any:
        """For checkpoints: what `save` has kept, which does not change any more."""
        raise NotImplementedError

    def load(self, saved: Any) -> None:
        """Takes what `saved` has returned; `save` follows."""
        raise NotImplementedError

    # For values whose tensors are divided among the ranks (DTensor).

    def is_sharded(self) -> bool:
        """Whether it is such a value."""
        return False

    def to_fill(self) -> dict[str, Any]:
        """Its state dictionary, with the tensors in which `load` expects this rank's parts."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Another value takes the place of the old one."""
        self.value = value
        self.save()


class StateDictHandler(StateHandler):
    """A value that has a state dictionary, which is pickled to be synchronised."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self._saved_step: Any = None
        self._is_lent = False  # a checkpoint may be reading what is saved
        self.save()

    def save(self) -> None:
        self._saved = _copied(self.value.state_dict(), None if self._is_lent else self._saved)
        self._is_lent = False

    def restore(self) -> None:
        self.value.load_state_dict(_copied(self._saved))  # which may keep tensors without copying them

    def save_step(self) -> None:
        self._saved_step = _copied(self.value.state_dict(), self._saved_step)

    def is_whole(self) -> bool:
        return True

    def restore_step(self) -> None:
        self.value.load_state_dict(_copied(self._saved_step))

    def saved(self) -> Any:
        self._is_lent = True
        return self._saved

    def load(self, saved: Any) -> None:
        self.value.load_state_dict(saved)

    def is_sharded(self) -> bool:
        return has_dtensors(self._saved)

    def to_fill(self) -> dict[str, Any]:
        return dict(self.value.state_dict())

    def sync(self) -> None:
        """Each rank has its own part of what is sharded, from the same checkpoint."""
        if self.is_sharded():
            self._sync_sharded()
        else:
            self._sync_whole()

    def _sync_sharded(self) -> None:
        """For subclasses: gives every rank what is not sharded. Here nothing: each rank has read or made its own."""

    def _sync_whole(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=source_rank()))


class ModelStateHandler(StateDictHandler):
    """Parameters and buffers of a module. A forward pass may change the buffers."""

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)

    def save_step(self) -> None:
        self._saved_step = _copied(dict(self.value.named_buffers()), self._saved_step)
        self._parameters = _versions(self.value.parameters())

    def is_whole(self) -> bool:
        buffers = dict(self.value.named_buffers())
        return (
            _are_unchanged(self._parameters, self.value.parameters())
            and buffers.keys() == self._saved_step.keys()
            and all(_has_room(buffer, self._saved_step[name]) for name, buffer in buffers.items())
        )

    @torch.no_grad()
    def restore_step(self) -> None:
        for name, buffer in self.value.named_buffers():
            buffer.copy_(self._saved_step[name])

    def _sync_whole(self) -> None:
        if among := sync_set():
            _broadcast_state(self.value, self.value.state_dict(), among)

    def _sync_sharded(self) -> None:
        if among := sync_set():
            whole = {name: value for name, value in self.value.state_dict().items() if not has_dtensors(value)}
            _broadcast_state(self.value, whole, among)


def _broadcast_state(module: torch.nn.Module, state: dict[str, Any], among: ProcessSet) -> None:
    """Tensors in place; what else modules keep (`get_extra_state`) as Python objects."""
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    broadcast_parameters(tensors, root_rank=sync_root(), process_set=among)
    if others := {name: value for name, value in state.items() if name not in tensors}:
        received = broadcast_object(others, root_rank=sync_root(), process_set=among)
        module.load_state_dict(received, strict=False)


class OptimizerStateHandler(StateDictHandler):
    """State and hyperparameters of an optimizer. Gradients are discarded when it goes back."""

    _watched: Any = None  # the optimizer whose steps are noticed

    def save_step(self) -> None:
        self._saved_step = copy.deepcopy(self._hyperparameters())
        if self._watched is not self.value:
            self._watched = self.value
            self.value.register_step_pre_hook(self._note_step)
        self._has_stepped = False

    def _note_step(self, *_: Any) -> None:
        self._has_stepped = True

    def is_whole(self) -> bool:
        return self._watched is self.value and not self._has_stepped

    def restore_step(self) -> None:
        self._discard_gradients()
        for group, saved in zip(self.value.param_groups, copy.deepcopy(self._saved_step)):
            group.update(saved)

    def _hyperparameters(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in group.items() if name != "params"} for group in self.value.param_groups]

    def _discard_gradients(self) -> None:
        reducer = getattr(self.value, "_gradients", None)
        if reducer is not None:
            reducer.forget()  # what was under way when the job broke never comes back
        self.value.zero_grad()

    def restore(self) -> None:
        self._discard_gradients()
        with state_in_place(self.value):  # which a DistributedOptimizer that was made of it later shares
            super().restore()

    def load(self, saved: Any) -> None:
        with state_in_place(self.value):
            super().load(saved)

    def make_room(self) -> None:
        """Allocates the optimizer's initial state and a copy of it, but not on a GPU: its memory needs no clearing, and
        the script may have a use for every byte of it."""
        parameters = [parameter for group in self.value.param_groups for parameter in group["params"]]
        if not self.value.state and not self.is_sharded() and all(parameter.is_cpu for parameter in parameters):
            materialise_state(self.value)
            self.save()

    def is_sharded(self) -> bool:
        return has_dtensors([group["params"] for group in self.value.param_groups])

    def to_fill(self) -> dict[str, Any]:
        if not self.value.state:
            materialise_state(self.value)
        return super().to_fill()

    def _sync_whole(self) -> None:
        if among := sync_set():
            broadcast_optimizer_state(self.value, root_rank=sync_root(), process_set=among)


class SamplerStateHandler(StateDictHandler):
    """How far an ElasticSampler has come."""

    def reset(self) -> None:
        """Divides the rest among the ranks of the new job."""
        self.value.reset()


class StatefulHandler(StateDictHandler):
    """Whatever else has a state dictionary."""

    def reset(self) -> None:
        """A loader whose loop was left begins at its start, if its state is not loaded."""
        self.value.load_state_dict(_copied(self.value.state_dict()))


def _versions(tensors: Iterable[torch.Tensor]) -> list[tuple[torch.Tensor, int]]:
    """PyTorch's operations change a tensor's version with its values; fused optimizers and `.data` do not."""
    return [(tensor, tensor._version) for tensor in tensors]


def _are_unchanged(before: list[tuple[torch.Tensor, int]], tensors: Iterable[torch.Tensor]) -> bool:
    now = _versions(tensors)
    return len(now) == len(before) and all(
        one is other and version == other_version for (one, version), (other, other_version) in zip(before, now)
    )


def _copied(value: Any, earlier: Any = None) -> Any:
    """A deep copy of a state dictionary. Tensors go into those of an earlier copy where they fit, which takes a
    fraction of the time: of new memory, each page is first cleared by the kernel."""
    with torch.inference_mode(False), torch.no_grad():
        return _copy(value, earlier)


def _copy(value: Any, earlier: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if not _has_room(earlier, value):
            return value.detach().clone()
        return earlier.copy_(value)
    if isinstance(value, dict):
        result = copy.copy(value)  # with its attributes, such as the versions of the modules
        for key, item in value.items():
            result[key] = _copy(item, earlier.get(key) if isinstance(earlier, dict) else None)
        return result
    if isinstance(value, list):
        known = earlier if isinstance(earlier, list) and len(earlier) == len(value) else [None] * len(value)
        return [_copy(item, other) for item, other in zip(value, known)]
    return copy.deepcopy(value)


def _has_room(earlier: Any, tensor: torch.Tensor) -> bool:
    return (
        type(earlier) is type(tensor)
        and (not has_dtensors(tensor) or is_placed_alike(earlier, tensor))
        and earlier.layout == tensor.layout == torch.strided
        and (earlier.shape, earlier.dtype, earlier.device) == (tensor.shape, tensor.dtype, tensor.device)
    )


HandlerRegistry = list[tuple[type, type[StateHandler]]]

_handler_registry: HandlerRegistry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> HandlerRegistry:
    """Which class of handler a value of a TorchState gets: that of the first class in the list that it belongs to."""
    return _handler_registry


def set_handler_registry(registry: HandlerRegistry) -> None:
    """Replaces the list, for states that are made later."""
    global _handler_registry
    _handler_registry = registry


def handler_of(value: Any) -> StateHandler | None:
    """None: it is a plain object."""
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    return StatefulHandler(value) if isinstance(value, Stateful) and not isinstance(value, type) else None


def keeps_steps(kind: type) -> bool:
    """Whether a class's `save_step` belongs to its `save` and `restore`: not if a subclass has changed only these."""

    def place(name: str) -> int:
        return next(i for i, one in enumerate(kind.__mro__) if name in vars(one))

    return place("save_step") <= min(place("save"), place("restore"))
