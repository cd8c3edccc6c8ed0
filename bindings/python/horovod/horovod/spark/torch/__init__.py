"""Spark ML estimators for PyTorch, see `hvd.spark.torch`."""

from hvd.spark.torch import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
