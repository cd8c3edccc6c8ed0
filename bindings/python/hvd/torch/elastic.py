"""Elastic training with PyTorch: a state of models, optimizers, samplers and Python objects."""

from __future__ import annotations

import copy
import functools
import math
import pathlib
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Callable, Protocol, runtime_checkable

import torch

from hvd import basics
from hvd.elastic import ObjectState, State, from_source, join_anew, run_fn, source_rank
from hvd.exceptions import HorovodInternalError
from hvd.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ElasticSampler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function elastic: see `hvd.elastic.run_fn`. Its first argument is a State, as TorchState is."""

    @functools.wraps(func)
    def translating(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:  # autograd, which calls DistributedDataParallel, keeps only the text
            if HorovodInternalError.__name__ in str(error) and not isinstance(error, HorovodInternalError):
                raise HorovodInternalError(str(error)) from error
            raise

    return run_fn(translating, join_anew)


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides a data set among the ranks, and knows what of it was processed in this epoch: after a change of the job
    the rest is divided anew.

    Call `record_batch` for each batch, and `set_epoch` at the end of each epoch, so that the next one has everything
    again, in another order. Every rank gets equally many samples; for that the first of the rest may come twice.

    Args:
        dataset: anything that has a length.
        shuffle: whether the order is another one in each epoch; the same on all ranks.
        seed: of that order; the same on every rank.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which nothing was processed yet."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has processed a batch of this size. `batch_idx`: not needed; for scripts that give it."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides what is left among the ranks of the job as it is now."""
        self.num_replicas, self.rank = basics.size(), basics.rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        repeated = (left[position % len(left)] for position in range(self.rank, self.total_size, self.num_replicas))
        return iter(list(repeated))

    def __len__(self) -> int:
        return self.num_samples


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

    # For State.finish_step(); without them, it saves everything.

    has_steps = False

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

    def set_value(self, value: Any) -> None:
        """Another value takes the place of the old one."""
        self.value = value
        self.save()


class StateDictHandler(StateHandler):
    """A value that has a state dictionary, which is pickled to be synchronised."""

    has_steps = True

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
        self.value.load_state_dict(self._saved)

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

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=source_rank()))


class ModelStateHandler(StateDictHandler):
    """Parameters and buffers of a module. A forward pass may change the buffers."""

    def save_step(self) -> None:
        self._saved_step = _copied(dict(self.value.named_buffers()), self._saved_step)
        self._versions = _versions(self.value.parameters())

    def is_whole(self) -> bool:
        buffers = dict(self.value.named_buffers())
        return (
            _versions(self.value.parameters()) == self._versions
            and buffers.keys() == self._saved_step.keys()
            and all(_has_room(buffer, self._saved_step[name]) for name, buffer in buffers.items())
        )

    @torch.no_grad()
    def restore_step(self) -> None:
        for name, buffer in self.value.named_buffers():
            buffer.copy_(self._saved_step[name])

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=source_rank())


class OptimizerStateHandler(StateDictHandler):
    """State and hyperparameters of an optimizer. Gradients are discarded when it goes back."""

    def save_step(self) -> None:
        self._saved_step = copy.deepcopy(self._hyperparameters())
        self._versions = _versions(self._tensors())

    def is_whole(self) -> bool:
        return _versions(self._tensors()) == self._versions

    def restore_step(self) -> None:
        self._discard_gradients()
        for group, saved in zip(self.value.param_groups, copy.deepcopy(self._saved_step)):
            group.update(saved)

    def _hyperparameters(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in group.items() if name != "params"} for group in self.value.param_groups]

    def _tensors(self) -> Iterator[torch.Tensor]:
        for group in self.value.param_groups:
            yield from group["params"]
        for of_parameter in self.value.state.values():
            yield from (value for value in of_parameter.values() if isinstance(value, torch.Tensor))

    def _discard_gradients(self) -> None:
        reducer = getattr(self.value, "_gradients", None)
        if reducer is not None:
            reducer.forget()  # what was under way when the job broke never comes back
        self.value.zero_grad()

    def restore(self) -> None:
        self._discard_gradients()
        self.value.load_state_dict(_copied(self._saved))  # which may keep tensors without copying them

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=source_rank())


