"""What ranks tell the driver's callbacks; see `hvd.ray.log`."""

from hvd.ray.messages import log

__all__ = ["log"]
