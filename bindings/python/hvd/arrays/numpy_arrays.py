"""Arrays and scalars of NumPy, of any dtype without Python objects, and any strides."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hvd import _native
from hvd.arrays.elements import ElementType, element_type
from hvd.arrays.kinds import Kind, Memory

_types: dict[np.dtype[Any], ElementType] = {}
_new = tuple.__new__  # Memory in half the time of a call of the class


def _type_of(dtype: np.dtype[Any]) -> ElementType:
    found = _types.get(dtype)
    if found is None:
        if dtype.names is not None:
            raise ValueError(f"structured arrays ({dtype}) are not supported: give each field as an array")
        if dtype.hasobject:
            raise ValueError(
                f"arrays of Python objects ({dtype}) are not supported: use allgather_object() and its like"
            )
        found = _types[dtype] = element_type(dtype.name, dtype.itemsize)
    return found


def _native_order(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.isnative else dtype.newbyteorder("=")


class _Arrays(Kind):
    def read(self, array: Any) -> Memory:
        element = _types.get(array.dtype) or _type_of(array.dtype)
        address = _native.plain_address(array, False)
        if address:
            return _new(Memory, (address, array.shape, element, -1, 0, array, None))
        return self.read(np.array(array, dtype=_native_order(array.dtype), order="C", subok=False))

    def write(self, array: Any) -> Memory:
        element = _types.get(array.dtype) or _type_of(array.dtype)
        address = _native.plain_address(array, True)
        if address:
            return _new(Memory, (address, array.shape, element, -1, 0, array, None))
        if not array.flags.writeable:
            raise ValueError("a read-only array cannot hold a result")
        if array.size and any(stride == 0 and size > 1 for size, stride in zip(array.shape, array.strides)):
            raise ValueError(f"an array of strides {array.strides} cannot hold a result: its elements share memory")
        room = self.read(np.empty(array.shape, _native_order(array.dtype)))
        return room._replace(finish=lambda: self.copy(array, room.owner))

    def new(self, array: Any, given: Memory) -> Memory:
        return self.write(np.empty_like(array, subok=False))

    def take(self, array: Any, given: Memory, work: _native.Work, index: int) -> Any:
        tensor = _native.ManagedTensor(work.output(index))
        shape = tensor.shape[: len(given.shape)]
        received: Any = np.ndarray(shape, _native_order(array.dtype), memoryview(tensor))
        return received if array.dtype.isnative else received.astype(array.dtype)

    def integers(self, array: Any, values: list[int]) -> Any:
        return np.array(values, dtype=np.int32)


class _Scalars(_Arrays):
    """np.float32(1) and its like: immutable arrays without dimensions."""

    def read(self, array: Any) -> Memory:
        return super().read(np.array(array))  # a scalar gives the address of a copy that is freed at once

    def write(self, array: Any) -> Memory:
        raise ValueError(f"a scalar ({type(array).__name__}) cannot hold a result: give an array")

    def new(self, array: Any, given: Memory) -> Memory:
        result = np.empty((), array.dtype)
        return _ARRAYS.write(result)._replace(finish=lambda: result[()])

    def take(self, array: Any, given: Memory, work: _native.Work, index: int) -> Any:
        return super().take(array, given, work, index)[()]


_ARRAYS, _SCALARS = _Arrays(), _Scalars()


def kind_for(array: Any) -> Kind | None:
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise TypeError("masked arrays are not supported: use filled(), or give data and mask by themselves")
    if isinstance(array, np.ndarray):
        return _ARRAYS
    return _SCALARS if isinstance(array, np.generic) else None
