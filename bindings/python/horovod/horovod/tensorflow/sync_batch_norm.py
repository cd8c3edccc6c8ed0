"""See `hvd.tensorflow.SyncBatchNormalization`."""

from hvd.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
