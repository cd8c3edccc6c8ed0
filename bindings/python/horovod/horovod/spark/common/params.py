"""The params of estimators and models, see `hvd.spark.params`."""

from hvd.spark.params import EstimatorParams, ModelParams

__all__ = ["EstimatorParams", "ModelParams"]
