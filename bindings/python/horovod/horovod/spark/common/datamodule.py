"""Readers of one's own for estimators, see `hvd.spark.data_module`."""

from hvd.spark.data_module import DataModule

__all__ = ["DataModule"]
