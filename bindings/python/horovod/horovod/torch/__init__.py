"""hvd for PyTorch under Horovod's name. Everything of `hvd.torch`, which says what each function does; and where
Horovod refuses what hvd can do, and scripts may count on it, the same error (`horovod.torch.mpi_ops`).
"""

from __future__ import annotations

import importlib
from types import ModuleType

from horovod.torch.mpi_ops import *  # noqa: F403
from horovod.torch.optimizer import DistributedOptimizer as DistributedOptimizer


def __getattr__(name: str) -> ModuleType:
    """`hvd.elastic` is there without an import of its own."""
    if name != "elastic":
        raise AttributeError(f"module 'horovod.torch' has no attribute {name!r}")
    return importlib.import_module("horovod.torch.elastic")
