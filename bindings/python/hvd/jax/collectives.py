"""Collectives on JAX arrays, inside and outside `jit`.

Common to all of them:

- Every rank of the process set must call, in the same order. A thread's operations run one after the other, in the
  order of the script, compiled or not: ranks with other orders wait for each other, which is reported as a stall.
  Shapes, dtypes and arguments must be the same on every rank, except where a function says otherwise. For a pytree
  there is one grouped operation: `allreduce_tree`.
- Arrays are on the CPU, or all on the GPU of this process, of int8 to int64, uint8, float16, bfloat16, float32,
  float64, complex64, complex128 (only Average and Sum) or bool (only Min and Max); what only moves (allgather,
  broadcast, alltoall) also of uint16, uint32, uint64 and the 8-bit floats, whose derivatives are reduced in float32.
  64-bit numbers need `jax_enable_x64`.
- Some are compiled for this process's rank and the number of ranks. In an elastic job, `hvd.elastic.JaxState` has them
  compiled again when these change.
- They work under `grad`, `vmap`, `checkpoint`, `scan`, `while_loop` and `shard_map`. With several devices in a process,
  each one's array is an operation of its own, named after the device. Their reverse-mode derivatives are collectives
  too, which all ranks run; there are none in forward mode.
- Operations without a name are called after their function: threads that run collectives at the same time name them.
- A wrong argument raises ValueError or TypeError where the function is traced; an error between ranks, such as a lost
  one, raises jax.errors.JaxRuntimeError where the program runs, with the text of HorovodInternalError, and may do so
  again in the programs after it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hvd import _native, arguments
from hvd import process_set as process_sets
from hvd.arguments import process_set_number
from hvd.arrays.elements import ElementType, element_type, is_known
from hvd.jax import ordering, primitive
from hvd.jax.ordering import is_within_transformation
from hvd.process_set import ProcessSet, global_process_set, registered
from hvd.reduce_op import Adasum, Average, Sum
from hvd.specs import wire_name


@dataclasses.dataclass(frozen=True)
class _Operation:
    """All of an operation but its arrays. `rows`: of the results, if they are not the inputs'. `splits`: rows to each
    rank, and `received_splits`: from each rank; of an alltoall."""

    collective: int
    function: str
    name: str | None
    process_set: ProcessSet
    op: int = Sum
    root_rank: int = 0
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    rows: tuple[int, ...] | None = None
    splits: tuple[int, ...] | None = None
    received_splits: tuple[int, ...] | None = None

    @property
    def is_elementwise(self) -> bool:
        return self.rows is None and self.op != Adasum  # Adasum of a batch is not that of its parts

    def attributes(self) -> dict[str, Any]:
        given = {"splits": self.splits, "received_splits": self.received_splits}
        return {
            "collective": np.int64(self.collective),
            "function": f"jax.{self.function}",
            "name": wire_name(self.function, self.name) or "",
            "process_set": np.int64(_number(self.process_set)),
            "op": np.int64(self.op),
            "root_rank": np.int64(self.root_rank),
            "prescale_factor": np.float64(self.prescale_factor),
            "postscale_factor": np.float64(self.postscale_factor),
            **{key: np.array(rows, np.int64) for key, rows in given.items() if rows is not None},
        }


def _run(operation: _Operation, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    run = _run_differentiably if is_within_transformation() else _run_plainly  # which takes a third of the time
    return run(operation, *arrays)


def _run_plainly(operation: _Operation, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    return primitive.run(operation, arrays)


_run_differentiably = jax.custom_vjp(_run_plainly, nondiff_argnums=(0,))


def _forward(operation: _Operation, *arrays: jax.Array) -> tuple[tuple[jax.Array, ...], tuple[int, ...]]:
    return _run(operation, *arrays), tuple(array.shape[0] if array.ndim else 0 for array in arrays)


def _backward(operation: _Operation, rows: tuple[int, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
    real = [i for i, each in enumerate(cotangents) if each.dtype != jax.dtypes.float0]
    gradients: list[Any] = [None] * len(cotangents)
    if real:
        given = [cotangents[i] for i in real]
        sent = [each if _type_of(each).reductions else each.astype(jnp.float32) for each in given]
        found = _gradients(operation, tuple(rows[i] for i in real), sent)
        for i, gradient in zip(real, found):
            gradients[i] = gradient.astype(cotangents[i].dtype)
    return tuple(gradients)


_run_differentiably.defvjp(_forward, _backward)


def _gradients(operation: _Operation, rows: tuple[int, ...], cotangents: list[jax.Array]) -> Sequence[jax.Array]:
    """As PyTorch's in hvd.torch: those of allgather and broadcast are averaged over the ranks, so that a loss that all
    ranks compute alike counts once."""
    unnamed = dataclasses.replace(operation, name=None, rows=None)
    if operation.collective in (_native.ALLREDUCE, _native.REDUCESCATTER) and operation.op not in (Average, Sum):
        raise NotImplementedError(
            f"{operation.function} with op={arguments.OPERATIONS[operation.op]}: only averages and sums have a "
            "gradient that is a collective; give it jax.lax.stop_gradient(array)"
        )
    if operation.collective == _native.ALLREDUCE:
        return _run(unnamed, *cotangents)
    if operation.collective == _native.BROADCAST:
        averages = _run(dataclasses.replace(unnamed, collective=_native.ALLREDUCE, op=Average), *cotangents)
        depend_on_place()
        return [each if _native.rank() == operation.root_rank else jnp.zeros_like(each) for each in averages]
    if operation.collective == _native.ALLGATHER:
        scattered = dataclasses.replace(unnamed, collective=_native.REDUCESCATTER, op=Average, rows=rows)
        return _run(scattered, *cotangents)
    if operation.collective == _native.ALLTOALL:
        back = dataclasses.replace(
            unnamed, rows=rows, splits=operation.received_splits, received_splits=operation.splits
        )
        return _run(back, *cotangents)
    gathered = _run(dataclasses.replace(unnamed, collective=_native.ALLGATHER, rows=rows), *cotangents)
    scale = operation.prescale_factor * operation.postscale_factor
    return [each * (scale / _size(operation.process_set) if operation.op == Average else scale) for each in gathered]


_Place = tuple[int, dict[int, list[int]]]  # this process's rank, and the process sets

_compiled_for: _Place | None = None  # None: no program depends on the place


def _place() -> _Place:
    return _native.rank(), registered()


def depend_on_place() -> None:
    global _compiled_for
    _compiled_for = _place()


def _size(process_set: ProcessSet) -> int:
    depend_on_place()
    process_set_number(process_set)  # ValueError if it is not registered
    return process_set.size() or 1


def _number(process_set: ProcessSet) -> int:
    if process_set is not global_process_set:
        depend_on_place()
    return process_set_number(process_set)


def forget_place() -> None:
    """After a change of ranks, or as this process leaves the job: JAX is to compile again what depends on them."""
    global _compiled_for
    if _compiled_for is not None and not (_native.is_initialized() and _compiled_for == _place()):
        jax.clear_caches()
        _compiled_for = None


def remove_process_set(process_set: ProcessSet) -> bool:
    """As `hvd.remove_process_set`, once this thread's programs have ended, which may still have operations in the set.
    What JAX has compiled for the set is compiled again: its number may be given to another one, and when it is
    registered again, it has another number."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # raised where results are waited for
        ordering.wait()
    removed = process_sets.remove_process_set(process_set)
    if removed:
        forget_place()
    return removed


