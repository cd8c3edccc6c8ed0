"""Synchronous collectives with new tensors as results, which autograd can differentiate: their backward pass is a
collective too, which therefore every rank must run, and which can be differentiated in its turn.

See collectives.py for what is common to all collectives: who must call, dtypes, errors. Gradients follow Horovod: those
of allgather and broadcast are averaged over the ranks, so that a loss that all ranks compute alike counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, Sum
from hvd.torch import collectives
from hvd.torch.collectives import resolve_op
from hvd.torch.compression import Compression, Compressor
from hvd.torch.handles import synchronize
from hvd.torch.tensors import wait_for


def _needs_gradient(*tensors: torch.Tensor) -> bool:
    for tensor in tensors:
        if getattr(tensor, "requires_grad", False):
            return torch.is_grad_enabled()
    return False


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, *arguments):
        ctx.arguments = arguments
        return _allreduced(tensor, name, *arguments)

    @staticmethod
    def backward(ctx, gradient):
        _refuse_gradient_unless_linear(ctx.arguments[0])
        op, *arguments = ctx.arguments
        reduced = allreduce(gradient.contiguous(), None, None, Compression.none, op, *arguments)
        return reduced, *[None] * (1 + len(ctx.arguments))


def _allreduced(tensor, name, *arguments):
    if name is not None:
        return collectives.run_allreduce(tensor, False, name, *arguments)
    # Numbered like the other waiting forms that have a new result: a disagreement about which it is comes to light.
    work, output = collectives.start_allreduce(tensor, False, name, *arguments)
    wait_for(work)
    return output


def _refuse_gradient_unless_linear(op: int) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError("only averages and sums have a gradient that is a collective")


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over all ranks.

    Args:
        tensor: the same shape and dtype on every rank. bool: only Min and Max.
        average: older form of `op`: True is Average, False is Sum.
        name: the same on every rank.
        compression: smaller type for the time of the travel; see `Compression`.
        op: Average (the default), Sum, Adasum, Min, Max or Product. Sums of integers wrap around, also for averages,
            which are then truncated. Adasum is for floating-point tensors: a sum that shrinks where the ranks' tensors
            point the same way, so that orthogonal ones are added and equal ones averaged (S. Maleki et al., "Scaling
            Distributed Training with Adaptive Summation", MLSys 2021); on any number of ranks, and of each tensor of a
            group by itself.
        prescale_factor: inputs are multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same shape and dtype, with the same bits on every rank. Average and Sum are differentiable.
    """
    arguments = (resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    tensor, context = compression.compress(tensor)
    reduce = _Allreduce.apply if _needs_gradient(tensor) else _allreduced
    return compression.decompress(reduce(tensor, name, *arguments), context)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, arguments, *tensors):
        ctx.arguments = arguments
        return tuple(_grouped_allreduced(name, arguments, *tensors))

    @staticmethod
    def backward(ctx, *gradients):
        _refuse_gradient_unless_linear(ctx.arguments[0])
        op, *arguments = ctx.arguments
        gradients = [gradient.contiguous() for gradient in gradients]
        return None, None, *grouped_allreduce(gradients, None, None, Compression.none, op, *arguments)


