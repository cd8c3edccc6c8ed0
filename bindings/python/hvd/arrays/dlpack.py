"""Arrays of any library with DLPack and the array API's functions: JAX, CuPy and their like."""

from __future__ import annotations

import sys
from typing import Any

from hvd import _native
from hvd.arrays.buffers import buffer_memory
from hvd.arrays.elements import dlpack_type
from hvd.arrays.kinds import Kind, Memory, allocate, taken_capsule

# DLPack's types of devices.
CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
# The default stream, as DLPack calls it and as the runtime does: others wait for it unless they were made not to. A
# library makes it wait for its array, the runtime begins after what is in it, and results are ready in it.
_DLPACK_DEFAULT_STREAM, _DEFAULT_STREAM = 1, 0


class Exported:
    """A result of the runtime as an object with DLPack. `work`: for one that a GPU may still be working on."""

    def __init__(self, capsule: object, work: _native.Work | None = None) -> None:
        self._capsule, self._work = capsule, work if work is not None and work.device >= 0 else None

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> object:
        if self._work is not None:
            is_default = stream in (None, -1, _DLPACK_DEFAULT_STREAM)
            self._work.wait_on_stream(_DEFAULT_STREAM if is_default else stream or _DEFAULT_STREAM)
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0) if self._work is None else (_CUDA, self._work.device)


def _exported(array: Any, **arguments: Any) -> Any:
    try:
        return array.__dlpack__(max_version=(1, 1), **arguments)
    except TypeError:  # made before there were versions
        return array.__dlpack__(**arguments)


def _managed(array: Any) -> tuple[_native.ManagedTensor, int]:
    """The array's memory, and the GPU that it is on, or -1."""
    device, ordinal = array.__dlpack_device__()
    if device in (CPU, _CUDA_HOST):
        return _native.ManagedTensor(_exported(array)), -1
    if device in (_CUDA, _CUDA_MANAGED):
        return _native.ManagedTensor(_exported(array, stream=_DLPACK_DEFAULT_STREAM)), int(ordinal)
    raise ValueError(f"a {type(array).__name__} on a device of DLPack's type {int(device)} is not supported")


def _namespace(array: Any) -> Any:
    """The module with from_dlpack() and asarray() for arrays like this one."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules[type(array).__module__.partition(".")[0]]


class DLPackArrays(Kind):
    def read(self, array: Any) -> Memory:
        tensor, device = _managed(array)
        element = dlpack_type(*tensor.type)
        if tensor.is_contiguous:
            return Memory(tensor.address, tensor.shape, element, device, _DEFAULT_STREAM, tensor)
        if device >= 0:
            raise ValueError(f"a {type(array).__name__} that is not contiguous is not supported on a GPU: copy it")
        return buffer_memory(memoryview(tensor), element)

    def write(self, array: Any) -> Memory:
        tensor, device = _managed(array)
        if tensor.is_read_only:
            raise ValueError(f"a read-only {type(array).__name__} cannot hold a result")
        if not tensor.is_contiguous:
            raise ValueError(f"a {type(array).__name__} that is not contiguous cannot hold a result")
        element = dlpack_type(*tensor.type)
        return Memory(tensor.address, tensor.shape, element, device, _DEFAULT_STREAM, tensor, lambda: array)

    def new(self, array: Any, given: Memory) -> Memory:
        if given.device < 0:
            return allocate(given, lambda capsule: self._made(array, Exported(capsule)))
        result = _namespace(array).empty_like(array)
        return self.read(result)._replace(finish=lambda: result)

    def take(self, array: Any, given: Memory, work: _native.Work, index: int) -> Any:
        return self._made(array, Exported(taken_capsule(given, work, index), work))

    def _made(self, array: Any, exported: Exported) -> Any:
        return _namespace(array).from_dlpack(exported)

    def integers(self, array: Any, values: list[int]) -> Any:
        namespace = _namespace(array)
        return namespace.asarray(values, dtype=namespace.int32)

    def wait(self, work: _native.Work) -> None:
        if work.device < 0:
            work.wait()
        else:
            work.wait_on_stream(_DEFAULT_STREAM)


class ImmutableArrays(DLPackArrays):
    def write(self, array: Any) -> Memory:
        raise ValueError(f"a {type(array).__name__} cannot hold a result: such arrays cannot be changed")


class _JaxArrays(ImmutableArrays):
    def read(self, array: Any) -> Memory:
        if array.is_deleted():
            raise ValueError("this array of JAX was deleted, perhaps by a compiled function that it was donated to")
        try:
            return super().read(array)
        except RuntimeError as error:
            if "DLPack" not in str(error):  # the array's own computation failed
                raise
            raise ValueError(f"arrays of {array.dtype} are not supported: {error}") from None


_ARRAYS, _JAX = DLPackArrays(), _JaxArrays()


def kind_for(array: Any) -> Kind | None:
    if not hasattr(array, "__dlpack__"):
        return None
    if not hasattr(array, "__dlpack_device__"):
        raise TypeError(f"an array without a value ({type(array).__name__}), as in a function that JAX traces")
    is_jax = type(array).__module__.partition(".")[0] in ("jax", "jaxlib")
    return _JAX if is_jax else _ARRAYS
