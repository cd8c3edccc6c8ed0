"""An operation of a torch process group, and the threads that complete its future.

The runtime completes operations without Python, and callers wait in the runtime. A future, however, must be completed
by a thread of this process, which waits for the operation. Each future has a thread of its own, taken from a pool of
idle ones, so that a callback that blocks, for instance on another future, delays no other future.
"""

from __future__ import annotations

import datetime
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from hvd.exceptions import HorovodInternalError
from hvd.torch.tensors import wait_for


class Awaited(Protocol):
    """An operation of the runtime (`_native.Work`), or what behaves like one."""

    @property
    def device(self) -> int: ...
    def poll(self) -> bool: ...
    def wait(self, timeout_seconds: float | None = None) -> bool: ...


class GroupWork(dist._Work):
    """What torch holds of an operation that is under way.

    Args:
        what: the operation, for messages.
        awaited: it is done when all of these are.
        timeout: seconds that `wait()` waits by default; None: as long as the runtime does.
        value: what the future gets, and `result()` returns.
        finish: puts the results where torch wants them; called once, by the first that sees the operation done.
    """

    def __init__(
        self,
        what: str,
        awaited: Sequence[Awaited],
        timeout: float | None,
        value: Any,
        finish: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        self.awaited = awaited
        self._what, self._timeout, self._value = what, timeout, value
        self._finish = finish
        self.source_of: Callable[[], int] | None = None  # of a receive: the rank of the group, once it is done
        self._lock = threading.Lock()  # of what follows
        self._ended = False
        self._error: Exception | None = None
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Until the result may be used. Safe to call again, and on several threads.

        Raises:
            HorovodInternalError: the operation failed, or the time is up.
        """
        # Zero is how torch says that it names no time.
        limit = timeout.total_seconds() if timeout else self._timeout
        deadline = None if limit is None else time.monotonic() + limit
        if not self._ended:
            for operation in self.awaited:
                if not self._is_over(operation, deadline):
                    raise HorovodInternalError(
                        f"{self._what} is not done after {limit:g} s, the timeout of its call or its process group: "
                        "some ranks of the group have not called it yet, or are slow"
                    )
            self._end()
        if self._error is not None:
            raise self._error
        return True

    @staticmethod
    def _is_over(operation: Awaited, deadline: float | None) -> bool:
        if operation.device >= 0:  # whoever uses the result waits on the GPU
            return True
        try:
            return operation.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except (HorovodInternalError, ValueError):
            return True  # it will be raised by _end()

    def _end(self) -> None:
        """All operations are over."""
        with self._lock:
            if self._ended:
                return
            try:
                for operation in self.awaited:
                    wait_for(operation)  # type: ignore[arg-type]
                if self._finish is not None:
                    self._finish()
            except Exception as error:
                self._error = error
            self._finish = None
            self._ended = True

    def is_completed(self) -> bool:
        if not self._ended and all(operation.poll() for operation in self.awaited):
            self._end()
        return self._ended

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> Any:
        """The output tensors, once waited for."""
        return self._value

    def _source_rank(self) -> int:
        """The rank of the group that the message came from, once waited for."""
        return -1 if self.source_of is None else self.source_of()

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """Completed with the output tensors, or with the error."""
        with self._lock:
            if self._future is None:
                # Only a callback that raises leaves an error that C++ sees as well; DDP waits there.
                over: torch.futures.Future[None] = torch.futures.Future()
                self._future = over.then(lambda _: self._value_or_error())
                _waiters.complete(self, over)
            return self._future

    def _value_or_error(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def wait_for_future(self) -> None:
        """`wait()` in the future's stead, which gets the error."""
        try:
            self.wait()
        except Exception as error:
            self._error = error


class _Waiters:
    """Threads that wait for works. A new one starts when none is idle; they stay until the process ends."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[GroupWork, torch.futures.Future[None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def complete(self, work: GroupWork, over: torch.futures.Future[None]) -> None:
        """Completes the future when the work is over."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                threading.Thread(target=self._run, name="hvd-waiter", daemon=True).start()
        self._queue.put((work, over))

    def _run(self) -> None:
        while True:
            work, over = self._queue.get()
            work.wait_for_future()
            over.set_result(None)
            del work, over  # their tensors are not this thread's to keep
            with self._lock:
                self._idle += 1


_waiters = _Waiters()
