"""What a rank can ask about the Spark task that it is."""

from hvd.spark.task import get_available_devices

__all__ = ["get_available_devices"]