def _checked(operation: _Operation, arrays: Sequence[Any]) -> list[jax.Array]:
    if operation.collective == _native.REDUCESCATTER and operation.op == Adasum:
        raise ValueError("reducescatter: op=Adasum is not supported: use allreduce")
    op = arguments.reduce_op(operation.op)
    if operation.name is not None:
        arguments.operation_name(operation.name)
    result = [_as_array(array) for array in arrays]
    for array in result:
        if not is_known(str(array.dtype)):
            raise ValueError(f"{operation.function}: arrays of {array.dtype} are not supported: convert them")
        if operation.collective in (_native.ALLREDUCE, _native.REDUCESCATTER):
            _type_of(array).require_reducible(operation.function, op)
    return result


def _as_array(array: Any) -> jax.Array:
    is_one = isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)  # which may stand for a number
    return array if is_one else jnp.asarray(array)


def _type_of(array: jax.Array) -> ElementType:
    return element_type(str(array.dtype), array.dtype.itemsize)


def _factors(prescale_factor: Any, postscale_factor: Any) -> tuple[float, float]:
    return arguments.factor(prescale_factor, "prescale_factor"), arguments.factor(postscale_factor, "postscale_factor")


def _of_rows(function: str, array: Any) -> jax.Array:
    if jnp.ndim(array) == 0:
        raise ValueError(f"{function}: an array with at least one dimension is needed: a scalar has no rows")
    return jnp.asarray(array)


