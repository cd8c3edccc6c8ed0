"""`ElasticRayExecutor`, the older way to elastic jobs; see `hvd.ray.RayExecutor`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray

from horovod.runner.elastic.discovery import HostDiscovery
from hvd.ray import RayExecutor
from hvd.ray.messages import Callbacks
from hvd.ray.placement import fitting

__all__ = ["ElasticRayExecutor", "ElasticSettings", "RayHostDiscovery"]

_WITHOUT_EFFECT = (
    *("binding_args", "extra_mpi_args", "output_filename", "prefix_output_with_timestamp", "run_func_mode"),
    *("ssh_port", "tcp_flag", "timestamp_output", "verbose"),
)


class RayHostDiscovery(HostDiscovery):
    """All nodes of the cluster. A node's number of slots follows from its total CPUs, and GPUs with use_gpu, whether or
    not other work occupies them. Scripts derive their own discoveries from it."""

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1) -> None:
        self.use_gpu = use_gpu
        self.cpus_per_slot = cpus_per_slot
        self.gpus_per_slot = gpus_per_slot

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Slots by the node's address."""
        slot = {"CPU": self.cpus_per_slot, "GPU": self.gpus_per_slot if self.use_gpu else 0}
        nodes = (
            (node["NodeManagerAddress"], fitting(node["Resources"], slot)) for node in ray.nodes() if node["alive"]
        )
        return {address: slots for address, slots in nodes if slots}


@dataclass
class ElasticSettings:
    """See `ElasticRayExecutor.create_settings`."""

    min_num_proc: int = 1
    max_num_proc: int | None = None
    reset_limit: int | None = None
    elastic_timeout: int = 600
    timeout_s: float = 30
    cooldown_range: Any = None
    discovery: Any = None  # with RayHostDiscovery's method
    placement_group_timeout_s: float = 100  # for an actor to start


class ElasticRayExecutor:
    """An elastic `RayExecutor`.

    Args:
        settings: as from `create_settings`.
        use_gpu, cpus_per_slot, gpus_per_slot: what a rank takes of its node.
        env_vars: for the ranks' environment.
        override_discovery: use all nodes of the cluster. If False, those that `settings.discovery` finds.

    Raises:
        ValueError: gpus_per_slot without use_gpu, or less than 1.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: int = 600,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        nics: Any = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """How many ranks there may be, how often they may change, and how long to wait: for enough ranks, and for each
        other in `init()`. min_np and max_np are older names.

        Args:
            kwargs: cooldown_range; see `hvd.ray.RayExecutor`. The further settings that Horovod has are without effect,
                as ssh_identity_file and nics are: binding_args, extra_mpi_args, output_filename,
                prefix_output_with_timestamp, run_func_mode, ssh_port, tcp_flag, timestamp_output, verbose. Others cause
                a warning.
        """
        if min_np is not None or max_np is not None:
            warnings.warn("min_np and max_np are now called min_num_proc and max_num_proc", DeprecationWarning, 2)
        least, most = min_np or min_num_proc, max_np or max_num_proc
        cooldown_range = kwargs.pop("cooldown_range", None)
        for name in sorted(kwargs.keys() - set(_WITHOUT_EFFECT)):
            warnings.warn(f"create_settings has no option {name}, which has no effect", UserWarning, 2)
        return ElasticSettings(least, most, reset_limit, elastic_timeout, timeout_s, cooldown_range)

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: Mapping[str, Any] | None = None,
        override_discovery: bool = True,
    ) -> None:
        if gpus_per_slot is not None and not (use_gpu and gpus_per_slot >= 1):
            raise ValueError(
                f"gpus_per_slot is {gpus_per_slot} and use_gpu is {use_gpu}: give use_gpu=True, and at least 1 GPU a "
                "slot, or leave gpus_per_slot out"
            )
        self.settings = settings
        self._env_vars = env_vars
        self._executor = RayExecutor(
            settings,
            cpus_per_worker=cpus_per_slot,
            use_gpu=use_gpu,
            gpus_per_worker=gpus_per_slot,
            min_workers=settings.min_num_proc,
            max_workers=settings.max_num_proc,
            reset_limit=settings.reset_limit,
            cooldown_range=settings.cooldown_range,
            elastic_timeout=settings.elastic_timeout,
            override_discovery=override_discovery,
        )

    def start(self) -> None:
        self._executor.start(extra_env_vars=self._env_vars)

    def run(self, worker_fn: Callable[[], Any], callbacks: Callbacks | None = None) -> list[Any]:
        """Calls the function on every rank; see `hvd.ray.RayExecutor.run`."""
        return self._executor.run(worker_fn, callbacks=callbacks)
