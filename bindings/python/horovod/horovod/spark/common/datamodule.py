"""Custom readers for estimators, see `hvd.spark.data_module`."""

from hvd.spark.data_module import DataModule

__all__ = ["DataModule"]
