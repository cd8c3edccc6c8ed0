"""Objects with the buffer protocol: array.array, memoryview, bytes, bytearray, mmap, arrays of ctypes."""

from __future__ import annotations

import array as python_arrays
from typing import Any

from hvd import _native
from hvd.arrays.elements import ElementType, buffer_type
from hvd.arrays.kinds import Kind, Memory, allocate, taken_capsule


def buffer_memory(view: memoryview, element: ElementType | None = None) -> Memory:
    """`element`: what the format cannot say."""
    element = element or buffer_type(view.format, view.itemsize)
    shape = view.shape or ()
    if view.c_contiguous:
        return Memory(_native.buffer_address(view), shape, element, -1, 0, view)
    elements = view.tobytes()
    return Memory(_native.buffer_address(elements), shape, element, -1, 0, elements)


class Buffers(Kind):
    """Results are memoryviews of new memory."""

    def read(self, array: Any) -> Memory:
        return buffer_memory(memoryview(array))

    def write(self, array: Any) -> Memory:
        view = memoryview(array)
        if view.readonly:
            raise ValueError(f"a read-only {type(array).__name__} cannot hold a result")
        if not view.c_contiguous:
            raise ValueError(f"a {type(array).__name__} that is not contiguous cannot hold a result")
        return buffer_memory(view)._replace(finish=lambda: array)

    def new(self, array: Any, given: Memory) -> Memory:
        return allocate(given, lambda capsule: self._made(array, capsule))

    def take(self, array: Any, given: Memory, work: _native.Work, index: int) -> Any:
        return self._made(array, taken_capsule(given, work, index))

    def _made(self, array: Any, capsule: object) -> Any:
        given = memoryview(array).format
        # What Python itself can read; ctypes says "<i".
        return memoryview(_native.ManagedTensor(capsule, None if given[0] in "@=<" else given))

    def copy(self, target: Any, source: Any) -> Any:
        memoryview(target).cast("B")[:] = memoryview(source).cast("B")
        return target

    def integers(self, array: Any, values: list[int]) -> Any:
        return python_arrays.array("i", values)


class _PythonArrays(Buffers):
    def _made(self, array: Any, capsule: object) -> Any:
        return python_arrays.array(array.typecode, bytes(super()._made(array, capsule)))


class _Bytes(Buffers):
    """bytes and bytearray."""

    def _made(self, array: Any, capsule: object) -> Any:
        return type(array)(super()._made(array, capsule))


_BUFFERS, _PYTHON_ARRAYS, _BYTES = Buffers(), _PythonArrays(), _Bytes()


def kind_for(array: Any) -> Kind | None:
    if isinstance(array, python_arrays.array):
        return _PYTHON_ARRAYS
    if isinstance(array, (bytes, bytearray)):
        return _BYTES
    try:
        memoryview(array)
    except TypeError:
        return None
    return _BUFFERS
