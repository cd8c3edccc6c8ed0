"""Parameters, optimizer state and Python objects for all ranks; see `hvd.torch.functions`."""

from hvd.torch import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]
