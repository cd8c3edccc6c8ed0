"""Functions in threads of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a function in a thread, and returns the thread. `silent`: its exceptions are not printed."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args).__name__}; for one argument write (argument,)")

    def quietly(*arguments: Any) -> None:
        try:
            target(*arguments)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=quietly, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Calls a function with each of several lists of arguments, at the same time.

    Returns:
        The results by the number of the arguments in the list; None if it does not wait for them.

    Raises:
        Exception: the first that a call raised, if it waits.
    """
    waiting: queue.SimpleQueue[tuple[int, Sequence[Any]]] = queue.SimpleQueue()
    for numbered in enumerate(args_list):
        waiting.put(numbered)
    results: dict[int, Any] = {}
    errors: list[Exception] = []

    def work() -> None:
        while True:
            try:
                number, arguments = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[number] = fn(*arguments)
            except Exception as error:
                errors.append(error)

    threads = [in_thread(work) for _ in range(min(max_concurrent_executions, len(args_list)))]
    if not block_until_all_done:
        return None
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread that calls a function once the event is set; not if `stop` was set before."""
    if event is None:
        raise ValueError("there is no event to wait for")
    if stop is not None and not isinstance(stop, threading.Event):
        raise ValueError(f"stop must be an Event, not {type(stop).__name__}")

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args).__name__}; for one argument write (argument,)")
    return in_thread(wait, name=f"on event: {getattr(func, '__name__', func)}", daemon=daemon, silent=silent)
