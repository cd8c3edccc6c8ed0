"""Iterators that run ahead of who uses them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_END_S = 1.0  # a thread that reads from a file system that does not answer is left alone


def ahead(items: Iterator[T], depth: int, timeout_s: float) -> Generator[T, None, None]:
    """Runs an iterator in a thread of its own, at most `depth` items ahead. The thread ends with the iterator, or when
    the generator is closed; what the iterator raises is raised here.

    Raises:
        TimeoutError: an item has taken longer than `timeout_s` seconds.
    """
    line: _Line[T] = _Line(items, depth)
    try:
        while (item := line.next(timeout_s)) is not None:
            yield item[0]
    finally:
        line.close()


class _Line(Generic[T]):
    def __init__(self, items: Iterator[T], depth: int) -> None:
        self._items, self._depth = items, depth
        self._changed = threading.Condition()
        self._ready: deque[tuple[T]] = deque()
        self._is_closed = self._has_ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hvd-data", daemon=True)
        self._thread.start()

    def next(self, timeout_s: float) -> tuple[T] | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready or self._has_ended, timeout_s):
                raise TimeoutError(f"no data has been read for {timeout_s:g} s: does the file system answer?")
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return None

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            with contextlib.closing(self._items) as items:  # type: ignore[type-var]
                for item in items:
                    if not self._put(item):
                        return
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._depth or self._is_closed)
            if not self._is_closed:
                self._ready.append((item,))
                self._changed.notify_all()
            return not self._is_closed
