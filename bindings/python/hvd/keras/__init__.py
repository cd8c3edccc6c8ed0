"""hvd for Keras: Keras 3 on TensorFlow, PyTorch and JAX, and tf_keras.

>>> import hvd.keras as hvd
>>> hvd.init()
>>> model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss=loss)
>>> model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from __future__ import annotations

import importlib
from typing import Any

from hvd import basics as _basics
from hvd import checkpoint
from hvd.basics import *  # noqa: F403
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from hvd.keras import callbacks, elastic
from hvd.keras.framework import backend as _backend
from hvd.keras.framework import backend_name as _backend_name
from hvd.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    reducescatter,
)
from hvd.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from hvd.keras.saving import load_model
from hvd.objects import allgather_object, broadcast_object
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum

Compression: Any = _backend().package.Compression

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "checkpoint",
    "elastic",
    "global_process_set",
    "load_model",
    "reducescatter",
    "remove_process_set",
]
__all__ += _basics.__all__


def __getattr__(name: str) -> Any:
    if name == "ps":  # needed by few programs
        return importlib.import_module("hvd.tensorflow.ps" if _backend_name() == "tensorflow" else "hvd.ps")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