def _grouped_allreduced(name, arguments, *tensors):
    work, outputs = collectives.start_grouped_allreduce(tensors, False, name, *arguments)
    wait_for(work)
    return outputs


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors, which become ready as one: none is reduced before all are there on all ranks.

    Args and errors as for `allreduce`; every rank must give equally many tensors, in the same order.

    Returns:
        New tensors of the same shapes and dtypes.
    """
    arguments = (resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    compressed = [compression.compress(tensor) for tensor in tensors]
    smaller = [tensor for tensor, _ in compressed]
    reduce = _GroupedAllreduce.apply if _needs_gradient(*smaller) else _grouped_allreduced
    outputs = reduce(name, arguments, *smaller)
    return [compression.decompress(output, context) for output, (_, context) in zip(outputs, compressed)]


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.rows, ctx.process_set = tensor.shape[0] if tensor.dim() else None, process_set
        return synchronize(collectives.allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        average = allreduce(gradient.contiguous(), process_set=ctx.process_set)
        # By rank, also if some have joined: those have no rows.
        own = torch.zeros(ctx.process_set.size(), dtype=torch.int64)
        own[ctx.process_set.rank()] = ctx.rows
        rows = allreduce(own, op=Sum, process_set=ctx.process_set).tolist()
        if sum(rows) != len(gradient):
            raise RuntimeError("a rank has joined between an allgather that it took part in and its backward pass")
        return average.narrow(0, sum(rows[: ctx.process_set.rank()]), ctx.rows), None, None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the ranks' tensors along the first dimension, in rank order.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A new tensor of shape [sum of the first dimensions, ...], the same on every rank. Differentiable.
    """
    if _needs_gradient(tensor):
        return _Allgather.apply(tensor, name, process_set)
    return synchronize(collectives.allgather_async(tensor, name, process_set))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return collectives.run_broadcast(tensor, False, root_rank, name, process_set)

    @staticmethod
    def backward(ctx, gradient):
        average = allreduce(gradient.contiguous(), process_set=ctx.process_set)
        is_root = torch.tensor(ctx.process_set.ranks[ctx.process_set.rank()] == ctx.root_rank)
        # Depends on the average on all ranks, so that all of them run the collective of a second derivative.
        return torch.where(is_root, average, torch.zeros_like(average)), None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Gives every rank the root's tensor.

    Args:
        tensor: the same shape and dtype on every rank; not modified.
        root_rank: the root's number in the job, also if the process set has fewer ranks.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same shape and dtype. Differentiable.
    """
    if _needs_gradient(tensor):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return collectives.run_broadcast(tensor, False, root_rank, name, process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        output, received_splits = synchronize(collectives.alltoall_async(tensor, splits, name, process_set))
        ctx.received_splits, ctx.process_set = received_splits, process_set
        ctx.mark_non_differentiable(received_splits)
        return output, received_splits

    @staticmethod
    def backward(ctx, gradient, _):
        sent_back = alltoall(gradient.contiguous(), ctx.received_splits, process_set=ctx.process_set)[0]
        return sent_back, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends each rank its rows of the tensor, and concatenates what comes from each rank, in rank order.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        splits: how many rows go to each rank of the set, int32 or int64; None: equally many, and the first dimension
            must be divisible by the number of ranks.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A new tensor; if splits are given, also the number of rows received from each rank (int32). Differentiable.
    """
    if _needs_gradient(tensor):
        output, received_splits = _Alltoall.apply(tensor, splits, name, process_set)
    else:
        output, received_splits = synchronize(collectives.alltoall_async(tensor, splits, name, process_set))
    return output if splits is None else (output, received_splits)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        ctx.scale = prescale_factor * postscale_factor * (process_set.size() if op == Sum else 1)
        ctx.op, ctx.process_set, ctx.shape = op, process_set, tensor.shape
        arguments = (name, op, process_set, prescale_factor, postscale_factor)
        return synchronize(collectives.reducescatter_async(tensor, *arguments))

    @staticmethod
    def backward(ctx, gradient):
        _refuse_gradient_unless_linear(ctx.op)
        scaled = gradient.contiguous() if ctx.scale == 1 else gradient * ctx.scale
        gathered = allgather(scaled.contiguous(), process_set=ctx.process_set)
        if len(gathered) != ctx.shape[0]:  # all ranks see it: some have joined, and their slices are missing
            gathered = allreduce(
                _own_slice_of_zeros(scaled, ctx.shape, ctx.process_set), op=Sum, process_set=ctx.process_set
            )
        return gathered, None, None, None, None, None


def _own_slice_of_zeros(own: torch.Tensor, shape: torch.Size, process_set: ProcessSet) -> torch.Tensor:
    """Zeros but for the rows that a reducescatter of a tensor of this shape gives this rank."""
    each, longer = divmod(shape[0], process_set.size())
    first = process_set.rank() * each + min(process_set.rank(), longer)
    whole = own.new_zeros(shape)
    whole[first : first + len(own)] = own
    return whole


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor over all ranks and gives each rank its part of the rows, in rank order.

    Args:
        tensor: the same shape, of at least one dimension, and dtype on every rank. Rows that do not divide evenly go
            to the first ranks.
        name, compression, prescale_factor, postscale_factor, process_set: as for `allreduce`.
        op: Average, Sum, Min, Max or Product.

    Returns:
        A new tensor: this rank's rows. Average and Sum are differentiable.
    """
    arguments = (name, resolve_op(op, None), process_set, prescale_factor, postscale_factor)
    tensor, context = compression.compress(tensor)
    if _needs_gradient(tensor):
        output = _Reducescatter.apply(tensor, *arguments)
    else:
        output = synchronize(collectives.reducescatter_async(tensor, *arguments))
    return compression.decompress(output, context)
