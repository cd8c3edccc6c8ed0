"""See `hvd.torch.SyncBatchNorm`."""

from hvd.torch import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
