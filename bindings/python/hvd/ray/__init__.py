"""Ray's actors as ranks.

    from hvd.ray import RayExecutor

    executor = RayExecutor(num_workers=4)
    executor.start()
    executor.run(train)  # train calls hvd.init(), as under hvdrun
    executor.shutdown()

In Ray Train, `HvdConfig` is the backend of a trainer. Ray is imported here, and nowhere else in hvd.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvd.ray.executor import RayExecutor, Settings
    from hvd.ray.messages import log
    from hvd.ray.train import HvdConfig

# Actors need little of it, and Ray Train takes a second to import.
_MODULES = {"HvdConfig": "train", "RayExecutor": "executor", "Settings": "executor", "log": "messages"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'hvd.ray' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hvd.ray.{_MODULES[name]}"), name)


__all__ = ["HvdConfig", "RayExecutor", "Settings", "log"]
