"""Elastic jobs of `RayExecutor`; see `hvd.ray`."""

from __future__ import annotations

from horovod.ray import elastic

__all__ = ["RayHostDiscovery"]


class RayHostDiscovery(elastic.RayHostDiscovery):
    """That of `horovod.ray.elastic`, by other names."""

    def __init__(self, use_gpu: bool = False, cpus_per_worker: int = 1, gpus_per_worker: int = 1) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker)
