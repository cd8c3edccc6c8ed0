"""Python objects between ranks, pickled on the way; for frameworks with no tensors at hand for them."""

from __future__ import annotations

from typing import Any, cast

import cloudpickle
import numpy as np

from hvd import _native, basics
from hvd.arguments import process_set_number
from hvd.pickling import Pickled, check, pickled, unpickled
from hvd.process_set import ProcessSet, global_process_set
from hvd.specs import make_spec


class _Exported:
    """A capsule of the runtime as an object that NumPy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU


def _submit(
    collective: int, name: str | None, process_set: ProcessSet, array: Any, dtype: int, root_rank: int, in_place: bool
) -> _native.Work:
    spec = make_spec(collective, name, process_set_number(process_set), [(array.shape, dtype)], root_rank=root_rank)
    addresses = [array.ctypes.data]
    return _native.submit(spec, addresses, addresses if in_place else None, array)


def _broadcast(array: Any, dtype: int, root_rank: int, name: str | None, process_set: ProcessSet) -> None:
    _submit(_native.BROADCAST, name, process_set, array, dtype, root_rank, True).wait()


def _allgather(array: Any, dtype: int, name: str | None, process_set: ProcessSet) -> Any:
    work = _submit(_native.ALLGATHER, name, process_set, array, dtype, 0, False)
    work.wait()
    return np.from_dlpack(cast(Any, _Exported(work.output(0))))  # annotated differently from version to version


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}.{part}"


def broadcast_object(
    obj: object, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Gives every rank the root's object, pickled on the way. All ranks of the set must call it.

    Args:
        obj: anything that cloudpickle can write; looked at on the root only.
        root_rank: the rank in the job whose object everybody gets.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        The root's own object there, a copy on the other ranks.

    Raises:
        pickle.PicklingError: the root cannot pickle its object; on every rank.
    """
    is_root = basics.rank() == root_rank
    own = pickled(obj) if is_root else Pickled(bytearray())
    size = np.array([own.announced], dtype=np.int64)
    _broadcast(size, _native.INT64, root_rank, _part(name, "sz"), process_set)
    announced = int(size[0])
    data = np.frombuffer(own.data, dtype=np.uint8) if is_root else np.empty(abs(announced), dtype=np.uint8)
    _broadcast(data, _native.UINT8, root_rank, _part(name, "t"), process_set)
    check(announced, data.tobytes() if announced < 0 else b"", root_rank, own.error)
    return obj if is_root else cloudpickle.loads(data.tobytes())


def allgather_object(obj: object, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Gives every rank the objects of all ranks of the set, in rank order, pickled on the way. All of them must call
    it.

    Raises:
        pickle.PicklingError: a rank cannot pickle its object; on every rank.
    """
    own = pickled(obj)
    size = np.array([own.announced], dtype=np.int64)
    sizes = _allgather(size, _native.INT64, _part(name, "sz"), process_set)
    data = np.frombuffer(own.data, dtype=np.uint8)
    everything = _allgather(data, _native.UINT8, _part(name, "t"), process_set)
    parts = np.split(everything, np.cumsum(np.abs(sizes))[:-1])
    return unpickled(sizes.tolist(), (part.tobytes() for part in parts), process_set.ranks or (), own)
