"""The collectives of `hvd.keras`, which give back tensors of TensorFlow for NumPy arrays and numbers, too."""

from __future__ import annotations

import functools
from typing import Any, Callable

import hvd.keras as _hvd
from hvd.keras.framework import backend, backend_name, is_plain

__all__ = ["allgather", "allreduce", "broadcast", "reducescatter"]


def _giving_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(value: Any, *args: Any, **kwargs: Any) -> Any:
        as_tensor = is_plain(value) and backend_name() == "tensorflow"
        return function(backend().tensor(value) if as_tensor else value, *args, **kwargs)

    return called


allgather = _giving_tensors(_hvd.allgather)
allreduce = _giving_tensors(_hvd.allreduce)
broadcast = _giving_tensors(_hvd.broadcast)
reducescatter = _giving_tensors(_hvd.reducescatter)
