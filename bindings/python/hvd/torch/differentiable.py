"""Synchronous collectives with new tensors as results, which autograd can differentiate: their backward pass is a
collective too, which therefore every rank must run, and which can be differentiated in its turn. They can be called
within torch.func's grad, vjp, jacrev and vmap: mapped ones are one collective of all examples, as many on every rank.

See collectives.py for what is common to all collectives: who must call, dtypes, errors. Gradients follow Horovod: those
of allgather and broadcast are averaged over the ranks, so that a loss that all ranks compute alike counts once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch

from hvd import collectives as arrays
from hvd.arguments import OPERATIONS
from hvd.arguments import compressor as require_compressor
from hvd.arguments import process_set_number as set_id
from hvd.exceptions import NoRowsError
from hvd.handles import synchronize
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Adasum, Average, Sum, resolve_op
from hvd.torch import collectives
from hvd.torch.compression import Compression, Compressor
from hvd.torch.tensors import delivered

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Reduction = tuple[int, float, float, ProcessSet]  # operation, scale factors, and where
_Gradients = tuple[Optional[torch.Tensor], ...]  # as many as forward() has arguments


def _needs_gradient(*tensors: torch.Tensor) -> bool:
    """Whether a call is to be seen by autograd, or by a transform of torch.func."""
    if torch._C._are_functorch_transforms_active():
        return True
    for tensor in tensors:
        if getattr(tensor, "requires_grad", False):
            return torch.is_grad_enabled()
    return False


_Dims = Optional[int]  # of a tensor that vmap maps: the dimension of the examples. None: the tensor is not mapped


def _rows_before_examples(tensor: torch.Tensor, dim: _Dims) -> tuple[torch.Tensor, _Dims]:
    """The tensor with an example's rows still in its first dimension, and where the examples are then."""
    if dim is None:
        return tensor, None
    if tensor.dim() < 2:
        raise NoRowsError("a tensor with at least one dimension is needed: a scalar has no rows")
    return tensor.movedim(dim, 1), 1


def _refuse_mapped_adasum(op: int) -> None:
    if op == Adasum:
        raise NotImplementedError("an adaptive sum of each example by itself is not supported within vmap: use a loop")


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(tensor: torch.Tensor, name: str | None, *arguments: Any) -> torch.Tensor:
        return _allreduced(tensor, name, *arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.arguments = inputs[2:]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> _Gradients:
        _refuse_gradient_unless_linear(ctx.arguments[0])
        op, *arguments = ctx.arguments
        reduced = allreduce(gradient, None, None, Compression.none, op, *arguments)
        return reduced, *[None] * (1 + len(ctx.arguments))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[_Dims, ...], tensor: torch.Tensor, *arguments: Any) -> tuple[Any, _Dims]:
        _refuse_mapped_adasum(arguments[1])
        return _Allreduce.apply(tensor, *arguments), in_dims[0]


def _allreduced(tensor: torch.Tensor, name: str | None, *arguments: Unpack[_Reduction]) -> torch.Tensor:
    if name is not None:
        return collectives.run_allreduce(tensor, False, name, *arguments)
    # Numbered like the other waiting forms that have a new result: a disagreement about which it is comes to light.
    call, output = collectives.allreduce_call(tensor, False, name, *arguments)
    collectives.perform(call, name)
    return delivered(output, tensor, False)


