"""What ranks tell the driver while they run: `log` on a rank, callbacks in the driver."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray

from hvd import basics

Callbacks = Sequence[Callable[[dict[str, Any]], None]]

_ADDRESS = "RAY_INBOX_OF_HVD"  # for ranks that are no actors: the inbox's name, and its namespace
_PERIOD_S = 0.1  # between two looks into the inbox

_inbox: Any = None
_rank = 0


class _Inbox:
    """An actor that keeps messages until the driver takes them."""

    def __init__(self) -> None:
        self._messages: list[Any] = []

    def put(self, message: Any) -> None:
        self._messages.append(message)

    def take(self) -> list[Any]:
        taken, self._messages = self._messages, []
        return taken


# ---- on a rank


def configure(inbox: Any, rank: int) -> None:
    """Where this process's messages go, and which rank it is before `hvd.init()`; None: nobody listens."""
    global _inbox, _rank
    _inbox, _rank = inbox, rank


def log(values: dict[str, Any], chief_only: bool = True, *, stacklevel: int = 2) -> None:
    """Gives the callbacks of `RayExecutor.run` these values, which can be pickled; with `chief_only` on rank 0 only.
    Warns if there are no callbacks; `stacklevel` is that of `warnings.warn`."""
    if chief_only and (basics.rank() if basics.is_initialized() else _rank) != 0:
        return
    inbox = _found_inbox()
    if inbox is None:
        warnings.warn("log() has no effect: the call of the executor has no callbacks", stacklevel=stacklevel)
    else:
        ray.get(inbox.put.remote(values))


def _found_inbox() -> Any:
    global _inbox
    if _inbox is None and _ADDRESS in os.environ:
        name, namespace = os.environ[_ADDRESS].split()
        if not ray.is_initialized():
            ray.init(namespace=namespace, log_to_driver=False, logging_level=logging.WARNING)  # at RAY_ADDRESS
        _inbox = ray.get_actor(name, namespace)
    return _inbox


# ---- in the driver


@contextlib.contextmanager
def listening(callbacks: Callbacks | None) -> Iterator[tuple[Any, dict[str, str]]]:
    """While the body runs, a thread hands messages to the callbacks, whose exceptions are raised at the end. Gives the
    inbox for `configure`, and variables for ranks that are no actors."""
    if not callbacks:
        yield None, {}
        return
    name, namespace = f"hvd-{uuid.uuid4().hex}", ray.get_runtime_context().namespace
    inbox: Any = ray.remote(_Inbox).options(num_cpus=0, name=name, namespace=namespace).remote()
    thread = _Thread(inbox, callbacks)
    thread.start()
    try:
        yield inbox, {_ADDRESS: f"{name} {namespace}"}
    finally:
        thread.finish()
        ray.kill(inbox)
    if thread.error is not None:
        raise thread.error


class _Thread(threading.Thread):
    def __init__(self, inbox: Any, callbacks: Callbacks) -> None:
        super().__init__(name="hvd-callbacks", daemon=True)
        self._inbox = inbox
        self._callbacks = callbacks
        self._is_last = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._is_last.wait(_PERIOD_S):
                self._deliver()
            self._deliver()
        except Exception as error:
            self.error = error

    def _deliver(self) -> None:
        for message in ray.get(self._inbox.take.remote()):
            for callback in self._callbacks:
                callback(message)

    def finish(self) -> None:
        """All messages that have come are delivered."""
        self._is_last.set()
        self.join()