class SamplerStateHandler(StateDictHandler):
    """How far an ElasticSampler has come."""


def _versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Any change of a tensor by PyTorch's operations changes its version, within no_grad, too."""
    return [tensor._version for tensor in tensors]


@torch.no_grad()
def _copied(value: Any, earlier: Any = None) -> Any:
    """A deep copy of a state dictionary. Tensors go into those of an earlier copy where they fit, which takes a
    fraction of the time: of new memory, each page is first cleared by the kernel."""
    if isinstance(value, torch.Tensor):
        if not _has_room(earlier, value):
            return value.detach().clone()
        return earlier.copy_(value)
    if isinstance(value, dict):
        result = copy.copy(value)  # with its attributes, such as the versions of the modules
        for key, item in value.items():
            result[key] = _copied(item, earlier.get(key) if isinstance(earlier, dict) else None)
        return result
    if isinstance(value, list):
        known = earlier if isinstance(earlier, list) and len(earlier) == len(value) else [None] * len(value)
        return [_copied(item, other) for item, other in zip(value, known)]
    return copy.deepcopy(value)


def _has_room(earlier: Any, tensor: torch.Tensor) -> bool:
    return (
        type(earlier) is type(tensor)
        and earlier.layout == tensor.layout == torch.strided
        and (earlier.shape, earlier.dtype, earlier.device) == (tensor.shape, tensor.dtype, tensor.device)
    )


HandlerRegistry = list[tuple[type, type[StateHandler]]]

_handler_registry: HandlerRegistry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (Stateful, StateDictHandler),
]


def get_handler_registry() -> HandlerRegistry:
    """Which class of handler a value of a TorchState gets: that of the first class in the list that it belongs to."""
    return _handler_registry


def set_handler_registry(registry: HandlerRegistry) -> None:
    """Replaces the list, for states that are made later."""
    global _handler_registry
    _handler_registry = registry


class TorchState(ObjectState):
    """A training state with PyTorch: each keyword is an attribute. Modules, optimizers, samplers, schedulers and what
    else has a state dictionary are saved and synchronised through it, everything else as a Python object.

    Args:
        model: the model, if there is one; more of them as keywords of other names.
        optimizer: the optimizer, likewise; before or after `DistributedOptimizer`.
        kwargs: whatever else belongs to the state, for instance epoch=0, batch=0.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        handlers = {name: _handler_of(value) for name, value in values.items()}
        self._handlers: dict[str, StateHandler] = {name: made for name, made in handlers.items() if made is not None}
        plain = {name: value for name, value in values.items() if name not in self._handlers}
        for name in self._handlers:
            super().__setattr__(name, values[name])
        super().__init__(from_source(broadcast_object), basics.rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def save_step(self) -> None:
        if not self._has_steps():
            return super().save_step()
        for handler in self._handlers.values():
            handler.save_step()
        self._saved_step = self._copied_attributes()

    def restore_step(self) -> bool:
        if not self._has_steps():
            return super().restore_step()
        if not all(handler.is_whole() for handler in self._handlers.values()):
            return False
        for handler in self._handlers.values():
            handler.restore_step()
        self._set_attributes(copy.deepcopy(self._saved_step))
        return True

    def _has_steps(self) -> bool:
        return all(handler.has_steps for handler in self._handlers.values())

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    file_name = "state.pt"

    def saved(self) -> dict[str, Any]:
        return super().saved() | {name: handler.saved() for name, handler in self._handlers.items()}

    def load(self, saved: dict[str, Any]) -> None:
        if set(saved) != {"objects", *self._handlers}:
            raise ValueError(f"it has {sorted(saved)}, and this state objects, {', '.join(self._handlers)}")
        for name, handler in self._handlers.items():
            handler.load(saved[name])
        super().load(saved)

    def write(self, saved: dict[str, Any], file: pathlib.Path) -> None:
        torch.save(saved, file)

    def read(self, file: pathlib.Path) -> None:
        self.load(torch.load(file, map_location="cpu", weights_only=False))

    def reset(self) -> None:
        """A sampler divides its data among the ranks of the new job."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    return None
