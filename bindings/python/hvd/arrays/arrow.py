"""Arrays of Arrow: numbers without nulls, tensors and buffers. They cannot be changed, so results are new ones."""

from __future__ import annotations

from typing import Any

import pyarrow

from hvd import _native
from hvd.arrays.buffers import Buffers
from hvd.arrays.dlpack import Exported, ImmutableArrays
from hvd.arrays.kinds import Kind, Memory


def _buffer_of(memory: Any) -> Any:
    """Arrow aborts the process where an empty buffer has no address, as a result without rows has none."""
    return pyarrow.py_buffer(memory if memoryview(memory).nbytes else b"")


class _Arrays(ImmutableArrays):
    def read(self, array: Any) -> Memory:
        try:
            return super().read(array)
        except pyarrow.ArrowException as error:
            raise ValueError(f"this Arrow array of {array.type} is not supported: {error}") from None

    def _made(self, array: Any, exported: Exported) -> Any:
        tensor = _native.ManagedTensor(exported.__dlpack__())
        return pyarrow.Array.from_buffers(array.type, tensor.shape[0], [None, _buffer_of(tensor)])

    def integers(self, array: Any, values: list[int]) -> Any:
        return pyarrow.array(values, type=pyarrow.int32())


class _Buffers(Buffers):
    def _made(self, array: Any, capsule: object) -> Any:
        return _buffer_of(super()._made(array, capsule))


class _Tensors(Buffers):
    def _made(self, array: Any, capsule: object) -> Any:
        import numpy as np  # Arrow makes tensors of NumPy's arrays alone

        return pyarrow.Tensor.from_numpy(np.asarray(super()._made(array, capsule)))


_ARRAYS, _BUFFERS, _TENSORS = _Arrays(), _Buffers(), _Tensors()


def kind_for(array: Any) -> Kind | None:
    if isinstance(array, pyarrow.Array):
        return _ARRAYS
    if isinstance(array, pyarrow.Buffer):
        return _BUFFERS
    return _TENSORS if isinstance(array, pyarrow.Tensor) else None