def _refuse_gradient_unless_linear(op: int) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"op={OPERATIONS[op]}: only averages and sums have a gradient that is a collective; detach() the input"
        )


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
    """Reduces a tensor over all ranks of the set, which must all call it.

    Args:
        tensor: the same shape and dtype on every rank. bool: only Min and Max; complex numbers: only Average
            and Sum.
        average: older form of `op`: True is Average, False is Sum.
        name: the same on every rank.
        compression: the smaller type that is used on the wire; see `Compression`.
        op: Average (the default), Sum, Adasum, Min, Max or Product. Sums of integers wrap around, also for averages,
            which are then truncated. Adasum is for floating-point tensors: a sum that shrinks where the ranks' tensors
            point the same way, so that orthogonal ones are added and equal ones averaged (S. Maleki et al., "Scaling
            Distributed Training with Adaptive Summation", MLSys 2021); on any number of ranks, and of each tensor of a
            group by itself.
        prescale_factor: inputs are multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it. Both are taken in float32 for float32 and 16-bit floats, as
            `tensor * factor` is, else in double precision; an average's quotient is not rounded before the result is.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same shape and dtype, with the same bits on every rank. Average and Sum are differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, or its dtype lacks the operation; see `hvd.torch.collectives`.
        HorovodInternalError: the ranks disagree, or one was lost.
        NotImplementedError: in the backward pass of another operation than Average and Sum.
    """
    arguments = (resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    if compression is not Compression.none:
        require_compressor(compression)
    tensor, context = compression.compress(tensor)
    if torch.compiler.is_compiling():
        output = torch.ops.hvd.allreduce(tensor, name, *arguments[:3], set_id(process_set))
        return compression.decompress(output, context)
    reduce = _Allreduce.apply if _needs_gradient(tensor) else _allreduced
    return compression.decompress(reduce(tensor, name, *arguments), context)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(name: str | None, arguments: _Reduction, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_grouped_allreduced(name, arguments, *tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.arguments = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> _Gradients:
        _refuse_gradient_unless_linear(ctx.arguments[0])
        op, *arguments = ctx.arguments
        return None, None, *grouped_allreduce(gradients, None, None, Compression.none, op, *arguments)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], name: str | None, arguments: _Reduction, *tensors: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], tuple[_Dims, ...]]:
        _refuse_mapped_adasum(arguments[0])
        return _GroupedAllreduce.apply(name, arguments, *tensors), in_dims[2:]


