"""Python objects for all ranks; see `hvd.mxnet`."""

from hvd.mxnet import allgather_object, broadcast_object

__all__ = ["allgather_object", "broadcast_object"]
