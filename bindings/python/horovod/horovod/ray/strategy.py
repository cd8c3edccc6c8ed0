"""Placement groups for programs that make their own."""

from __future__ import annotations

from collections.abc import Mapping

from ray.util.placement_group import PlacementGroup

from hvd.ray import placement

__all__ = ["create_placement_group"]


def create_placement_group(
    resources_per_bundle: Mapping[str, float], num_bundles: int, pg_timeout: float, pg_strategy: str
) -> tuple[PlacementGroup, list[dict[str, float]]]:
    """A placement group with equal bundles, and these.

    Args:
        pg_timeout: seconds until there must be room for it.
        pg_strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Raises:
        TimeoutError: there was no room; nothing is left of it.
    """
    group = placement.new_group(resources_per_bundle, num_bundles, pg_strategy, pg_timeout)
    return group, group.bundle_specs
