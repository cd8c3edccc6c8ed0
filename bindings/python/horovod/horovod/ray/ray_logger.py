"""What ranks tell the driver's callbacks; see `hvd.ray.log`."""

from __future__ import annotations

from typing import Any

from hvd.ray import messages

__all__ = ["log"]


def log(info_dict: dict[str, Any]) -> None:
    """Gives the callbacks of `RayExecutor.run` these values, from whichever rank calls it."""
    messages.log(info_dict, chief_only=False, stacklevel=3)
