"""A rank in an actor of Ray."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from hvd import basics, cluster, failure
from hvd.outcome import Outcome
from hvd.ray import messages
from hvd.ray.rendezvous_store import place_in


class Worker:
    """What an actor runs: calls, one after the other. `hvd.init()` in a call makes the actor a rank, and it stays one
    until a call fails: then the other ranks learn the cause, and it leaves the job.

    Args:
        rank, size: its place.
        job: as from `rendezvous_store.new_job`; empty: none yet.
        variables: for its environment.
    """

    def __init__(self, rank: int, size: int, job: str, variables: Mapping[str, str]) -> None:
        os.environ.update(variables)
        self.executable: Any = None
        self._rank = rank
        self._size = size
        self._membership = contextlib.ExitStack()
        if job:
            self.belong_to(job)

    def __repr__(self) -> str:  # in Ray's logs and errors
        return f"rank {self._rank} of {self._size}"

    def belong_to(self, job: str) -> None:
        """Leaves the job that it is in; from now on `hvd.init()` joins this one."""
        self._membership.close()
        self._membership.enter_context(cluster.member(place_in(job, self._rank, self._size)))

    def gpus(self) -> list[int | str]:
        """Those that Ray has given this actor."""
        return list(ray.get_gpu_ids())

    def set_variables(self, variables: Mapping[str, str]) -> None:
        os.environ.update(variables)

    def make_executable(self, make: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.executable = make(*args, **kwargs)

    def execute(self, fn: Callable[[Any], Any]) -> Any:
        """Calls `fn(executable)`."""
        try:
            return fn(self.executable)
        except BaseException as error:
            failure.tell(error)
            basics.shutdown()
            raise

    def attempt(self, method: str, *args: Any, inbox: Any = None) -> tuple[Any, Outcome | None]:
        """Calls one of the methods above. Returns its result, or what has gone wrong."""
        messages.configure(inbox, self._rank)
        try:
            return getattr(self, method)(*args), None
        except BaseException as error:
            failure.tell(error)
            return None, Outcome.of_failure(error)
        finally:
            messages.configure(None, self._rank)  # the driver ends the inbox when the call has returned
