"""See `hvd.tensorflow.LocalGradientAggregationHelper`."""

from hvd.tensorflow import LocalGradientAggregationHelper

__all__ = ["LocalGradientAggregationHelper"]