def _grouped_allreduced(name: str | None, arguments: _Reduction, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return collectives.run_grouped_allreduce(tensors, False, name, *arguments)


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
    """Reduces several tensors as one operation: none is reduced before all ranks of the set, which must all call it,
    have submitted all of them.

    Args:
        tensors: at least one, all on one device; equally many on every rank, in the same order, with the same shapes
            and dtypes. They may differ in dtype from each other.
        average, name, compression, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        New tensors of the same shapes and dtypes, in the order of `tensors`. Average and Sum are differentiable.

    Raises:
        ValueError: there are no tensors, they are on several devices, or as `allreduce`.
        TypeError, HorovodInternalError, NotImplementedError: as `allreduce`.
    """
    arguments = (resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    if compression is not Compression.none:
        require_compressor(compression)
    compressed = [compression.compress(tensor) for tensor in tensors]
    smaller = [tensor for tensor, _ in compressed]
    if torch.compiler.is_compiling():
        outputs = torch.ops.hvd.grouped_allreduce(smaller, name, *arguments[:3], set_id(process_set))
    else:
        reduce = _GroupedAllreduce.apply if _needs_gradient(*smaller) else _grouped_allreduced
        outputs = reduce(name, arguments, *smaller)
    return [compression.decompress(output, context) for output, (_, context) in zip(outputs, compressed)]


def _gradient_of_gathered(gradient: torch.Tensor, rows: int, process_set: ProcessSet) -> torch.Tensor:
    """This rank's rows of the average."""
    average = allreduce(gradient, process_set=process_set)
    # By rank, also if some have joined: those have no rows. No tensor, which transforms of torch.func would wrap.
    own = array("q", [rows if rank == process_set.rank() else 0 for rank in range(process_set.size() or 1)])
    by_rank = arrays.allreduce(own, op=Sum, process_set=process_set).tolist()
    if sum(by_rank) != len(gradient):
        raise RuntimeError(
            "a rank has joined between an allgather that it took part in and its backward pass: call join() after the "
            "last backward pass"
        )
    return average.narrow(0, sum(by_rank[: process_set.rank()]), rows)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        return _allgathered(tensor, name, process_set)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.rows, ctx.process_set = len(inputs[0]), inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> _Gradients:
        return _gradient_of_gathered(gradient, ctx.rows, ctx.process_set), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[_Dims, ...], tensor: torch.Tensor, *arguments: Any) -> tuple[Any, _Dims]:
        tensor, dim = _rows_before_examples(tensor, in_dims[0])
        return _Allgather.apply(tensor, *arguments), dim


def _allgathered(tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    gathered: torch.Tensor = synchronize(collectives.allgather_async(tensor, name, process_set))
    return gathered


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the ranks' tensors along the first dimension, in rank order. All ranks of the set must call it.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A new tensor of shape [sum of the first dimensions, ...], the same on every rank. Differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, or the tensor is a scalar; see `hvd.torch.collectives`.
        HorovodInternalError: the ranks disagree, or one was lost.
    """
    if torch.compiler.is_compiling():
        return torch.ops.hvd.allgather(tensor, name, set_id(process_set))
    gather = _Allgather.apply if _needs_gradient(tensor) else _allgathered
    return gather(tensor, name, process_set)


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(synchronize(collectives.grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.rows, ctx.process_set = [len(tensor) for tensor in inputs[2:]], inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> _Gradients:
        own = [_gradient_of_gathered(*pair, ctx.process_set) for pair in zip(gradients, ctx.rows)]
        return None, None, *own

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[_Dims, ...], name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], tuple[_Dims, ...]]:
        moved, dims = zip(*map(_rows_before_examples, tensors, in_dims[2:]))
        return _GroupedAllgather.apply(name, process_set, *moved), dims


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Concatenates several tensors along their first dimensions: as `allgather`, which says what holds for each.

    Every rank of the set must give equally many tensors, in the same order; none is gathered before all ranks have
    submitted all of them.

    Returns:
        New tensors, in the order of `tensors`. Differentiable.

    Raises:
        ValueError: there are no tensors, they are on several devices, or as `allgather`.
        TypeError, HorovodInternalError: as `allgather`.
    """
    tensors = list(tensors)
    if torch.compiler.is_compiling():
        return torch.ops.hvd.grouped_allgather(tensors, name, set_id(process_set))
    if _needs_gradient(*tensors):
        return list(_GroupedAllgather.apply(name, process_set, *tensors))
    return synchronize(collectives.grouped_allgather_async(tensors, name, process_set))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        return collectives.run_broadcast(tensor, False, root_rank, name, process_set)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        _, ctx.root_rank, _, ctx.process_set = inputs

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> _Gradients:
        average = allreduce(gradient, process_set=ctx.process_set)
        is_root = torch.tensor(ctx.process_set.ranks[ctx.process_set.rank()] == ctx.root_rank)
        # Depends on the average on all ranks, so that all of them run the collective of a second derivative.
        return torch.where(is_root, average, torch.zeros_like(average)), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[_Dims, ...], tensor: torch.Tensor, *arguments: Any) -> tuple[Any, _Dims]:
        return _Broadcast.apply(tensor, *arguments), in_dims[0]


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Gives every rank the root's tensor. All ranks of the set must call it.

    Args:
        tensor: the same shape and dtype on every rank; not modified.
        root_rank: the root's number in the job, also if the process set has fewer ranks.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same shape and dtype. Differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, or the root is not in the set; see `hvd.torch.collectives`.
        HorovodInternalError: the ranks disagree, or one was lost.
    """
    if torch.compiler.is_compiling():
        return torch.ops.hvd.broadcast(tensor, root_rank, name, set_id(process_set))
    if _needs_gradient(tensor):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return collectives.run_broadcast(tensor, False, root_rank, name, process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        tensor: torch.Tensor,
        splits: torch.Tensor | Sequence[int] | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _exchanged(tensor, splits, name, process_set)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
        tensor, _, _, ctx.process_set = inputs
        ctx.received_splits, ctx.rows = output[1].tolist(), len(tensor)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: object) -> _Gradients:
        sent_back = alltoall(gradient, ctx.received_splits, process_set=ctx.process_set)[0]
        not_sent = sent_back.new_zeros(ctx.rows - len(sent_back), *sent_back.shape[1:])  # beyond the splits
        return torch.cat([sent_back, not_sent]) if len(not_sent) else sent_back, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[_Dims, ...], tensor: torch.Tensor, *arguments: Any
    ) -> tuple[Any, tuple[_Dims, None]]:
        tensor, dim = _rows_before_examples(tensor, in_dims[0])
        return _Alltoall.apply(tensor, *arguments), (dim, None)


def _exchanged(
    tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None, name: str | None, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    output, received_splits = synchronize(collectives.alltoall_async(tensor, splits, name, process_set))
    return output, received_splits


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends each rank its rows of the tensor, and concatenates what comes from each rank, in rank order. All ranks of
    the set must call it.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        splits: how many rows go to each rank of the set: a sequence of integers, or a tensor of int32 or int64 with one
            dimension. The rows beyond their sum are not sent. None: equally many, and the first dimension must be
            divisible by the number of ranks.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A new tensor of shape [rows received, ...]; if splits are given, also the number of rows received from each rank
        (int32, of shape [ranks of the set], on the device of splits). The first is differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, the tensor is a scalar, or the splits do not fit its rows; see
            `hvd.torch.collectives`.
        HorovodInternalError: the ranks disagree, or one was lost.
    """
    if splits is None and torch.compiler.is_compiling():
        return torch.ops.hvd.alltoall(tensor, name, set_id(process_set))
    exchange = _Alltoall.apply if _needs_gradient(tensor) else _exchanged
    output, received_splits = exchange(tensor, splits, name, process_set)
    return output if splits is None else (output, received_splits)


def _gradient_of_scattered(
    gradient: torch.Tensor, scale: float, shape: torch.Size, process_set: ProcessSet
) -> torch.Tensor:
    """The rows of all ranks. `shape`: that of the tensor that was scattered."""
    scaled = gradient if scale == 1 else gradient * scale
    gathered = allgather(scaled, process_set=process_set)
    if len(gathered) == shape[0]:
        return gathered
    # All ranks see it: some have joined, and their slices are missing.
    return allreduce(_own_slice_of_zeros(scaled, shape, process_set), op=Sum, process_set=process_set)


def _scale_of_gradient(op: int, process_set: ProcessSet, prescale_factor: float, postscale_factor: float) -> float:
    return prescale_factor * postscale_factor * ((process_set.size() or 1) if op == Sum else 1)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet, *scales: float
    ) -> torch.Tensor:
        return _reducescattered(tensor, name, op, process_set, *scales)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        tensor, _, ctx.op, ctx.process_set, *scales = inputs
        ctx.shape, ctx.scale = tensor.shape, _scale_of_gradient(ctx.op, ctx.process_set, *scales)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> _Gradients:
        _refuse_gradient_unless_linear(ctx.op)
        gathered = _gradient_of_scattered(gradient, ctx.scale, ctx.shape, ctx.process_set)
        return gathered, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[_Dims, ...], tensor: torch.Tensor, *arguments: Any) -> tuple[Any, _Dims]:
        tensor, dim = _rows_before_examples(tensor, in_dims[0])
        return _Reducescatter.apply(tensor, *arguments), dim


