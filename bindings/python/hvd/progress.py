"""One progress bar for all ranks of a job."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, NamedTuple

from hvd import _native, basics
from hvd.exceptions import HorovodInternalError
from hvd.process_set import global_process_set, numbered_name
from hvd.reduce_op import Sum


class tqdm:
    """tqdm's progress bar, of the steps of all ranks: rank 0 shows their number, their rate, and how many are left.

    >>> for batch in hvd.tqdm(loader):
    ...     train(batch)

    All ranks must make it, and the same bars in the same order. The number is the sum of what each rank has counted,
    and not rank 0's times the ranks. No step waits for it: a thread of each rank adds the counts up once in
    `interval_s`, for as long as any rank goes on. So the bar is behind by as much. A rank whose bar ends waits for the
    others' last counts for at most `timeout_s`; where that is too short, the bar ends with the last number that it
    has heard.

    Before `hvd.init()`, and in a job of one rank, it is tqdm's own bar. An error between the ranks ends the counting,
    and so does the next epoch of an elastic job.

    Args:
        iterable: what this rank goes through; None: `update()` is called.
        desc: tqdm's, what stands before the bar.
        total: this rank's steps. By default the iterable's length, if it has one.
        interval_s: seconds between two numbers. Each is an allreduce of four integers, and ends a
            schedule that is locked (docs/architecture.md), which the steps after it lock again.
        timeout_s: seconds that a rank whose bar ends waits for the others' last counts.
        initial: steps that this rank had made before.
        options: tqdm's: unit, leave, file, ... Other methods of the bar are tqdm's as well (`set_postfix`, ...);
            on other ranks than 0 they do nothing.

    Raises:
        ImportError: tqdm is not installed.
    """

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: int | None = None,
        *,
        initial: int = 0,
        interval_s: float = 1.0,
        timeout_s: float = 1.0,
        **options: Any,
    ) -> None:
        bar_class = _bar_class()
        if total is None and isinstance(iterable, Sized):
            with contextlib.suppress(TypeError):  # a DataLoader of a dataset that has no length
                total = len(iterable)
        self._iterable, self._total, self._timeout_s = iterable, total, timeout_s
        self._counting: _Counting | None = None
        # Numbered in a job of one rank, too: ranks that join an elastic job later may have made the same bar.
        name = numbered_name(global_process_set, "hvd.tqdm.") if basics.is_initialized() else None
        if name is None or basics.size() == 1:
            self._bar = bar_class(desc=desc, total=total, initial=initial, **options)
            return
        if basics.rank() != 0:  # on rank 0 as given: None is tqdm's "not where there is no terminal"
            options["disable"] = True
        # Each number is shown: tqdm would wait for as many steps as there were between two before.
        self._bar = bar_class(**{"miniters": 1, **options, "desc": desc, "initial": initial * basics.size()})
        self._counting = _Counting(name, total, initial, interval_s, self._show)

    def _show(self, sums: _Sums) -> None:
        self._bar.total = sums.total if sums.without_total == 0 else None
        self._bar.update(max(0, sums.steps - self._bar.n))  # those of a rank that has joined are missing for a while

    def update(self, n: int = 1) -> None:
        """This rank has made n more steps."""
        if self._counting is None:
            self._bar.update(n)
        else:
            self._counting.steps += n

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise TypeError("this hvd.tqdm has nothing to go through: give it an iterable, or call update()")
        timeout_s = 0.0  # of a loop that is left
        try:
            for item in self._iterable:
                yield item
                self.update()
            timeout_s = self._timeout_s
        finally:
            self._close(timeout_s)

    def close(self) -> None:
        """This rank makes no more steps. Twice is once."""
        self._close(self._timeout_s)

    def _close(self, timeout_s: float) -> None:
        if self._counting is not None:
            self._counting.end(timeout_s)
        self._bar.close()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._close(self._timeout_s if kind is None else 0.0)

    @staticmethod
    def write(*arguments: Any, **options: Any) -> None:
        """tqdm's: a line above the bars, of whichever rank calls it."""
        _bar_class().write(*arguments, **options)

    def __len__(self) -> int:
        return len(self._iterable) if isinstance(self._iterable, Sized) else self._total  # type: ignore[return-value]

    def __bool__(self) -> bool:
        """As tqdm's, and not by __len__(), which a bar without a total does not have: `if bar: bar.update()`."""
        return self._total is None or self._total > 0

    def __getattr__(self, name: str) -> Any:
        if name == "_bar":  # tqdm is not installed
            raise AttributeError(name)
        return getattr(self._bar, name)


def _bar_class() -> Any:
    try:
        from tqdm.auto import tqdm as bar_class
    except ImportError:
        raise ImportError("hvd.tqdm needs tqdm: pip install tqdm") from None
    return bar_class


class _Sums(NamedTuple):
    """Over the ranks."""

    steps: int
    ended: int  # ranks
    total: int
    without_total: int  # ranks


class _Counting:
    """A rank's part in adding up the steps: a thread that goes on until all ranks have ended, or this process has
    joined another job, whose other ranks may have made no such bar."""

    def __init__(self, name: str, total: int | None, initial: int, interval_s: float, show: Any) -> None:
        self.steps = initial
        self._total, self._interval_s, self._show = total, interval_s, show
        self._job = basics.initializations()
        self._spec = _native.OperationSpec(_native.ALLREDUCE, name, 0, [((4,), _native.INT64)], Sum)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hvd-tqdm", daemon=True)
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        self._ended.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while basics.initializations() == self._job:
                sums = self._sums()
                self._show(sums)
                if sums.ended == basics.size():
                    return
                self._ended.wait(self._interval_s)  # where it has ended, the others set the pace
        except (HorovodInternalError, ValueError):  # who trains is told; ValueError: shut down
            return

    def _sums(self) -> _Sums:
        ended = self._ended.is_set()  # before the steps are read
        values = (ctypes.c_int64 * 4)(self.steps, ended, self._total or 0, self._total is None)
        addresses = (ctypes.addressof(values),)
        _native.submit(self._spec, addresses, addresses, values).wait()
        return _Sums(*values)
