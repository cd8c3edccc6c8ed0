"""Handles of asynchronous operations: integers, as in Horovod, so that scripts can keep them in sets and dictionaries.

The table below holds an operation, its tensors and its result, until it was synchronised, or until its handle is gone:
a script that starts operations and never waits for them keeps no memory but that of those under way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hvd import _native
from hvd.torch.tensors import Finish, wait_for

_next_handle = itertools.count(1)  # never false
_operations: dict[int, tuple[_native.Work, Finish]] = {}


class Handle(int):
    """The number of an operation. The operation goes on without it, but its result can then be had no more: a copy made
    by `int()`, copied or pickled, is a number and nothing else."""

    __slots__ = ()

    # The default argument is there for handles that outlive this module's names, when the interpreter ends.
    def __del__(self, drop: Callable[..., object] = _operations.pop) -> None:
        drop(int(self), None)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def register(work: _native.Work, finish: Finish) -> Handle:
    """A new handle, whose `synchronize()` will return finish(work)."""
    handle = Handle(next(_next_handle))
    _operations[int(handle)] = (work, finish)
    return handle


def poll(handle: int) -> bool:
    """Whether the operation is done, so that `synchronize()` returns at once. ValueError for an unknown handle."""
    operation = _operations.get(handle)
    if operation is None:
        raise ValueError(f"handle {handle} was never given out, or was synchronized already")
    return operation[0].poll()


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result: a tensor, or a list of tensors for a grouped one.

    On a GPU the result may be used by what comes next in the current stream; this thread does not wait for the GPU.

    The handle is used up, unless the wait is interrupted (Ctrl-C). Returns None for an unknown or used-up handle.

    Raises:
        HorovodInternalError: the operation failed.
    """
    operation = _operations.get(handle)
    if operation is None:
        return None
    work, finish = operation
    try:
        wait_for(work)
    except BaseException:
        if work.poll():
            _operations.pop(handle, None)
        raise
    _operations.pop(handle, None)
    return finish(work)
