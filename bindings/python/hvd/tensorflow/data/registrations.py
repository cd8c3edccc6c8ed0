"""What has registered with a `ComputeService`: dispatchers, workers, and the ranks that read."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

LONGEST_WAIT_S = 10.0  # of one request: who waits longer asks again, and so learns when the service is gone

REQUESTS = (
    "hello",
    *("register_dispatcher", "register_worker", "worker_has_stopped"),
    *("wait_for_dispatcher", "wait_for_workers", "agree_on_job"),
    *("begin_reading", "end_reading", "withdraw_dispatcher", "abandon_dispatcher"),
    *("shutdown", "wait_for_shutdown"),
)

_MOST_RANKS = 1 << 24
_LONGEST_ADDRESS = 300
_STOPPED = ""  # in place of a dispatcher's address


class Registrations:
    """Each of `REQUESTS` is a method, called on many threads.

    One that waits does so for `seconds` at most. Its result begins with whether what it waited for is there; what
    follows is that, or how far it has come.
    """

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        self._workers_per_dispatcher = workers_per_dispatcher
        self._changed = threading.Condition()  # guards what follows
        self._dispatchers: list[str | None] = [None] * dispatchers  # their addresses
        self._workers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._readers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._gathering: dict[int, set[int]] = {}  # ranks that wait for a job's name, by how many there will be
        self._job_names: dict[int, str] = {}  # by rank, until the rank has taken it
        self._jobs = 0
        self._is_over = False

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request, or what is wrong with it. Nothing in a question is taken for granted."""
        arguments = dict(question)
        request = arguments.pop("request", None)
        if request not in REQUESTS:
            return {"error": f"there is no request {request!r}"}
        method = getattr(self, request)
        if arguments.keys() != inspect.signature(method).parameters.keys():
            return {"error": f"{request} does not have the arguments {sorted(arguments)}"}
        for name, value in arguments.items():
            if not self._is_valid(name, value):
                return {"error": f"{request}: {name} is {value!r}"}
        try:
            return {"result": method(**arguments)}
        except ValueError as error:
            return {"error": str(error)}

    def _is_valid(self, name: str, value: object) -> bool:
        if name == "address":
            return isinstance(value, str) and 0 < len(value) <= _LONGEST_ADDRESS
        if name == "seconds":
            return isinstance(value, (int, float)) and 0 <= value <= LONGEST_WAIT_S
        limit = len(self._dispatchers) if name == "dispatcher" else _MOST_RANKS
        return type(value) is int and 0 <= value < limit

    def hello(self) -> None:
        """For a client that tries an address."""

    def register_dispatcher(self, dispatcher: int, address: str) -> None:
        with self._changed:
            if self._dispatchers[dispatcher] is not None:
                raise ValueError(f"dispatcher {dispatcher} was there already: start compute workers for each training")
            self._dispatchers[dispatcher] = address
            self._changed.notify_all()

    def register_worker(self, dispatcher: int, worker: int) -> None:
        with self._changed:
            self._workers[dispatcher].add(worker)
            self._changed.notify_all()

    def worker_has_stopped(self, dispatcher: int, worker: int) -> None:
        with self._changed:
            self._workers[dispatcher].discard(worker)
            self._changed.notify_all()

    def wait_for_dispatcher(self, dispatcher: int, seconds: float) -> tuple[bool, str]:
        with self._changed:
            self._wait(lambda: self._dispatchers[dispatcher] is not None, seconds)
            self._require_not_stopped(dispatcher)
            address = self._dispatchers[dispatcher]
            return address is not None, address or f"dispatcher {dispatcher} has not registered"

    def wait_for_workers(self, dispatcher: int, seconds: float) -> tuple[bool, str]:
        with self._changed:
            workers, expected = self._workers[dispatcher], self._workers_per_dispatcher
            self._wait(lambda: len(workers) >= expected or self._dispatchers[dispatcher] == _STOPPED, seconds)
            self._require_not_stopped(dispatcher)
            so_far = f"{len(workers)} of {expected} workers of dispatcher {dispatcher} have registered"
            return len(workers) >= expected, so_far

    def agree_on_job(self, rank: int, size: int, seconds: float) -> tuple[bool, str]:
        """A name that is new, and the same for all ranks. tf.data knows a job by its name alone: under an old one there
        is nothing left to read, or the data of another dataset."""
        if rank >= size:
            raise ValueError(f"rank {rank} of {size}")
        with self._changed:
            self._job_names.pop(rank, None)  # of a training that did not come to take it
            here = self._gathering.setdefault(size, set())
            here.add(rank)
            if len(here) == size:
                self._job_names.update(dict.fromkeys(here, f"hvd-{self._jobs}"))
                self._jobs += 1
                here.clear()
                self._changed.notify_all()
            self._wait(lambda: rank in self._job_names, seconds)
            missing = sorted(set(range(size)) - here)
            here.discard(rank)
            name = self._job_names.pop(rank, None)
            return name is not None, name or f"ranks {missing} have not called send_to_data_service"

    def begin_reading(self, dispatcher: int, rank: int) -> None:
        with self._changed:
            self._require_not_stopped(dispatcher)
            self._readers[dispatcher].add(rank)

    def end_reading(self, dispatcher: int, rank: int) -> None:
        with self._changed:
            self._readers[dispatcher].discard(rank)
            self._changed.notify_all()

    def withdraw_dispatcher(self, dispatcher: int, seconds: float) -> tuple[bool, str]:
        """Once nobody reads from it: tf.data waits without end for a dispatcher that has stopped."""
        with self._changed:
            readers = self._readers[dispatcher]
            self._wait(lambda: not readers, seconds)
            if not readers:
                self._dispatchers[dispatcher] = _STOPPED
            return not readers, f"ranks {sorted(readers)} still read from dispatcher {dispatcher}"

    def abandon_dispatcher(self, dispatcher: int) -> None:
        """Of a rank that has failed: those that come later must not wait for it."""
        with self._changed:
            self._dispatchers[dispatcher] = _STOPPED
            self._changed.notify_all()

    def shutdown(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait_for_shutdown(self, seconds: float) -> tuple[bool, str]:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over, seconds)
            return self._is_over, "the data service has not been shut down"

    def wait_until_workers_have_stopped(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not any(self._workers), seconds)

    def _require_not_stopped(self, dispatcher: int) -> None:
        if self._dispatchers[dispatcher] == _STOPPED:
            raise ValueError(f"dispatcher {dispatcher} has stopped: its rank has left tf_data_service")

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        self._changed.wait_for(lambda: condition() or self._is_over, seconds)
        if self._is_over and not condition():
            raise ValueError("the data service was shut down")
