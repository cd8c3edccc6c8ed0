"""Where the actors of a job run: the bundles of a placement group, and which rank gets which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.util import get_current_placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup, placement_group

Resources = Mapping[str, float]
_UNITS = 10_000  # of a resource's amount 1: as Ray counts


class Bundle(NamedTuple):
    number: int  # in the group
    node: str


@dataclass(frozen=True)
class Placement:
    group: PlacementGroup
    is_own: bool  # made for this job, and to be removed with it
    bundles: Sequence[Bundle]  # by rank

    def remove(self) -> None:
        if self.is_own:
            remove_placement_group(self.group)


def in_new_group(
    bundles: int, workers_per_bundle: int, worker: Resources, strategy: str, timeout_s: float
) -> Placement:
    """In a group of its own with equal bundles.

    Raises:
        TimeoutError: there was no room for it in time; nothing is left of it.
    """
    bundle = {name: amount * workers_per_bundle for name, amount in worker.items() if amount}
    group = new_group(bundle, bundles, strategy, timeout_s)
    return Placement(group, True, _by_rank(group, [workers_per_bundle] * bundles))


def new_group(bundle: Resources, count: int, strategy: str, timeout_s: float) -> PlacementGroup:
    """With equal bundles; see `in_new_group`."""
    group: PlacementGroup = placement_group([dict(bundle) for _ in range(count)], strategy=strategy)
    if not group.wait(timeout_s):
        remove_placement_group(group)
        raise TimeoutError(
            f"no room within {timeout_s:g} s for {count} bundles of {dict(bundle)}, "
            f"{strategy}: {amounts(ray.available_resources())} of {amounts(ray.cluster_resources())} are free"
        )
    return group


def in_current_group(workers: int, worker: Resources) -> Placement | None:
    """In the group that the caller runs in, as a trial of Ray Tune does; None if it runs in none.

    The first bundle is the last to be used, for the caller is in it.

    Raises:
        ValueError: the group has no room for so many.
    """
    group = get_current_placement_group()
    if group is None:
        return None
    room = [fitting(bundle, worker) for bundle in group.bundle_specs]
    if sum(room) < workers:
        raise ValueError(
            f"the current placement group has room for {sum(room)} workers of {dict(worker)}, and not for {workers}; "
            "use_current_placement_group=False makes a new one"
        )
    taken = [0] * len(room)
    left = workers
    for index in [*range(1, len(room)), 0]:
        taken[index] = min(room[index], left)
        left -= taken[index]
    return Placement(group, False, _by_rank(group, taken))


def fitting(bundle: Resources, worker: Resources) -> int:
    """How many workers a bundle, or a node, has room for."""
    needed = {name: units(amount) for name, amount in worker.items()}
    return min((units(bundle.get(name, 0)) // amount for name, amount in needed.items() if amount), default=0)


def units(amount: float) -> int:
    """Of a resource, as Ray counts it: 0.6 / 0.2 is less than 3."""
    return round(amount * _UNITS)


def times(amount: float, workers: int) -> float:
    """What so many workers need together, as Ray counts it."""
    return units(amount * workers) / _UNITS


def names_of(node: Mapping[str, Any]) -> set[str]:
    """The names of one of `ray.nodes()`: its address, and NAME of each of its resources `node:NAME`."""
    return {node["NodeManagerAddress"], *(key[5:] for key in node["Resources"] if key.startswith("node:"))}


def _by_rank(group: PlacementGroup, workers: Sequence[int]) -> list[Bundle]:
    """Node by node, so that ranks with following numbers share a host."""
    nodes = placement_group_table(group)["bundles_to_node_id"]
    first = {node: number for number, node in reversed(list(enumerate(nodes[index] for index in range(len(workers)))))}
    bundles = sorted(range(len(workers)), key=lambda index: (first[nodes[index]], index))
    return [Bundle(index, nodes[index]) for index in bundles for _ in range(workers[index])]


def amounts(resources: Resources) -> str:
    return ", ".join(f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU"))
