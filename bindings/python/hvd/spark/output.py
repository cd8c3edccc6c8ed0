"""What ranks print, shown on the driver while they run, each line behind the tag of its rank: `[1]<stdout>:...`.

In a rank the file descriptors 1 and 2 become pipes, so that what libraries and child processes write is seen as well; a
thread sends it to the driver. The same connection tells the driver that the rank has started, and how it has ended: one
that breaks without an end is a rank that was lost.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import selectors
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

from hvd.spark import channel

_HELLO, _STDOUT, _STDERR, _END = range(4)
_NAMES = {_STDOUT: "stdout", _STDERR: "stderr"}
_LONGEST_LINE = 1 << 20  # without an end; longer ones are shown in parts
_LAST_OUTPUT_S = 2.0  # for what child processes that a rank leaves behind still hold open


@dataclass(frozen=True)
class Reporting:
    """How a rank reaches the console; travels in the task's closure."""

    address: channel.Address
    key: bytes


@dataclass
class _Rank:
    where: str
    lines: dict[int, bytearray] = field(default_factory=lambda: {_STDOUT: bytearray(), _STDERR: bytearray()})
    has_ended: bool = False


class Console:
    """On the driver: shows what the ranks print, and knows which have started, failed and gone.

    Args:
        size: number of ranks.
        host: the driver's address as the executors know it.
        stdout, stderr: where the lines go; this process's own streams if None.
        with_time: a tag begins with the time.
    """

    def __init__(
        self, size: int, host: str, stdout: TextIO | None, stderr: TextIO | None, with_time: bool = False
    ) -> None:
        self._size = size
        self._targets = {_STDOUT: stdout, _STDERR: stderr}
        self._with_time = with_time
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._ranks: dict[int, _Rank] = {}
        self._lost: list[int] = []  # in the order in which they were noticed
        self._changed = threading.Condition(self._lock)
        self.failures: dict[int, Any] = {}  # outcomes by rank, in the order in which they came
        key = channel.new_key()
        self._listener = channel.Listener(key, self._serve)
        self.reporting = Reporting(channel.Address(host, self._listener.port), key)

    def wait_for_start(self, timeout_s: float) -> int:
        """Until all ranks have started; returns how many have."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ranks) == self._size or self.failures or self._size < 0, timeout_s)
            return len(self._ranks)

    def wait_for_failure(self) -> bool:
        """Until a rank has reported that it failed, or the console is closed; whether it was a failure."""
        with self._changed:
            self._changed.wait_for(lambda: self.failures or self._size < 0)
            return self._size >= 0

    def lost(self) -> list[tuple[int, str]]:
        """Ranks that were lost, in the order in which that was noticed, and where they were."""
        with self._lock:
            return [(rank, self._ranks[rank].where) for rank in self._lost]

    def close(self) -> None:
        with self._changed:
            self._size = -1
            self._changed.notify_all()
        self._listener.close()

    def wait_for_ends(self, timeout_s: float) -> bool:
        """Until the last lines of all ranks are shown, before or after their tasks are seen to end; whether they
        are."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._size < 0 or all(rank.has_ended for rank in self._ranks.values()), timeout_s
            )

    def _serve(self, connection: channel.Connection) -> None:
        hello = json.loads(connection.receive().data)
        number = hello["rank"]
        with self._changed:
            rank = self._ranks[number] = _Rank(hello["where"])
            self._changed.notify_all()
        failure: bytearray | None = None  # empty: the rank has succeeded
        with contextlib.suppress(OSError):
            while failure is None:
                frame = connection.receive()
                if frame.kind == _END:
                    failure = frame.data
                else:
                    self._show(number, rank, frame.kind, frame.data)
        for kind in _NAMES:
            self._show(number, rank, kind, b"\n" if rank.lines[kind] else b"")
        with self._changed:
            rank.has_ended = True
            if failure:
                self.failures[number] = bytes(failure)
            elif failure is None and self._size >= 0:
                self._lost.append(number)
            self._changed.notify_all()

    def _show(self, number: int, rank: _Rank, kind: int, data: bytes | bytearray) -> None:
        pending = rank.lines[kind]
        pending += data
        whole = pending.rfind(b"\n") + 1 or (len(pending) if len(pending) > _LONGEST_LINE else 0)
        if whole == 0:
            return
        tag = f"[{number}]<{_NAMES[kind]}>:"
        if self._with_time:
            tag = f"{datetime.datetime.now():%a %b %d %H:%M:%S %Y}{tag}"
        text = pending[:whole].decode(errors="replace")
        del pending[:whole]
        target = self._targets[kind] or (sys.stdout if kind == _STDOUT else sys.stderr)
        # A target that is closed, full or cannot encode the text must not end the connection with the rank.
        with self._writing, contextlib.suppress(OSError, ValueError):
            target.write("".join(f"{tag}{line}\n" for line in text.removesuffix("\n").split("\n")))
            target.flush()


# ---- in a rank


class Reporter:
    """In a rank: sends its output to the console, as long as `capturing` lasts, and then how it ended.

    Raises:
        ConnectionError: the driver cannot be reached.
    """

    def __init__(self, reporting: Reporting, rank: int, where: str) -> None:
        self._connection = channel.connect(reporting.address, reporting.key, "the driver")
        self._connection.send(_HELLO, json.dumps({"rank": rank, "where": where}).encode())

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        flush()
        own = {kind: os.dup(kind) for kind in _NAMES}  # the kinds are the descriptors' numbers
        pipes = {}
        for kind in _NAMES:
            read_end, write_end = os.pipe()
            os.dup2(write_end, kind)
            os.close(write_end)
            pipes[read_end] = kind
        has_ended = threading.Event()
        sender = threading.Thread(target=self._send, args=(pipes, own, has_ended), name="hvd-output", daemon=True)
        sender.start()
        try:
            yield
        finally:
            flush()
            for kind, descriptor in own.items():
                os.dup2(descriptor, kind)
            has_ended.set()
            sender.join()
            for descriptor in own.values():
                os.close(descriptor)

    def _send(self, pipes: dict[int, int], own: dict[int, int], has_ended: threading.Event) -> None:
        """Until the pipes have no writer any more, or for a moment after the end. A driver that is gone is no reason to
        fail here: Spark ends the task; the output goes where it would without hvd."""
        ends_at = float("inf")
        with selectors.DefaultSelector() as selector:
            for pipe in pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map() and time.monotonic() < ends_at:
                for key, _ in selector.select(0.05 if has_ended.is_set() else 0.5):
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fd)
                        continue
                    try:
                        self._connection.send(pipes[key.fd], data)
                    except OSError:
                        os.write(own[pipes[key.fd]], data)
                if has_ended.is_set() and ends_at == float("inf"):
                    ends_at = time.monotonic() + _LAST_OUTPUT_S
        for pipe in pipes:
            os.close(pipe)

    def end(self, failure: bytes = b"") -> None:
        """`failure`: the rank's outcome, if it failed."""
        with contextlib.suppress(OSError):
            self._connection.send(_END, failure)
        self._connection.close()


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # whatever a script has put there
            stream.flush()