def allreduce(
    array: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Reduces an array over all ranks of the set, which must all call it.

    Args:
        array: the same shape and dtype on every rank. bool: only Min and Max.
        op: Average, Sum, Adasum, Min, Max or Product. Averages of integers are truncated.
        name: the same on every rank; None: `allreduce`, which matches the next such operation only.
        prescale_factor: inputs are multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it.
        process_set: the ranks that take part.

    Returns:
        An array of the same shape and dtype, with the same bits on every rank. Average and Sum are differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, or its dtype lacks the operation.
        jax.errors.JaxRuntimeError: the ranks disagree, or one was lost; where the program runs.
    """
    return grouped_allreduce([array], op, name, prescale_factor, postscale_factor, process_set)[0]


def grouped_allreduce(
    arrays: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[jax.Array]:
    """Reduces several arrays, as `allreduce`, in one operation: as many on every rank, in the same order. Arguments and
    errors are those of `allreduce`."""
    arrays = list(arrays)
    if not arrays:
        return []
    function = "allreduce" if len(arrays) == 1 else "grouped_allreduce"
    factors = _factors(prescale_factor, postscale_factor)
    operation = _Operation(_native.ALLREDUCE, function, name, process_set, op, 0, *factors)
    return list(_run(operation, *_checked(operation, arrays)))


def broadcast(
    array: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Gives every rank the root's array. All ranks of the set must call it.

    Args:
        array: the same shape and dtype on every rank; or keys of `jax.random.key`.
        root_rank: the root's number in the job, also if the process set has fewer ranks.
        name: see `allreduce`.
        process_set: the ranks that take part.

    Returns:
        An array of the same shape and dtype. Differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong.
        jax.errors.JaxRuntimeError: the root is not in the set, the ranks disagree, or one was lost; where the program
            runs.
    """
    return _grouped_broadcast([array], root_rank, name, process_set)[0]


def _grouped_broadcast(
    arrays: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
) -> list[jax.Array]:
    """Keys of `jax.random.key` travel as their data."""
    root = arguments.rank(root_rank, "root_rank")
    operation = _Operation(_native.BROADCAST, "broadcast", name, process_set, root_rank=root)
    keys = [jnp.issubdtype(getattr(array, "dtype", float), jax.dtypes.prng_key) for array in arrays]
    sent = [jax.random.key_data(array) if is_key else array for array, is_key in zip(arrays, keys)]
    received = _run(operation, *_checked(operation, sent))
    return [
        jax.random.wrap_key_data(new, impl=jax.random.key_impl(array)) if is_key else new
        for array, new, is_key in zip(arrays, received, keys)
    ]


def allgather(array: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> jax.Array:
    """Concatenates the ranks' arrays along the first dimension, in rank order. All ranks of the set must call it.

    Args:
        array: at least one dimension; the same shape on every rank, since a compiled program has to know it.
        name: see `allreduce`.
        process_set: the ranks that take part.

    Returns:
        An array of shape [first dimension times the number of ranks, ...], the same on every rank. Differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, or the array is a scalar.
        jax.errors.JaxRuntimeError: the ranks disagree, or one was lost; where the program runs.
    """
    array = _of_rows("allgather", array)
    rows = (array.shape[0] * _size(process_set),)
    operation = _Operation(_native.ALLGATHER, "allgather", name, process_set, rows=rows)
    return _run(operation, *_checked(operation, [array]))[0]


def alltoall(
    array: Any,
    splits: Sequence[int] | None = None,
    received_splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Sends each rank its part of the array's rows, and concatenates what comes from each rank, in rank order. All
    ranks of the set must call it.

    Args:
        array: without splits the same shape on every rank, its first dimension divisible by the number of ranks.
        splits: how many rows each rank is sent; they add up to the first dimension. None: equally many.
        received_splits: how many rows come from each rank, since a compiled program has to know it: item j on rank i is
            item i of rank j's splits. None: equally many. If it is not so on a rank, the operation fails on all ranks.
        name: see `allreduce`.
        process_set: the ranks that take part.

    Returns:
        An array with as many rows as come from all ranks: without splits, of the same shape. Differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, the array is a scalar, or the splits do not fit its rows.
        jax.errors.JaxRuntimeError: the ranks disagree, or one was lost; where the program runs.
    """
    array = _of_rows("alltoall", array)
    size = _size(process_set)
    if (splits is None) != (received_splits is None):
        raise ValueError("alltoall: give both splits and received_splits, or neither")
    if splits is None and array.shape[0] % size:
        raise ValueError(f"alltoall: {array.shape[0]} rows cannot be divided equally among {size} ranks: give splits")
    equal_parts = (array.shape[0] // size,) * size
    sent = equal_parts if splits is None else _splits(splits, "splits", size)
    received = equal_parts if received_splits is None else _splits(received_splits, "received_splits", size)
    if sum(sent) != array.shape[0]:
        raise ValueError(f"alltoall: splits add up to {sum(sent)}, but the array has {array.shape[0]} rows")
    operation = _Operation(
        _native.ALLTOALL, "alltoall", name, process_set, rows=(sum(received),), splits=sent, received_splits=received
    )
    return _run(operation, *_checked(operation, [array]))[0]


def _splits(given: Any, key: str, size: int) -> tuple[int, ...]:
    rows = tuple(arguments.rows(given, key))
    if len(rows) != size or min(rows) < 0:
        raise ValueError(f"alltoall: {key} is {list(rows)}: expected {size} numbers of rows, one for each rank")
    return rows


def reducescatter(
    array: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Reduces an array over all ranks, and gives each rank its part of the rows. All ranks of the set must call it.

    Args:
        array: see `allreduce`, with at least one dimension.
        op: Average, Sum, Min, Max or Product.
        name, prescale_factor, postscale_factor, process_set: see `allreduce`.

    Returns:
        This rank's rows: the first dimension divided by the number of ranks; the first ranks have one more if it is not
        divisible. Average and Sum are differentiable.

    Raises:
        ValueError, TypeError: this rank's call is wrong, its dtype lacks the operation, or the array is a scalar.
        jax.errors.JaxRuntimeError: the ranks disagree, or one was lost; where the program runs.
    """
    array = _of_rows("reducescatter", array)
    each, longer = divmod(array.shape[0], _size(process_set))
    rows = (each + (1 if (process_set.rank() or 0) < longer else 0),)
    factors = _factors(prescale_factor, postscale_factor)
    operation = _Operation(_native.REDUCESCATTER, "reducescatter", name, process_set, op, 0, *factors, rows)
    return _run(operation, *_checked(operation, [array]))[0]


def allreduce_tree(
    tree: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces all leaves of a pytree, gradients for instance, in one operation. All ranks of the set must call it, with
    the same structure. Arguments and errors are those of `allreduce`."""
    leaves, structure = jax.tree.flatten(tree)
    reduced = grouped_allreduce(leaves, op, name, prescale_factor, postscale_factor, process_set)
    return jax.tree.unflatten(structure, reduced)


def broadcast_tree(tree: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """Gives every rank the root's pytree, parameters for instance; in one operation. All ranks of the set must call it.

    Args:
        tree: arrays, keys of `jax.random.key`, or numbers; the same structure, shapes and dtypes on every rank.
        root_rank: the rank whose values everybody gets.
        process_set: the ranks that take part.

    Returns:
        A pytree of the same structure; without leaves, the one given.

    Raises: as `broadcast`.
    """
    leaves, structure = jax.tree.flatten(tree)
    if not leaves:
        return tree
    return jax.tree.unflatten(structure, _grouped_broadcast(leaves, root_rank, None, process_set))
