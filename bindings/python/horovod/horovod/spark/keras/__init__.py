"""Spark ML estimators for Keras, see `hvd.spark.keras`."""

from hvd.spark.keras import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
