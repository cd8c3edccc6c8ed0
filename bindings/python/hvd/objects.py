"""Python objects between ranks, pickled on the way; for frameworks with no tensors at hand for them."""

from __future__ import annotations

import itertools
from array import array
from typing import Any

import cloudpickle

from hvd import basics
from hvd.collectives import allgather, broadcast
from hvd.pickling import Pickled, check, pickled, unpickled
from hvd.process_set import ProcessSet, global_process_set


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
        ValueError, TypeError: hvd is not initialised, the set is not registered, or the root is not in it.
        HorovodInternalError: a rank was lost, or has not come in time.
        Exception: what unpickling raises, an ImportError for instance; on the rank that lacks the module.
    """
    is_root = basics.rank() == root_rank
    own = pickled(obj) if is_root else Pickled(bytearray())
    size = array("q", [own.announced])
    announced = broadcast(size, root_rank, _part(name, "sz"), process_set, out=size)[0]
    data = own.data if is_root else bytearray(abs(announced))
    broadcast(data, root_rank, _part(name, "t"), process_set, out=data)
    check(announced, data, root_rank, own.error)
    return obj if is_root else cloudpickle.loads(data)


def allgather_object(obj: object, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Gives every rank the objects of all ranks of the set, in rank order, pickled on the way. All of them must call
    it.

    Args:
        obj: anything that cloudpickle can write.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A list with an object for each rank of the set; this rank's own is a copy, too.

    Raises:
        pickle.PicklingError: a rank cannot pickle its object; on every rank.
        ValueError, TypeError: hvd is not initialised, or the set is not registered or does not have this rank.
        HorovodInternalError: a rank was lost, or has not come in time.
        Exception: what unpickling raises, an ImportError for instance; on the rank that lacks the module.
    """
    own = pickled(obj)
    sizes = allgather(array("q", [own.announced]), _part(name, "sz"), process_set).tolist()
    everything = allgather(memoryview(own.data), _part(name, "t"), process_set)
    ends = list(itertools.accumulate(map(abs, sizes)))
    parts = (bytes(everything[end - abs(size) : end]) for size, end in zip(sizes, ends))
    return unpickled(sizes, parts, process_set.ranks or (), own)
