"""Parameters, optimizer state and Python objects for all ranks; see `hvd.torch.functions`."""

from __future__ import annotations

import torch

import hvd.torch as _hvd
from hvd.process_set import ProcessSet, global_process_set
from hvd.torch import allgather_object, broadcast_object, broadcast_parameters

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """As `hvd.torch.broadcast_optimizer_state`, and where the optimizer had no state on this rank, its parameters have
    gradients of zeros afterwards, as scripts for Horovod find them: it made the state by a step with those."""
    had_state = bool(optimizer.state)
    _hvd.broadcast_optimizer_state(optimizer, root_rank, model, process_set)
    if had_state:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                zeros = torch.zeros_like(parameter, requires_grad=False)
                parameter.grad = zeros.to_sparse(1) if isinstance(optimizer, torch.optim.SparseAdam) else zeros