def _reducescattered(tensor: torch.Tensor, *arguments: Any) -> torch.Tensor:
    part: torch.Tensor = synchronize(collectives.reducescatter_async(tensor, *arguments))
    return part


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        arguments = (name, op, process_set, prescale_factor, postscale_factor)
        return tuple(synchronize(collectives.grouped_reducescatter_async(tensors, *arguments)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        _, ctx.op, ctx.process_set, prescale_factor, postscale_factor, *tensors = inputs
        ctx.shapes = [tensor.shape for tensor in tensors]
        ctx.scale = _scale_of_gradient(ctx.op, ctx.process_set, prescale_factor, postscale_factor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> _Gradients:
        _refuse_gradient_unless_linear(ctx.op)
        gathered = [
            _gradient_of_scattered(gradient, ctx.scale, shape, ctx.process_set)
            for gradient, shape in zip(gradients, ctx.shapes)
        ]
        return None, None, None, None, None, *gathered

    @staticmethod
    def vmap(info: Any, in_dims: tuple[_Dims, ...], *inputs: Any) -> tuple[tuple[torch.Tensor, ...], tuple[_Dims, ...]]:
        moved, dims = zip(*map(_rows_before_examples, inputs[5:], in_dims[5:]))
        return _GroupedReducescatter.apply(*inputs[:5], *moved), dims


def _own_slice_of_zeros(own: torch.Tensor, shape: torch.Size, process_set: ProcessSet) -> torch.Tensor:
    """Zeros but for the rows that a reducescatter of a tensor of this shape gives this rank."""
    size, rank = process_set.size() or 1, process_set.rank() or 0
    each, longer = divmod(shape[0], size)
    first = rank * each + min(rank, longer)
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
    """Reduces a tensor over all ranks and gives each rank its part of the rows, in rank order. All ranks of the set
    must call it.

    Args:
        tensor: the same shape, of at least one dimension, and dtype on every rank. Rows that do not divide evenly go
            to the first ranks.
        name, compression, prescale_factor, postscale_factor, process_set: as for `allreduce`.
        op: Average, Sum, Min, Max or Product.

    Returns:
        A new tensor: this rank's rows. Average and Sum are differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, its dtype lacks the operation, or the tensor is a scalar;
            see `hvd.torch.collectives`.
        HorovodInternalError: the ranks disagree, or one was lost.
        NotImplementedError: in the backward pass of another operation than Average and Sum.
    """
    arguments = (name, resolve_op(op, None), process_set, prescale_factor, postscale_factor)
    if compression is not Compression.none:
        require_compressor(compression)
    tensor, context = compression.compress(tensor)
    if torch.compiler.is_compiling():
        scales = (prescale_factor, postscale_factor)
        output = torch.ops.hvd.reducescatter(tensor, name, arguments[1], *scales, set_id(process_set))
    else:
        scatter = _Reducescatter.apply if _needs_gradient(tensor) else _reducescattered
        output = scatter(tensor, *arguments)
    return compression.decompress(output, context)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduces several tensors and gives each rank its part of their rows: as `reducescatter`, which says what holds for
    each.

    Every rank of the set must give equally many tensors, in the same order; none is reduced before all ranks have
    submitted all of them.

    Returns:
        New tensors, in the order of `tensors`: this rank's rows of each. Average and Sum are differentiable.

    Raises:
        ValueError: there are no tensors, they are on several devices, or as `reducescatter`.
        TypeError, HorovodInternalError, NotImplementedError: as `reducescatter`.
    """
    arguments = (name, resolve_op(op, None), process_set, prescale_factor, postscale_factor)
    if compression is not Compression.none:
        require_compressor(compression)
    compressed = [compression.compress(tensor) for tensor in tensors]
    smaller = [tensor for tensor, _ in compressed]
    if torch.compiler.is_compiling():
        scales = (prescale_factor, postscale_factor)
        outputs = torch.ops.hvd.grouped_reducescatter(smaller, name, arguments[1], *scales, set_id(process_set))
    elif _needs_gradient(*smaller):
        outputs = _GroupedReducescatter.apply(*arguments, *smaller)
    else:
        outputs = synchronize(collectives.grouped_reducescatter_async(smaller, *arguments))
    return [compression.decompress(output, context) for output, (_, context) in zip(outputs, compressed)]
