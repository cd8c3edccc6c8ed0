"""`RayExecutor` and `Coordinator`; see `hvd.ray`."""

from __future__ import annotations

import hvd.ray
from horovod.ray.coordinator import Coordinator
from horovod.ray.worker import BaseHorovodWorker
from hvd.ray.executor import Settings as MiniSettings

__all__ = ["BaseHorovodWorker", "Coordinator", "MiniSettings", "RayExecutor"]


class RayExecutor(hvd.ray.RayExecutor):
    """That of hvd.ray, with actors that have Horovod's methods."""

    _worker_class = BaseHorovodWorker
