"""Collectives on MXNet's arrays.

Common to all of them:

- Every rank of the process set must call, with the same name, dtype, reduce operation and scale factors, and the same
  shape except where a function says otherwise. Ranks may call in different orders if the operations have names;
  unnamed ones are numbered per function and process set, and must be called in the same order on all ranks.
- Arrays are NDArrays or arrays of `mxnet.np`, dense and on the CPU, of any dtype that MXNet has. bool has Min and Max
  only.
- allreduce and broadcast return at once, as all operations of MXNet do: they begin when their arrays have been
  computed, and what uses the result waits for them. An array must not be in two operations that ranks call in
  different orders.
- allgather, alltoall and reducescatter wait for the result.
- Results have no gradients.
- `priority`: of operations that are ready on all ranks, those with the highest are performed first; MXNet's engine gets
  it, too. Those that wait for the result need none, and take it for Horovod's sake.
- A wrong argument raises ValueError or TypeError. An error between ranks (a mismatch, a lost rank) raises
  HorovodInternalError where the result is waited for: in the function, or in wait_to_read(), asnumpy() and their like.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import mxnet

from hvd import _native, arguments, basics, collectives
from hvd.arguments import process_set_number
from hvd.arrays.mxnet_arrays import require_dense_on_cpu, type_of
from hvd.mxnet.library import push
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, resolve_op
from hvd.specs import wire_name

# Of the current initialisation: ranks may have failed at different calls of the one before.
_unnamed: weakref.WeakKeyDictionary[ProcessSet, Counter[str]] = weakref.WeakKeyDictionary()
_unnamed_of: int = 0


def _named(function: str, name: str | None, process_set: ProcessSet) -> str:
    """The name on the wire. The runtime cannot number these operations: when the engine begins them differs between
    ranks."""
    if name is not None:
        return arguments.operation_name(wire_name(function, name))
    global _unnamed_of
    if _unnamed_of != basics.initializations():
        _unnamed_of = basics.initializations()
        _unnamed.clear()
    numbers = _unnamed.setdefault(process_set, Counter())
    numbers[function] += 1
    return f"mxnet.{function}.{numbers[function]}"


def _check_array(tensor: Any) -> None:
    if not isinstance(tensor, mxnet.nd.NDArray):
        raise TypeError(f"an array of MXNet is needed, not {type(tensor).__name__}")
    require_dense_on_cpu(tensor)


def _checked_set(process_set: ProcessSet) -> int:
    _native.rank()  # ValueError if hvd is not initialised
    number = process_set_number(process_set)
    if process_set is not global_process_set and not process_set.included():
        raise ValueError(f"rank {_native.rank()} is not in {process_set}")
    return number


def _copied(tensor: Any) -> Any:
    _check_array(tensor)
    with mxnet.autograd.pause():
        return tensor.copy()


def _listed(splits: Any) -> Any:
    if not isinstance(splits, mxnet.nd.NDArray):
        return splits
    kind = type_of(splits)
    if splits.ndim != 1 or kind.name not in ("int32", "int64"):
        raise ValueError(f"splits must be one-dimensional, int32 or int64; not {kind.name}, {splits.shape}")
    return splits.asnumpy()


def _allreduce(
    function: str,
    tensors: Sequence[Any],
    average: bool | None,
    name: str | None,
    priority: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    op: int | None,
) -> None:
    """In place."""
    reduce_op = arguments.reduce_op(resolve_op(op, average))
    number = _checked_set(process_set)
    for tensor in tensors:
        _check_array(tensor)
        type_of(tensor).require_reducible(function, reduce_op)
    if len({id(tensor) for tensor in tensors}) != len(tensors):
        raise ValueError("an array is in the group twice")
    factors = (
        arguments.factor(prescale_factor, "prescale_factor"),
        arguments.factor(postscale_factor, "postscale_factor"),
    )
    full_name = _named(function, name, process_set)
    push(_native.ALLREDUCE, number, full_name, tensors, reduce_op, 0, *factors, priority)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces an array over all ranks.

    Args:
        tensor: the same shape and dtype on every rank.
        average: older than `op`: True for Average, False for Sum.
        name: the same on every rank.
        priority: see above.
        prescale_factor: inputs are multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it.
        process_set: the ranks that take part.
        op: Average (if neither is given), Sum, Adasum, Min, Max or Product. Averages of integers are truncated.

    Returns:
        An array of the same shape and dtype, with the same bits on every rank.
    """
    result = _copied(tensor)
    _allreduce("allreduce", [result], average, name, priority, prescale_factor, postscale_factor, process_set, op)
    return result


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """As `allreduce`, in place; returns `tensor`."""
    _allreduce("allreduce", [tensor], average, name, priority, prescale_factor, postscale_factor, process_set, op)
    return tensor


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """Reduces several arrays, as `allreduce`, in one operation: as many on every rank, in the same order. None is
    reduced before all are there on all ranks."""
    results = [_copied(tensor) for tensor in tensors]
    return grouped_allreduce_(results, average, name, priority, prescale_factor, postscale_factor, process_set, op)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """As `grouped_allreduce`, in place; returns the arrays, each of which may be there once."""
    tensors = list(tensors)
    if tensors:
        factors = prescale_factor, postscale_factor
        _allreduce("grouped_allreduce", tensors, average, name, priority, *factors, process_set, op)
    return tensors


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's array.

    Args:
        tensor: the same shape and dtype on every rank; of the others' only these matter.
        root_rank: the root's number in the job, also if the process set has fewer ranks.
        name, priority, process_set: see `allreduce`.

    Returns:
        An array of the same shape and dtype.
    """
    number = _checked_set(process_set)
    root = arguments.rank(root_rank, "root_rank")
    if root not in (process_set.ranks or ()):
        raise ValueError(f"root_rank is {root}, which is not in {process_set}")
    result = _copied(tensor)
    full_name = _named("broadcast", name, process_set)
    push(_native.BROADCAST, number, full_name, [result], root_rank=root, priority=priority)
    return result


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As `broadcast`, in place; returns `tensor`."""
    # By way of a copy: oneDNN may have changed the order of elements, of weights that were used without gradients for
    # instance.
    result = broadcast(tensor, root_rank, name, priority, process_set)
    with mxnet.autograd.pause():
        result.copyto(tensor)
    return tensor


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the ranks' arrays along the first dimension, in rank order; waits for the result.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        name, priority, process_set: see `allreduce`.

    Returns:
        An array of shape [sum of the first dimensions, ...], the same on every rank.
    """
    _check_array(tensor)
    return collectives.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Concatenates several arrays, as `allgather`, in one operation: as many on every rank, in the same order."""
    tensors = list(tensors)
    for tensor in tensors:
        _check_array(tensor)
    return collectives.grouped_allgather(tensors, name, process_set)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank its rows of the array, and concatenates what comes from each rank, in rank order; waits for the
    result.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        splits: how many rows go to each rank of the set, in an array of int32 or int64 (what `mx.nd.array` makes of
            numbers is float32) or a list; None: equally many.
        name, priority, process_set: see `allreduce`.

    Returns:
        An array of the same dtype; if splits are given, also the number of rows received from each rank, as an array
        of int32.
    """
    _check_array(tensor)
    return collectives.alltoall(tensor, _listed(splits), name, process_set)


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces an array over all ranks and gives each rank its part of the rows; waits for the result.

    Args:
        tensor: the same shape, with at least one dimension, and dtype on every rank. Rows that do not divide evenly go
            to the first ranks.
        op: Average, Sum, Min, Max or Product.
        name, priority, process_set, prescale_factor, postscale_factor: see `allreduce`.

    Returns:
        This rank's rows.
    """
    _check_array(tensor)
    return collectives.reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor)


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduces several arrays, as `reducescatter`, in one operation: as many on every rank, in the same order."""
    tensors = list(tensors)
    for tensor in tensors:
        _check_array(tensor)
    return collectives.grouped_reducescatter(tensors, name, op, process_set, prescale_factor, postscale_factor)
