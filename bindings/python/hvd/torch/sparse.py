"""Allreduce of sparse tensors (COO): the ranks' indices and values are gathered, and all stand in the result."""

from __future__ import annotations

import functools
from typing import Callable

import torch

from hvd import _native
from hvd.arguments import OPERATIONS, reduce_op
from hvd.handles import register, synchronize
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, Sum
from hvd.torch.collectives import start_group
from hvd.torch.tensors import taken_outputs, wait_for


def start_sparse_allreduce(
    tensor: torch.Tensor, function: str, name: str | None, op: int, process_set: ProcessSet
) -> tuple[_native.Work, Callable[[_native.Work], torch.Tensor]]:
    """The operation, which is `function`.`name` on the wire, and what makes the result of it once it is done."""
    if op not in (Average, Sum):
        raise ValueError(
            f"sparse allreduce with op={OPERATIONS[reduce_op(op)]} is not supported: use Average or Sum, or reduce "
            "to_dense()"
        )
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        what = f"a tensor of the layout {tensor.layout}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ValueError(f"a sparse tensor (torch.sparse_coo) is needed, not {what}: use to_sparse_coo(), or allreduce")
    with torch.no_grad():
        # What this rank has several times is added up first: that need not travel.
        own = tensor.detach().coalesce()
        rows = [own.indices().t().contiguous(), own.values().contiguous()]
    work = start_group(_native.ALLGATHER, function, name, process_set, rows)

    def finish(work: _native.Work) -> torch.Tensor:
        indices, values = taken_outputs(work, rows)
        if op == Average:
            values = values / (process_set.size() or 1)
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape)

    return work, finish


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts an allreduce of a sparse tensor into a new one, by an allgather of indices and values. All ranks of the
    set must call it.

    Args:
        tensor: sparse (COO); of the same shape, dtype and number of sparse dimensions on every rank. How many elements
            are specified may differ.
        name: the same on every rank.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        A function to be called once. It waits, and returns a sparse tensor of the same shape, not coalesced.

    Raises:
        ValueError: the tensor is not sparse (COO), its dtype is not supported, or `op` is another operation.
        TypeError: `process_set` is no ProcessSet.
        HorovodInternalError: the ranks disagree, or one was lost; from the function returned.
    """
    work, finish = start_sparse_allreduce(tensor, "sparse_allreduce", name, op, process_set)
    handle = register(work, wait_for, finish)
    return functools.partial(synchronize, handle)
