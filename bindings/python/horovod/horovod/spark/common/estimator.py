"""What the estimators of all frameworks have in common, see `hvd.spark.estimator`."""

from hvd.spark.estimator import HvdEstimator as HorovodEstimator
from hvd.spark.estimator import HvdModel as HorovodModel

__all__ = ["HorovodEstimator", "HorovodModel"]
