"""Elastic training with PyTorch: a state of models, optimizers, samplers and Python objects."""

from __future__ import annotations

import copy
import functools
import pathlib
from typing import Any, Callable

import torch

from hvd import basics
from hvd.elastic import ObjectState, State, from_source, join_anew, run_fn
from hvd.exceptions import HorovodInternalError
from hvd.objects import broadcast_object
from hvd.torch import sharded_checkpoint
from hvd.torch.elastic_sampler import ElasticSampler
from hvd.torch.sharded_checkpoint import has_dtensors
from hvd.torch.state_handlers import (
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateDictHandler,
    StateHandler,
    get_handler_registry,
    handler_of,
    keeps_steps,
    set_handler_registry,
)

__all__ = [
    "ElasticSampler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateDictHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]

_FILE = "state.pt"


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
        handlers = {name: handler_of(value) for name, value in values.items()}
        self._handlers: dict[str, StateHandler] = {name: made for name, made in handlers.items() if made is not None}
        self._keeps_steps = all(keeps_steps(kind) for kind in {type(self), *map(type, self._handlers.values())})
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
        if not self._keeps_steps:
            return super().save_step()
        for handler in self._handlers.values():
            handler.save_step()
        self._saved_step = self._copied_attributes()

    def restore_step(self) -> bool:
        if not all(handler.is_whole() for handler in self._handlers.values()):
            return False
        for handler in self._handlers.values():
            handler.restore_step()
        self._set_attributes(copy.deepcopy(self._saved_step))
        return True

    def make_room(self) -> None:
        for handler in self._handlers.values():
            handler.make_room()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def saved(self) -> dict[str, Any]:
        if self.is_sharded() and not basics.is_initialized():
            raise ValueError('the state is sharded: call init_process_group("hvd") or hvd.init() before')
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()  # a thread that reads it has another stream
        return super().saved() | {name: handler.saved() for name, handler in self._handlers.items()}

    def load(self, saved: dict[str, Any]) -> None:
        if set(saved) != {"objects", *self._handlers}:
            raise ValueError(
                f"the checkpoint has {sorted(saved)}, but this state has {sorted(['objects', *self._handlers])}: make "
                "the state with the same names, or use another folder"
            )
        for name, handler in self._handlers.items():
            handler.load(saved[name])
        super().load(saved)

    def is_sharded(self) -> bool:
        return any(handler.is_sharded() for handler in self._handlers.values())

    def write(self, saved: dict[str, Any], folder: pathlib.Path, rank: int = 0) -> list[pathlib.Path]:
        """What is sharded, as a checkpoint of torch.distributed.checkpoint; the rest by torch.save, on rank 0."""
        sharded = {name: saved[name] for name in self._handlers if has_dtensors(saved[name])}
        files = sharded_checkpoint.write_part(sharded, folder, rank) if sharded else []
        if rank == 0:
            torch.save({name: value for name, value in saved.items() if name not in sharded}, folder / _FILE)
            files.append(folder / _FILE)
        return files

    def complete(self, folder: pathlib.Path, ranks: int) -> list[pathlib.Path]:
        return sharded_checkpoint.complete(folder, ranks)

    def read(self, folder: pathlib.Path) -> None:
        saved = torch.load(folder / _FILE, map_location="cpu", weights_only=False)
        if sharded_checkpoint.is_in(folder):
            present = {name: handler.to_fill() for name, handler in self._handlers.items() if name not in saved}
            saved |= sharded_checkpoint.read(folder, present)
        self.load(saved)

    def on_reset(self) -> None:
        """As in State.

        Raises:
            RuntimeError: the state has tensors (DTensor) that are divided among the ranks of the last job or epoch.
        """
        super().on_reset()
        if lost := [name for name, handler in self._handlers.items() if handler.is_sharded()]:
            raise RuntimeError(
                f"{' and '.join(lost)}: tensors (DTensor) are divided among ranks that have changed. Make them, and "
                "their state, within the function of hvd.elastic.run: hvd.checkpoint.keep() there goes on with the "
                "newest checkpoint, at any number of ranks"
            )

    def _go_back(self) -> None:
        """Only a checkpoint has a sharded state once a rank is lost."""
        if not self.is_sharded():
            super()._go_back()

    def reset(self) -> None:
        for handler in self._handlers.values():
            handler.reset()
