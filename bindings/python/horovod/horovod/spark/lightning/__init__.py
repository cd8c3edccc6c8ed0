"""Spark ML estimators for PyTorch Lightning, see `hvd.spark.lightning`."""

from hvd.spark.lightning import LightningEstimator, LightningModel

TorchEstimator = LightningEstimator
TorchModel = LightningModel

__all__ = ["LightningEstimator", "LightningModel", "TorchEstimator", "TorchModel"]
