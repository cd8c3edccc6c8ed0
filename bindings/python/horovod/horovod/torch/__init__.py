"""hvd for PyTorch under Horovod's name. Everything of `hvd.torch`, which says what each function does; and where
Horovod refuses what hvd can do, and scripts may count on it, the same error (`horovod.torch.mpi_ops`).
"""

from __future__ import annotations

import importlib
from types import ModuleType

from horovod.torch.mpi_ops import *  # noqa: F403
from horovod.torch.optimizer import DistributedOptimizer as DistributedOptimizer

_SUBMODULES = ("compression", "functions", "mpi_ops", "optimizer", "sync_batch_norm")

elastic = importlib.import_module("horovod.torch.elastic")  # not hvd.torch's, which the first import above has brought


def __getattr__(name: str) -> ModuleType:
    """Its modules are there without an import of their own."""
    if name not in _SUBMODULES:
        raise AttributeError(f"module 'horovod.torch' has no attribute {name!r}")
    return importlib.import_module(f"horovod.torch.{name}")
