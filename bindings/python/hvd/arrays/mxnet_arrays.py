"""Arrays of MXNet, which are waited for: operations here are not in MXNet's engine. In hvd.mxnet they are."""

from __future__ import annotations

import ctypes
from typing import Any

import mxnet
import numpy as np
from mxnet.base import _LIB, check_call
from mxnet.ndarray.sparse import BaseSparseNDArray

from hvd import _native
from hvd.arrays.elements import ElementType, element_type
from hvd.arrays.kinds import Kind, Memory


def require_dense_on_cpu(array: Any) -> None:
    """ValueError for an array that hvd cannot take."""
    if isinstance(array, BaseSparseNDArray):
        raise ValueError(f"sparse arrays ({array.stype}) are not supported: tostype('default') makes a dense one")
    if array.context.device_type == "gpu":
        raise ValueError("MXNet's arrays on GPUs are not supported: as_in_context(mxnet.cpu()) makes one on the CPU")


def type_of(array: Any) -> ElementType:
    dtype = np.dtype(array.dtype)
    name = dtype.names[0] if dtype.names else dtype.name  # bfloat16 is a structure there
    return element_type(name, dtype.itemsize)


def _empty(array: Any, shape: tuple[int, ...]) -> Any:
    """A new array like this one. Without NumPy's semantics a dimension of 0 means one that is not known."""
    with mxnet.util.np_shape(True):
        module = mxnet.np if isinstance(array, mxnet.np.ndarray) else mxnet.nd
        return module.empty(shape, dtype=array.dtype, ctx=array.context)


def _memory(array: Any) -> Memory:
    """The elements of an array that nothing is about to change, in the order of their indices."""
    address = ctypes.c_void_p()
    if array.size:
        check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return Memory(address.value or 0, tuple(array.shape), type_of(array), -1, 0, array)


class _Arrays(Kind):
    def read(self, array: Any) -> Memory:
        require_dense_on_cpu(array)
        array.wait_to_read()
        return _memory(array)

    def write(self, array: Any) -> Memory:
        # Not its own memory, since the engine is to know of every change.
        given = self.read(array)
        room = self.new(array, given)
        return room._replace(finish=lambda: self.copy(array, room.owner))

    def new(self, array: Any, given: Memory) -> Memory:
        return _memory(_empty(array, given.shape))

    def take(self, array: Any, given: Memory, work: _native.Work, index: int) -> Any:
        tensor = _native.ManagedTensor(work.output(index))
        room = _memory(_empty(array, tensor.shape))
        ctypes.memmove(room.address, tensor.address, memoryview(tensor).nbytes)
        return room.owner

    def copy(self, target: Any, source: Any) -> Any:
        with mxnet.autograd.pause():
            source.copyto(target)
        return target

    def integers(self, array: Any, values: list[int]) -> Any:
        return (mxnet.np if isinstance(array, mxnet.np.ndarray) else mxnet.nd).array(values, dtype="int32")


_ARRAYS = _Arrays()


def kind_for(array: Any) -> Kind | None:
    return _ARRAYS if isinstance(array, mxnet.nd.NDArray) else None
