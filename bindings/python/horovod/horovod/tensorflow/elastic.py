"""See `hvd.tensorflow.elastic`."""

from hvd.tensorflow.elastic import TensorFlowKerasState, TensorFlowState, run

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
