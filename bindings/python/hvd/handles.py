"""Handles of asynchronous operations: integers, as in Horovod, so that scripts can keep them in sets and dictionaries.

The table below holds an operation, its tensors and its result, until it was synchronised, or until its handle is gone:
a script that starts operations and never waits for them keeps no memory but that of those under way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hvd import _native

Wait = Callable[[_native.Work], object]  # until the result may be used; raises HorovodInternalError
Finish = Callable[[_native.Work], object]  # makes what synchronize() returns out of a finished operation

_next_handle = itertools.count(1)  # never false
_operations: dict[int, tuple[_native.Work, Wait, Finish]] = {}


class Handle(int):
    """The number of an operation. The operation goes on without it, but its result can then be had no more: a copy made
    by `int()`, copied or pickled, is a number and nothing else."""

    __slots__ = ()

    # The default argument is there for handles that outlive this module's names, when the interpreter ends.
    def __del__(self, drop: Callable[..., object] = _operations.pop) -> None:
        drop(int(self), None)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def register(work: _native.Work, wait: Wait, finish: Finish) -> Handle:
    """A new handle, whose `synchronize()` will wait(work) and return finish(work)."""
    handle = Handle(next(_next_handle))
    _operations[int(handle)] = (work, wait, finish)
    return handle


def poll(handle: int) -> bool:
    """Whether the operation is done, so that `synchronize()` returns at once. ValueError for an unknown handle."""
    operation = _operations.get(handle)
    if operation is None:
        raise ValueError(f"handle {handle} was never given out, or was synchronized already")
    return operation[0].poll()


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result: an array, or a list of arrays for a grouped one.

    On a GPU the result may be used by what comes next in the current stream; this thread does not wait for the GPU.

    The handle is used up, unless the wait is interrupted (Ctrl-C). Returns None for an unknown or used-up handle.

    Raises:
        HorovodInternalError: the operation failed.
    """
    operation = _operations.get(handle)
    if operation is None:
        return None
    work, wait, finish = operation
    try:
        wait(work)
    except BaseException:
        if work.poll():
            _operations.pop(handle, None)
        raise
    _operations.pop(handle, None)
    return finish(work)
