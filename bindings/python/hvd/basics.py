"""Joining and leaving the job, and where this process stands in it. Shared by the packages of all frameworks.

All functions but `init` and `shutdown` are local. In a process forked from an initialised one (a DataLoader worker)
the functions that say where the process stands answer for its parent; everything else raises ValueError.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Mapping

from hvd import _native
from hvd import process_set as sets
from hvd.process_set import ProcessSet


def init(comm: Iterable[int] | None = None, process_sets: Iterable[ProcessSet] | str | None = None) -> None:
    """Joins the job that the environment describes (as `hvdrun` sets it); without one, becomes a job of one process.

    Every process of the job must call it; it returns when all have. Does nothing if initialised already. After
    `shutdown()` it may be called again.

    Args:
        comm: ranks that take part. Only all of them (or None, which means the same) is supported yet.
        process_sets: sets of ranks to be registered, the same on every rank (see `add_process_set`). "dynamic", which
            Horovod needs for sets that are added later, changes nothing: they always can be.

    Raises:
        ValueError: on arguments that are not supported, in a process forked from an initialised one, and if a process
            set makes no sense; the job is joined in that last case, and `init` may be called again with other sets.
        HorovodInternalError: the other processes did not come in time (HVD_START_TIMEOUT).
    """
    ranks = None if comm is None else _listed_ranks(comm)
    _native.init()
    if ranks is not None and ranks != list(range(_native.size())):
        size = _native.size()
        _native.shutdown()
        raise ValueError(f"a job on some of the ranks is not supported yet: comm={ranks}, but the job has {size} ranks")
    if process_sets is not None and process_sets != "dynamic":
        for process_set in process_sets:
            sets.add_process_set(process_set)


def _listed_ranks(comm: object) -> list[int]:
    try:
        return sorted(int(rank) for rank in comm)  # type: ignore[attr-defined]
    except TypeError:
        raise ValueError("communicators are not supported yet: leave comm out, and start the job with hvdrun") from None


def shutdown() -> None:
    """Leaves the job. Other ranks' pending and later operations end with HorovodInternalError.

    Called at exit by itself. Does nothing if not initialised, or in a process forked from an initialised one.
    """
    _native.shutdown()
    sets.forget_all()


atexit.register(shutdown)


def is_initialized() -> bool:
    """Whether `init()` was called, and `shutdown()` not since."""
    return _native.is_initialized()


def rank() -> int:
    """This process's number in the job, from 0. ValueError if not initialised, as in all functions below."""
    return _native.rank()


def size() -> int:
    """Number of processes in the job."""
    return _native.size()


def local_rank() -> int:
    """This process's number among those of its host, from 0."""
    return _native.local_rank()


def local_size() -> int:
    """Number of the job's processes on this host."""
    return _native.local_size()


def cross_rank() -> int:
    """Number of this host among those that have a process with this local rank, from 0."""
    return _native.cross_rank()


def cross_size() -> int:
    """Number of hosts that have a process with this local rank."""
    return _native.cross_size()


def is_homogeneous() -> bool:
    """Whether all hosts have equally many processes."""
    return _native.is_homogeneous()


def algorithm_table() -> str:
    """Which algorithm serves an allreduce of which size in this job, and why: lines to be read by people.

    `HVD_LOG_LEVEL=info` writes them at start, too; `HVD_ALGORITHM` changes what happens between hosts.
    """
    return _native.algorithm_table()


def metrics(since: Mapping[str, float] | None = None) -> dict[str, float]:
    """What has happened on this rank since `init`: counts as int, times in seconds as float (docs/metrics.md).

    Args:
        since: an earlier result; what has happened after it is returned then, for instance in one training step.
            `lock_state` is always that of now.
    """
    now = _native.metrics()
    if since is not None:
        counted = {name: value - since.get(name, 0) for name, value in now.items()}
        now = counted | {"lock_state": now["lock_state"]}
        communication = now["communication_seconds"]
        now["overlap"] = max(0.0, 1 - now["exposed_seconds"] / communication) if communication > 0 else 1.0
    return {name: value if name.endswith(("_seconds", "overlap")) else int(value) for name, value in now.items()}


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """On rank 0, writes from now on what its operations do when, into a file for chrome://tracing. Local; any rank.

    The file is complete JSON whenever it is not just being written to. `HVD_TIMELINE` does the same from the start. On
    other ranks nothing happens.

    Args:
        file_path: overwritten if it is there; the file that is being written already goes on.
        mark_cycles: a mark for each answer of the coordinator.

    Raises:
        ValueError: the file cannot be written, another one is being written, or hvd is not initialised.
    """
    _native.start_timeline(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline, if there is one; returns when all of it is in the file. `shutdown` does it, too."""
    _native.stop_timeline()
