"""hvd: collective communication for training.

Training scripts use the package of their framework, which has everything that they need::

    import hvd.torch as hvd

This one has the collectives for arrays of any library, NumPy's and whatever else has DLPack or the buffer protocol, and
imports none. It says where a process stands in its job, and starts jobs from a Python session: `hvd.run`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hvd import _native
from hvd import basics as _basics
from hvd.basics import *  # noqa: F403
from hvd.collectives import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_async,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_async,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    reducescatter,
    reducescatter_async,
)
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from hvd.handles import poll, synchronize
from hvd.prepared import Prepared, prepare
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.progress import tqdm
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum

if TYPE_CHECKING:
    from hvd import data, ps
    from hvd.objects import allgather_object, broadcast_object
    from hvd.run_function import run

__version__: str = _native.version()


# What brings along more than most scripts need: pickling, starting processes, NumPy.
_LATE = {
    "allgather_object": "objects",
    "broadcast_object": "objects",
    "run": "run_function",
    "ps": "ps",
    "data": "data",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'hvd' has no attribute {name!r}")
    module = importlib.import_module(f"hvd.{_LATE[name]}")
    return module if name == _LATE[name] else getattr(module, name)


__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "Prepared",
    "ProcessSet",
    "Product",
    "Sum",
    "__version__",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "data",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "prepare",
    "ps",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "run",
    "synchronize",
    "tqdm",
]
__all__ += _basics.__all__
