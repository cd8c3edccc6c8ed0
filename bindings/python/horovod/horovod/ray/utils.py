"""Functions for programs that place ranks on Ray themselves, with `horovod.ray.runner.Coordinator`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ray


def map_blocking(fn: Callable[[Any], Any], collection: Iterable[Any]) -> list[Any]:
    """Calls `fn`, which returns an ObjectRef, for each element; returns the values of these."""
    return list(ray.get([fn(each) for each in collection]))


def detect_nics(
    settings: Any, all_host_names: Sequence[str] | None = None, node_workers: Sequence[Any] | None = None
) -> list[str]:
    """The network interfaces named in the settings. They are optional: hvd tries all addresses of a host."""
    return list(settings.nics or ())


def nics_to_env_var(nics: Iterable[str]) -> dict[str, str]:
    """Variables for the environment of ranks with which NCCL uses these interfaces."""
    names = ",".join(nics)
    return {"NCCL_SOCKET_IFNAME": names} if names else {}
