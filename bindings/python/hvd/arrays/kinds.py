"""Kinds of arrays: how each library's arrays are read, written and made."""

from __future__ import annotations

import importlib
import math
from typing import Any, Callable, NamedTuple

from hvd import _native
from hvd.arrays.elements import ElementType


class Memory(NamedTuple):
    """Contiguous memory with an array's elements in the order of their indices, as the runtime reads or writes it.

    `device`: a GPU's ordinal, or -1, the CPU. `stream`: on a GPU, the one in which the array becomes ready. `owner`
    keeps the memory. `finish`: for memory that was written to, makes the array that is the result; None: `owner` is it.
    """

    address: int
    shape: tuple[int, ...]
    type: ElementType
    device: int
    stream: int
    owner: Any
    finish: Callable[[], Any] | None = None

    def result(self) -> Any:
        return self.owner if self.finish is None else self.finish()


class Kind:
    """What a library's arrays have in common; stateless."""

    def read(self, array: Any) -> Memory:
        """Its elements. Raises ValueError if the runtime cannot take such an array."""
        raise NotImplementedError

    def write(self, array: Any) -> Memory:
        """Room for its elements. Without `finish` it is the array's own memory, with its elements. Raises ValueError if
        the array cannot hold a result: it is read-only, for instance."""
        raise NotImplementedError

    def new(self, array: Any, given: Memory) -> Memory:
        """Room for a new array of the same shape and type. `given`: the array's memory, here and below."""
        raise NotImplementedError

    def take(self, array: Any, given: Memory, work: _native.Work, index: int) -> Any:
        """Result `index` of a finished operation, for which the runtime had memory, as an array of the same type."""
        raise NotImplementedError

    def copy(self, target: Any, source: Any) -> Any:
        """Overwrites an array with one from `take`, and returns it."""
        target[...] = source
        return target

    def integers(self, array: Any, values: list[int]) -> Any:
        """An array of int32 with these values, of the kind of `array`."""
        raise NotImplementedError

    def wait(self, work: _native.Work) -> None:
        """Until the results may be used. Raises HorovodInternalError if the operation failed."""
        work.wait()


def allocate(given: Memory, made: Callable[[object], Any]) -> Memory:
    """New memory on the CPU for an array like `given`, which `made` makes of its DLPack capsule."""
    element = given.type
    capsule = _native.allocate(given.shape, element.code, element.bytes * math.prod(given.shape), element.dlpack)
    address = _native.capsule_address(capsule)
    return given._replace(address=address, owner=capsule, finish=lambda: made(capsule))


def taken_capsule(given: Memory, work: _native.Work, index: int) -> object:
    """Result `index` in a capsule, with the array's own element type and dimensions."""
    return work.output(index, given.type.dlpack, len(given.shape))


# By the package that defines a class or a base of it. Other classes are asked for DLPack, then for the buffer protocol.
_MODULES = {
    "numpy": "numpy_arrays",
    "torch": "torch_tensors",
    "tensorflow": "tensorflow_tensors",
    "jax": "dlpack",
    "jaxlib": "dlpack",
    "pyarrow": "arrow",
    "mxnet": "mxnet_arrays",
}
_kinds: dict[type, Kind] = {}


def kind_of(array: Any) -> Kind:
    """The kind of an array. TypeError if it is no array of any library."""
    kind = _kinds.get(type(array))
    if kind is None:
        kind = _kinds[type(array)] = _find_kind(array)
    return kind


def _find_kind(array: Any) -> Kind:
    found = None
    for cls in type(array).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in _MODULES:
            found = _MODULES[package]
            break
    if found is None and hasattr(type(array), "__dlpack__"):
        found = "dlpack"
    module = importlib.import_module(f"hvd.arrays.{found or 'buffers'}")
    kind: Kind | None = module.kind_for(array)
    if kind is None:
        raise TypeError(
            "an array is needed, of NumPy, PyTorch or any other library that has DLPack or the buffer protocol; not "
            f"{type(array).__name__}. For Python objects there are broadcast_object() and allgather_object()"
        )
    return kind
