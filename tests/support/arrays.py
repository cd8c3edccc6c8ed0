"""Collectives of NumPy arrays, for programs that are about jobs: importing a framework takes seconds."""

from __future__ import annotations

import numpy as np

from hvd import _native
from hvd.reduce_op import Average, Max, Sum

__all__ = ["Average", "Max", "Sum", "allreduce", "broadcast"]


def _run(collective: int, name: str | None, op: int, root: int, array: np.ndarray, process_set: int) -> np.ndarray:
    assert array.dtype == np.float32
    result = array.copy()
    addresses = [result.ctypes.data]
    spec = _native.OperationSpec(collective, name, process_set, [(result.shape, _native.FLOAT32)], op, root)
    _native.run(spec, addresses, addresses, result)
    return result


def allreduce(values, name: str | None = None, op: int = Average, process_set: int = 0) -> np.ndarray:
    """Of float32, the same shape on every rank of the set; named as hvd.torch names it."""
    full_name = None if name is None else f"allreduce.{name}"
    return _run(_native.ALLREDUCE, full_name, op, 0, np.asarray(values, np.float32), process_set)


def broadcast(values, root_rank: int, name: str | None = None) -> np.ndarray:
    full_name = None if name is None else f"broadcast.{name}"
    return _run(_native.BROADCAST, full_name, Sum, root_rank, np.asarray(values, np.float32), 0)
