"""Collectives that are checked once and started many times, as the persistent collectives of MPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

from hvd import _native
from hvd.arrays import Memory, kind_of
from hvd.collectives import Call, GroupCall, allreduce, broadcast, group_call, grouped_allreduce, single_call
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Sum, resolve_op


class Prepared:
    """A collective on certain arrays, which `prepare` makes. A start is wrong while the last one has not ended.

    Between `start()` and `wait()` the arrays must not be touched. After `hvd.shutdown()`, also where an elastic job
    begins a new epoch, it cannot be started any more: prepare it again.
    """

    __slots__ = ("_wait", "_work", "result")

    def __init__(self, work: _native.Work, wait: Callable[[_native.Work], object], result: Any) -> None:
        self._work = work
        self._wait = wait
        self.result = result  # the array with the result, or a list of them: the same one after each start

    def start(self) -> None:
        """Starts it and returns at once. All ranks must, as with other operations.

        Raises:
            ValueError: it has not ended since the last start, another operation of its name has not, or it was prepared
                before a shutdown or in a process set that was removed.
        """
        self._work.start()

    def poll(self) -> bool:
        """Whether the last start has ended, so that `wait()` returns at once."""
        return self._work.poll()

    def wait(self) -> Any:
        """Waits for the last start, and returns `result`.

        On a GPU it may be used by what comes next in the current stream. Before the first start it returns at once.

        Raises:
            HorovodInternalError: the operation failed.
        """
        self._wait(self._work)
        return self.result

    def __call__(self) -> Any:
        """`start()` and `wait()`, on this thread where that is possible."""
        if self._work.device < 0:
            self._work.start_and_wait()
            return self.result
        self._work.start()
        return self.wait()


def prepare(function: Callable[..., Any], *arguments: Any, **named: Any) -> Prepared:
    """Prepares `function(*arguments, **named)`, which can then be started any number of times on the same arrays.

    Checks and converts everything that the function would in each call; sends nothing. Arrays are used where they are:
    their values count at each start. Without `out` the result is a new array, the same one for all starts; with
    `out=tensor` it is in place. Ranks may mix prepared and other calls of one name.

    Args:
        function: `hvd.allreduce`, `hvd.grouped_allreduce` or `hvd.broadcast`.
        arguments, named: its arguments. Without a name, all ranks must prepare in the same order.

    Raises:
        ValueError: as the function; also for an array that it would copy first, because it is not contiguous, or whose
            kind is made anew for each result, without `out`.
        TypeError: as the function; another function.
    """
    make = _PREPARED.get(function)
    if make is None:
        possible = ", ".join(f"hvd.{one.__name__}" for one in _PREPARED)
        raise TypeError(f"function must be one of {possible}, not {function!r}")
    call, tensors, rooms, outs = make(*arguments, **named)
    for tensor, address, room, out in zip(tensors, call[1], rooms, outs):
        _require_in_place(tensor, address, room, out)
    results = [room.owner if out is None else out for room, out in zip(rooms, outs)]
    work = _native.prepare(*call)
    return Prepared(work, kind_of(tensors[0]).wait, results if function is grouped_allreduce else results[0])


_Made = tuple[Union[Call, GroupCall], list[Any], list[Memory], list[Any]]  # the call, arrays, rooms, outs


def _allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> _Made:
    factors = prescale_factor, postscale_factor
    place = "allreduce", name, tensor, out, process_set
    call, room = single_call(_native.ALLREDUCE, *place, resolve_op(op, average), 0, *factors)
    return call, [tensor], [room], [out]


def _broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> _Made:
    call, room = single_call(_native.BROADCAST, "broadcast", name, tensor, out, process_set, Sum, root_rank)
    return call, [tensor], [room], [out]


def _grouped_allreduce(
    tensors: Sequence[Any], *arguments: Any, out: Sequence[Any] | None = None, **named: Any
) -> _Made:
    outs = out if out is None else list(out)
    call, listed, rooms = group_call(list(tensors), *arguments, out=outs, **named)
    return call, listed, rooms, outs or [None] * len(listed)


_PREPARED: dict[Callable[..., Any], Callable[..., _Made]] = {
    allreduce: _allreduce,
    grouped_allreduce: _grouped_allreduce,
    broadcast: _broadcast,
}


def _require_in_place(tensor: Any, address: int, room: Memory, out: Any) -> None:
    """ValueError if an array's memory is not what the runtime would read, or write, in a later call."""
    if kind_of(tensor).read(tensor).address != address:  # a copy is elsewhere
        raise ValueError("an array that is not contiguous, or a scalar, cannot be prepared: its values would be copied")
    if out is None and room.finish is not None:
        raise ValueError(f"out is needed to prepare this {type(tensor).__name__}: an array that can be changed")
    if out is not None and kind_of(out).write(out).address != room.address:
        raise ValueError("out is not contiguous: its values would be copied")
