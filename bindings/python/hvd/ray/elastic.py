"""An elastic job on the nodes of a Ray cluster.

An actor on each node keeps a place, where hvdrun starts ranks (`hvd.cluster.Place`); hvdrun runs in the driver. So
membership, `hvd.elastic`, `hvd top` and the report of failures are those of any elastic job. A node whose actor dies is
a lost host, until a new actor runs there. Where room for more ranks becomes free, another actor keeps another place.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hvd.cluster import JobToken, Place, PlaceAddress, PlacesJob
from hvd.ray import placement
from hvd.ray.messages import Callbacks, listening

_RESTART_S = 2.0  # from the loss of an actor to the start of the next one on its node
_SETTLE_S = 2.0  # of unchanged room on a node, before an actor takes less than all of it: Ray's view may be stale
_END_S = 10.0  # for the actors to hand over what their ranks have left


@dataclass(frozen=True)
class Limits:
    """See `RayExecutor`."""

    min_workers: int
    max_workers: int | None
    reset_limit: int | None
    cooldown_range: Sequence[int] | None
    elastic_timeout: int

    def __post_init__(self) -> None:
        if self.min_workers < 1:
            raise ValueError(f"min_workers must be at least 1, not {self.min_workers}")
        if self.max_workers is not None and self.max_workers < self.min_workers:
            raise ValueError(
                f"max_workers is {self.max_workers}, below min_workers, which is {self.min_workers}: raise it, or "
                "leave it out to use all nodes"
            )

    def options(self) -> list[str]:
        """For hvdrun."""
        options = ["--elastic-timeout", str(self.elastic_timeout)]
        if self.reset_limit is not None:
            options += ["--reset-limit", str(self.reset_limit)]
        if self.cooldown_range is not None:
            options += ["--cooldown-range", ",".join(map(str, self.cooldown_range))]
        return options


class ElasticJob:
    actors: Sequence[Any] = ()  # the ranks are no actors

    def __init__(self, settings: Any, limits: Limits, cpus: float, gpus: float, discovery: Any) -> None:
        self._settings = settings
        self._limits = limits
        self._worker = {"CPU": cpus, "GPU": gpus}
        self._discovery = discovery
        self._make: Callable[[], Any] | None = None
        self._variables: dict[str, str] = {}

    def start(
        self,
        executable_cls: Callable[..., Any] | None,
        executable_args: Sequence[Any],
        executable_kwargs: Mapping[str, Any],
        variables: Mapping[str, str],
    ) -> None:
        self._make = lambda: executable_cls(*executable_args, **executable_kwargs) if executable_cls else None
        own = {
            "OMP_NUM_THREADS": str(max(1, int(self._worker["CPU"]))),
            "RAY_ADDRESS": ray.get_runtime_context().gcs_address,  # the ranks are no actors, and may use Ray
        }
        self._variables = {**own, **variables}

    def shutdown(self) -> None:
        self._make = None

    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks | None) -> list[Any]:
        make = self._make
        if make is None:
            raise ValueError("not started: call start() before")
        job = PlacesJob(lambda: fn(make()))
        start_timeout_s = self._settings.placement_group_timeout_s
        nodes = Nodes(job.token, self._worker, self._limits.max_workers, self._discovery, start_timeout_s)
        try:
            with listening(callbacks) as (_, address):
                return job.run(
                    self._limits.min_workers,
                    nodes,
                    min_np=self._limits.min_workers,
                    max_np=self._limits.max_workers,
                    env={**self._variables, **address},
                    start_timeout=self._settings.timeout_s,
                    options=self._limits.options(),
                )
        finally:
            nodes.close()

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        raise NotImplementedError("an elastic job has no single rank that stays: use run() or execute()")

    def execute_remote(self, fn: Callable[[Any], Any]) -> list[Any]:
        raise NotImplementedError("an elastic job's ranks are not known before: use run() or execute()")


class PlaceActor:
    """What the actor of a node runs: it keeps a place, in the environment that Ray has given it.

    Args:
        is_host: whether its ranks are a host of their own, although another place may be on the same node: their
            CUDA_VISIBLE_DEVICES has the GPUs of this actor alone, among which their local ranks are to count.
    """

    def __init__(self, token: JobToken, is_host: bool) -> None:
        if is_host:
            os.environ["HVD_HOST_ID"] = uuid.uuid4().hex
        self._place = Place(token, ray.util.get_node_ip_address())

    def address(self) -> str:
        return self._place.address

    def wait(self) -> None:
        """Until there is no agent any more."""
        self._place.wait()

    def ends(self) -> dict[str, bytes]:
        return self._place.ends()

    def close(self) -> None:
        self._place.close()


@dataclass
class _Kept:
    """A place, and the actor that keeps it."""

    node: str  # Ray's id
    place: PlaceAddress  # without an address as long as the agent does not listen
    actor: Any
    listens: Any  # ObjectRef of the address
    ends: Any  # ObjectRef of the agent's end
    since: float  # when the actor was requested


class Nodes:
    """The nodes of the cluster as places; see `hvd.cluster.Places`."""

    def __init__(
        self, token: JobToken, worker: Mapping[str, float], most: int | None, discovery: Any, start_timeout_s: float
    ) -> None:
        self._token = token
        self._worker = worker
        self._most = most
        self._discovery = discovery
        self._start_timeout_s = start_timeout_s
        self._free_by_node = _ray_free_by_node()
        self._kept: list[_Kept] = []
        self._not_before: dict[str, float] = {}
        self._seen: dict[str, tuple[int, float]] = {}  # free slots of a node that is partly taken, and since when
        self._warned: set[str] = set()

    def addresses(self) -> Sequence[PlaceAddress]:
        alive = {node["NodeID"]: node for node in ray.nodes() if node["alive"]}
        for kept in list(self._kept):
            try:
                if not kept.place.address and _is_ready(kept.listens):
                    kept.place = PlaceAddress(kept.place.name, ray.get(kept.listens), kept.place.slots)
                is_over = kept.node not in alive or _is_ready(kept.ends) or self._is_late(kept)
            except RayError as error:
                is_over = True
                self._warn(f"{kept.place.name} is not used for ranks: {str(error).splitlines()[-1]}")
            if is_over:
                self._not_before[kept.node] = time.monotonic() + _RESTART_S
                self._drop(kept)
        wanted = self._wanted(alive)
        self._use_more(alive, wanted)
        # Where fewer slots are wanted the actor stays, so that ranks leave in order, and the host is not lost.
        usable = [place for node, slots in wanted.items() for place in _usable(self._places(node), slots)]
        return sorted(usable, key=lambda place: place.name)

    def _wanted(self, alive: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Slots of each node, by id, whatever else runs there."""
        room = {each: placement.fitting(node["Resources"], self._worker) for each, node in alive.items()}
        if self._discovery is None:
            return room
        found = self._discovery.find_available_hosts_and_slots()
        slots = {each: sum(found.get(name, 0) for name in placement.names_of(node)) for each, node in alive.items()}
        return {each: min(room[each], slots[each]) for each in room}

    def _places(self, node: str) -> list[PlaceAddress]:
        return [kept.place for kept in self._kept if kept.node == node]

    def _is_late(self, kept: _Kept) -> bool:
        """Whether its actor has not started in time: other work may have taken the room that it was to have."""
        if kept.place.address or time.monotonic() < kept.since + self._start_timeout_s:
            return False
        self._warn(f"{kept.place.name}: no actor within {self._start_timeout_s:g} s (placement_group_timeout_s)")
        return True

    def _use_more(self, alive: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, int]) -> None:
        free = self._free_by_node()
        places = {node: self._places(node) for node in wanted}
        kept = {node: sum(place.slots for place in own) for node, own in places.items()}
        used = sum(min(wanted[node], kept[node]) for node in wanted)
        for node, own in places.items():
            missing = wanted[node] - kept[node]
            if self._most is not None:
                missing = min(missing, self._most - used)
            is_starting = not all(place.address for place in own)  # and its room may still count as free
            if missing < 1 or is_starting or time.monotonic() < self._not_before.get(node, 0):
                continue
            there = free.get(node, {})
            fitting = min(missing, placement.fitting(there, self._worker))
            if fitting < missing and not self._has_settled(node, fitting):
                continue
            fitting = _grantable(fitting, self._worker)
            name = f"{alive[node]['NodeManagerAddress']}-{node[:6]}"  # several nodes may share an address
            if fitting:
                self._kept.append(self._start(node, _unused(name, own), fitting))
                used += fitting
            elif not own:
                self._warn(
                    f"waits for room on {name}: {placement.amounts(there)} of "
                    f"{placement.amounts(alive[node]['Resources'])} are free, and a rank needs "
                    f"{placement.amounts(self._worker)}"
                )

    def _has_settled(self, node: str, slots: int) -> bool:
        now = time.monotonic()
        seen, since = self._seen.get(node, (-1, now))
        if seen != slots:
            self._seen[node] = (slots, now)
        return seen == slots and now >= since + _SETTLE_S

    def _start(self, node: str, name: str, slots: int) -> _Kept:
        amounts = {name: placement.times(amount, slots) for name, amount in self._worker.items()}
        options = ray.remote(PlaceActor).options(
            num_cpus=amounts["CPU"],
            num_gpus=amounts["GPU"],
            max_concurrency=2,  # wait() goes on while others are called
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        actor: Any = options.remote(self._token, amounts["GPU"] > 0)
        place = PlaceAddress(name, "", slots)
        return _Kept(node, place, actor, actor.address.remote(), actor.wait.remote(), time.monotonic())

    def ends(self) -> Iterable[Mapping[str, bytes]]:
        answers = [kept.actor.ends.remote() for kept in self._kept if kept.place.address]
        ready, _ = ray.wait(answers, num_returns=len(answers), timeout=_END_S) if answers else ([], [])
        return _there(ready)

    def close(self) -> None:
        closed = [kept.actor.close.remote() for kept in self._kept]
        if closed:
            ray.wait(closed, num_returns=len(closed), timeout=_END_S)
        for kept in list(self._kept):
            self._drop(kept)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            print(f"hvd.ray: {text}", file=sys.stderr, flush=True)

    def _drop(self, kept: _Kept) -> None:
        self._kept.remove(kept)
        ray.kill(kept.actor)


def _ray_free_by_node() -> Callable[[], Mapping[str, Mapping[str, float]]]:
    """Ray's function that tells what is free on each node, by id. `ray.util.state` knows only what nodes have in all,
    and `ray.available_resources()` what the whole cluster has free."""
    try:
        from ray._private.state import available_resources_per_node
    except ImportError:
        raise RuntimeError(
            f"elastic jobs need ray._private.state.available_resources_per_node, which Ray {ray.__version__} does not "
            "have: use the Ray that docs/ray.md names, or num_workers instead of min_workers"
        ) from None
    return available_resources_per_node


def _usable(places: Iterable[PlaceAddress], slots: int) -> Iterator[PlaceAddress]:
    """The places that listen, up to this many slots in all."""
    for place in places:
        if place.address and slots > 0:
            yield PlaceAddress(place.name, place.address, min(place.slots, slots))
            slots -= place.slots


def _grantable(slots: int, worker: Mapping[str, float]) -> int:
    """The most of these slots that one actor can have: of more than one GPU, Ray grants whole ones only. Another place
    takes the others."""
    return next(
        (n for n in range(slots, 0, -1) if (gpus := placement.times(worker["GPU"], n)) <= 1 or gpus % 1 == 0), 0
    )


def _unused(name: str, places: Sequence[PlaceAddress]) -> str:
    """The name for one more place of a node with these."""
    used = {place.name for place in places}
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(each for each in names if each not in used)


def _is_ready(answer: Any) -> bool:
    return bool(ray.wait([answer], timeout=0)[0])


def _there(answers: Iterable[Any]) -> Iterator[dict[str, bytes]]:
    """Of actors that have not died meanwhile."""
    for answer in answers:
        with contextlib.suppress(RayError):
            yield ray.get(answer)
