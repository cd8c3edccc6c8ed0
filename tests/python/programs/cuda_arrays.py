"""Collectives on arrays of a library like CuPy: memory of the fake CUDA driver, behind DLPack. Writes "right" if they
are."""

from __future__ import annotations

import ctypes
import math
import os
import weakref

import hvd
from hvd import _native

CUDA = ctypes.CDLL(os.environ["HVD_CUDA_LIB"])
CUDA_DEVICE, FLOAT, DEFAULT_STREAM = 2, 2, 1


class Tensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        *[("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32)],
        *[
            ("dimensions", ctypes.c_int32),
            ("code", ctypes.c_uint8),
            ("bits", ctypes.c_uint8),
            ("lanes", ctypes.c_uint16),
        ],
        *[("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)],
        *[("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)],
    ]


def new_capsule(tensor: Tensor) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(tensor), b"dltensor", None)


def drain() -> None:
    assert CUDA.fake_cuda_drain(None) == 0


class CudaArray:
    """float32 on device 0. Its memory is this process's, as the fake has it."""

    float32, int32 = "float32", "int32"

    def __init__(self, address: int, shape: tuple[int, ...], owner: object) -> None:
        self.shape, self.owner = shape, owner
        self.values = (ctypes.c_float * math.prod(shape)).from_address(address)
        dimensions = (ctypes.c_int64 * len(shape))(*shape)
        self._kept = dimensions
        place = address, CUDA_DEVICE, 0, len(shape), FLOAT, 32, 1
        self._tensor = Tensor(*place, ctypes.addressof(dimensions), None, 0, None, None)

    def __dlpack__(self, *, stream: int) -> object:
        assert stream == DEFAULT_STREAM
        return new_capsule(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_DEVICE, 0

    def __setitem__(self, where: object, other: CudaArray) -> None:
        drain()
        self.values[:] = other.values[:]

    def __array_namespace__(self) -> type[CudaArray]:
        return CudaArray

    @staticmethod
    def empty(shape: tuple[int, ...]) -> CudaArray:
        address = ctypes.c_uint64()
        assert CUDA.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * math.prod(shape))) == 0
        array = CudaArray(address.value, shape, None)
        weakref.finalize(array, CUDA.cuMemFree_v2, address)
        return array

    @staticmethod
    def empty_like(array: CudaArray) -> CudaArray:
        return CudaArray.empty(array.shape)

    @staticmethod
    def from_dlpack(exported) -> CudaArray:
        assert exported.__dlpack_device__() == (CUDA_DEVICE, 0)
        tensor = _native.ManagedTensor(exported.__dlpack__(stream=DEFAULT_STREAM))
        return CudaArray(tensor.address, tensor.shape, tensor)

    @staticmethod
    def asarray(values: list[int], dtype: str) -> list[int]:
        return values


def array(*values: float) -> CudaArray:
    result = CudaArray.empty((len(values),))
    result.values[:] = values
    return result


def content(result: CudaArray) -> list[float]:
    drain()
    return list(result.values)


def main() -> None:
    assert CUDA.cuInit(0) == 0 and CUDA.fake_cuda_use_device(0) == 0
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    total = [sum(range(size)) + size * i for i in range(3)]
    given = array(rank, rank + 1, rank + 2)
    for name in (None, "named"):
        result = hvd.allreduce(given, op=hvd.Sum, name=name)
        assert isinstance(result, CudaArray) and content(result) == total, content(result)
    assert content(hvd.synchronize(hvd.allreduce_async(given, op=hvd.Sum))) == total
    gathered = [rank + i for rank in range(size) for i in range(3)]
    assert content(hvd.allgather(given)) == gathered
    assert content(hvd.allgather(given, out=CudaArray.empty((3 * size,)))) == gathered
    assert content(hvd.broadcast(given, size - 1)) == [size - 1, size, size + 1]
    assert hvd.alltoall(given, [3] + [0] * (size - 1))[1] == [3 * (rank == 0)] * size
    assert hvd.allreduce(given, op=hvd.Sum, out=given, name="placed") is given and content(given) == total
    try:
        hvd.allreduce(given, out=memoryview(bytearray(12)).cast("f"))
    except ValueError as error:
        assert "different devices" in str(error)
    print("right")
    hvd.shutdown()


if __name__ == "__main__":
    main()
