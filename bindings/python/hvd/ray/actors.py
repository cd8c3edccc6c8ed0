"""A job of a fixed size, whose ranks are actors of Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hvd import cluster
from hvd.outcome import Outcome
from hvd.ray import placement, rendezvous_store
from hvd.ray.messages import Callbacks, listening
from hvd.ray.worker import Worker

_GRACE_S = 5.0  # for the other ranks to end by themselves, once one has failed
_COMMON_CAUSES = " Some common causes include"


@dataclass(frozen=True)
class Layout:
    """Which ranks there are, and where; see `RayExecutor`."""

    workers: int | None
    hosts: int | None
    workers_per_host: int
    cpus: float  # of a rank
    gpus: float
    use_current_group: bool
    strategy: str

    def __post_init__(self) -> None:
        if (self.workers is None) == (self.hosts is None):
            raise ValueError(f"num_workers is {self.workers} and num_hosts is {self.hosts}: give one of them")
        if self.size < 1:
            given = f"num_hosts is {self.hosts} and num_workers_per_host is {self.workers_per_host}"
            given = given if self.workers is None else f"num_workers is {self.workers}"
            raise ValueError(f"{given}: there must be at least one worker")

    @property
    def size(self) -> int:
        return self.workers if self.workers is not None else (self.hosts or 0) * self.workers_per_host

    def place(self, timeout_s: float) -> placement.Placement:
        worker = {"CPU": self.cpus, "GPU": self.gpus}
        found = placement.in_current_group(self.size, worker) if self.use_current_group else None
        if found is not None:
            return found
        if self.hosts is None:
            return placement.in_new_group(self.size, 1, worker, self.strategy, timeout_s)
        return placement.in_new_group(self.hosts, self.workers_per_host, worker, "STRICT_SPREAD", timeout_s)


class ActorsJob:
    def __init__(self, settings: Any, layout: Layout, worker_class: type[Worker]) -> None:
        self._settings = settings
        self._layout = layout
        self._worker_class = worker_class
        self._placement: placement.Placement | None = None
        self._job = ""
        self._lost = ""  # why there are ranks that cannot be called any more
        self.actors: list[Any] = []  # by rank

    def start(
        self,
        executable_cls: Callable[..., Any] | None,
        executable_args: Sequence[Any],
        executable_kwargs: Mapping[str, Any],
        variables: Mapping[str, str],
    ) -> None:
        if self.actors:
            raise ValueError("started already: call shutdown() before")
        self._placement = self._layout.place(self._settings.placement_group_timeout_s)
        try:
            self._start_actors(self._placement, variables)
            if executable_cls is not None:
                self._call("make_executable", executable_cls, executable_args, executable_kwargs)
        except BaseException:
            self.shutdown()
            raise

    def _start_actors(self, placed: placement.Placement, variables: Mapping[str, str]) -> None:
        self._job = rendezvous_store.new_job()
        self._lost = ""
        variables = {"HVD_START_TIMEOUT": str(self._settings.timeout_s), **variables}
        actor = ray.remote(self._worker_class)
        for rank, bundle in enumerate(placed.bundles):
            options = actor.options(
                num_cpus=self._layout.cpus,
                num_gpus=self._layout.gpus,
                max_restarts=0,  # of a rank nobody can take the place
                scheduling_strategy=PlacementGroupSchedulingStrategy(placed.group, bundle.number, False),
            )
            self.actors.append(options.remote(rank, self._layout.size, self._job, variables))
        gpus = self._await_start([actor.gpus.remote() for actor in self.actors])
        if self._layout.gpus:
            self._show_gpus(placed.bundles, gpus)

    def _await_start(self, answers: list[Any]) -> list[Any]:
        timeout_s = self._settings.placement_group_timeout_s
        _, late = ray.wait(answers, num_returns=len(answers), timeout=timeout_s)
        if late:
            ranks = ", ".join(str(rank) for rank, answer in enumerate(answers) if answer in late)
            raise TimeoutError(f"no actor within {timeout_s:g} s (placement_group_timeout_s) for ranks: {ranks}")
        return list(ray.get(answers))

    def _show_gpus(self, bundles: Sequence[placement.Bundle], gpus: list[list[int | str]]) -> None:
        """Each rank sees those of all ranks of its host: its own is that of its local rank."""
        by_node: dict[str, list[int | str]] = {}
        for bundle, own in zip(bundles, gpus):
            seen = by_node.setdefault(bundle.node, [])
            seen += [gpu for gpu in own if gpu not in seen]
        visible = [{"CUDA_VISIBLE_DEVICES": ",".join(map(str, by_node[bundle.node]))} for bundle in bundles]
        for actor, variables in zip(self.actors, visible):
            actor.set_variables.remote(variables)  # before the calls that follow

    def shutdown(self) -> None:
        for actor in self.actors:
            ray.kill(actor)
        self.actors = []
        if self._job:
            rendezvous_store.forget(self._job)
        if self._placement is not None:
            self._placement.remove()
            self._placement = None

    # ---- calls

    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks | None) -> list[Any]:
        return self._call("execute", fn, callbacks=callbacks)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        return self._call("execute", fn, actors=self._started()[:1])[0]

    def execute_remote(self, fn: Callable[[Any], Any]) -> list[Any]:
        return [actor.execute.remote(fn) for actor in self._started()]

    def _started(self) -> list[Any]:
        if not self.actors:
            raise ValueError("not started: call start() before")
        if self._lost:
            raise ValueError(f"{self._lost}: call shutdown() and start() again")
        return self.actors

    def _call(
        self, method: str, *args: Any, actors: Sequence[Any] | None = None, callbacks: Callbacks | None = None
    ) -> list[Any]:
        actors = self._started() if actors is None else actors
        given = [ray.put(arg) for arg in args]
        with listening(callbacks) as (inbox, _):
            call = _Call([actor.attempt.remote(method, *given, inbox=inbox) for actor in actors])
            if call.await_failure():
                rendezvous_store.fail(self._job, f"{call.failed()} has failed")  # to those that wait for it in init()
                call.await_others()
        if call.has_failed:
            self._recover(call)
        return call.results(self._layout.size)

    def _recover(self, call: _Call) -> None:
        """After a failure: all that can still be called leave the job, and will join a new one."""
        for rank in call.late:
            ray.kill(self.actors[rank])
        if call.lost or call.late:
            self._lost = "; ".join(f"rank {rank} {how}" for rank, how in sorted({**call.late, **call.lost}.items()))
            return
        rendezvous_store.forget(self._job)
        self._job = rendezvous_store.new_job()
        for actor in self.actors:
            actor.belong_to.remote(self._job)  # before the calls that follow


class _Call:
    """A method called on all ranks, until it has returned on all, or the time after a failure is up."""

    def __init__(self, answers: list[Any]) -> None:
        self._ranks = {answer: rank for rank, answer in enumerate(answers)}
        self._pending = list(answers)
        self._values: dict[int, Any] = {}
        self.outcomes: dict[int, Outcome] = {}  # of the ranks that have failed
        self.lost: dict[int, str] = {}
        self.late: dict[int, str] = {}

    @property
    def has_failed(self) -> bool:
        return bool(self.lost or self.outcomes)

    def failed(self) -> str:
        return ", ".join(f"rank {rank}" for rank in sorted({**self.outcomes, **self.lost}))

    def await_failure(self) -> bool:
        """Whether there was one; False: all have returned."""
        while self._pending and not self.has_failed:
            self._take_next(None)
        return self.has_failed

    def await_others(self) -> None:
        deadline = time.monotonic() + _GRACE_S
        while self._pending and (left := deadline - time.monotonic()) > 0:
            self._take_next(left)
        self.late = {self._ranks[answer]: "had not returned, and was killed" for answer in self._pending}

    def _take_next(self, timeout_s: float | None) -> None:
        ready, self._pending = ray.wait(self._pending, num_returns=1, timeout=timeout_s)
        for answer in ready:
            self._take(answer, self._ranks[answer])

    def results(self, size: int) -> list[Any]:
        """By rank; raises as `run`."""
        if self.has_failed:
            cluster.results(self.outcomes, size, self.lost)
        return [self._values[rank] for rank in sorted(self._values)]

    def _take(self, answer: Any, rank: int) -> None:
        try:
            value, outcome = ray.get(answer)
        except RayActorError as error:
            self.lost[rank] = _how(error)
        except RayError as error:  # it could not read the function, or not write the result
            self.outcomes[rank] = Outcome.of_failure(error)
        else:
            if outcome is None:
                self._values[rank] = value
            else:
                self.outcomes[rank] = outcome


def _how(error: RayActorError) -> str:
    """Of what Ray says at length: which process, and how it ended."""
    lines = str(error).splitlines()
    facts = [line.strip() for line in lines if line.strip().startswith(("pid:", "ip:"))]
    return f"has died ({', '.join(facts)}): {lines[-1].partition(_COMMON_CAUSES)[0]}"
