"""Collectives on TensorFlow tensors, in eager mode and in graphs.

Common to all of them:

- Every rank of the process set must call, with the same name, dtype, reduce operation and scale factors. Shapes must be
  equal too, except where a function says otherwise. Unnamed operations are numbered in eager mode, and named after the
  function and scope in graphs: there all ranks must build the same graph.
- Tensors are on the CPU or a GPU (docs/tensorflow.md), of uint8, int8, int16, int32, int64, float16, bfloat16, float32,
  float64, bool (only Min and Max) or complex numbers (only Average and Sum); what only moves (allgather, broadcast,
  alltoall) also of uint16, uint32 and uint64. On the CPU integers are scaled in double precision and
  truncated, 16-bit floats summed in float32 and rounded once.
- Within a tf.function they run one after another, in the order in which they were called, whether or not their results
  are used. (Gradients do not: `hvd.tensorflow.gradients`.)
- Errors that Python can see raise ValueError at once: an uninitialised runtime, a process set that is not registered,
  an operation that XLA is to compile. Others are TensorFlow's, when the operation runs, with hvd's text:
  InvalidArgumentError (this rank's call is wrong by itself), FailedPreconditionError (ranks disagree), UnknownError (a
  rank was lost, a deadline has passed, the runtime was shut down); in eager mode that is a HorovodInternalError, too.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Union

import tensorflow as tf

from hvd import arguments, basics
from hvd.process_set import ProcessSet, global_process_set, require_registered
from hvd.reduce_op import Average, Sum, resolve_op
from hvd.tensorflow.compression import Compression, Compressor
from hvd.tensorflow.dtypes import any_complex, received, require_reducible, to_send
from hvd.tensorflow.errors import refuse_in_xla, reraise
from hvd.tensorflow.library import ops
from hvd.tensorflow.naming import in_loop, wire_name

Reducible = Union[tf.Tensor, tf.IndexedSlices]

_ANYWHERE = contextlib.nullcontext()


def placed_on(device: str) -> AbstractContextManager[Any]:
    """tf.device(device), which takes its time also for no device."""
    return tf.device(device) if device else _ANYWHERE


def set_id(process_set: ProcessSet) -> int:
    """The runtime's number for the set. ValueError if hvd is not initialised, or the set not registered."""
    basics.rank()  # raises the former
    number = arguments.process_set_number(process_set)
    require_registered(number)
    return number


_BITS_OF_ONE: int = struct.unpack("<q", struct.pack("<d", 1.0))[0]


def _bits(factor: float) -> int:
    """A double in an integer attribute: TensorFlow's attributes of kind float have 32 bits."""
    if type(factor) is float and factor == 1.0:
        return _BITS_OF_ONE
    return int(struct.unpack("<q", struct.pack("<d", arguments.factor(factor, "a scale factor")))[0])


_UNPAIRED = ("barrier", "join")  # always ordered, under their own names


def unforeseen() -> Any:
    """What makes an operation one without order: a number that TensorFlow cannot compute beforehand, since gradients
    may be constants, and for which it does not put operations into an order. One is enough for a list of gradients."""
    if tf.executing_eagerly():
        return 0
    return tf.raw_ops.RandomUniformInt(shape=tf.zeros([0], tf.int32), minval=0, maxval=2, seed=1, seed2=1)


def run(collective: str, *inputs: Any, unforeseen: Any = None, **attributes: Any) -> Any:
    """Makes the op, or performs it; one without order if `unforeseen` is given: bindings/tensorflow/library.cc has the
    two kinds.

    Within a loop every op is ordered: its iterations may run at the same time, and are all called the same.
    """
    eager = tf.executing_eagerly()
    if not eager:
        refuse_in_xla(f"hvd.{collective}")
    if collective in _UNPAIRED:
        op = getattr(ops, f"hvd_{collective}")
    elif unforeseen is None or in_loop():
        op = getattr(ops, f"hvd_{collective}_ordered")
    else:
        op = getattr(ops, f"hvd_{collective}")
        attributes["unforeseen"] = unforeseen
    if not eager:
        return op(*inputs, **attributes)
    try:
        return op(*inputs, waits=1, **attributes)
    except tf.errors.OpError as error:
        reraise(error)


def reduce_tensors(
    tensors: Sequence[tf.Tensor],
    name: str,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: int,
    unforeseen: Any = None,
) -> list[tf.Tensor]:
    """One allreduce of all of the tensors. `name`: that on the wire; `process_set`: its number; `unforeseen`: run()."""
    is_complex = any_complex(tensors)
    if is_complex:
        require_reducible(tensors, "allreduce", op)
    reduced: list[tf.Tensor] = run(
        "allreduce",
        to_send(tensors) if is_complex else tensors,
        tensor_name=name,
        reduce_op=op,
        prescale_bits=_bits(prescale_factor),
        postscale_bits=_bits(postscale_factor),
        process_set=process_set,
        unforeseen=unforeseen,
    )
    return received(reduced, tensors) if is_complex else reduced


def gather_tensors(
    tensors: Sequence[tf.Tensor], name: str, process_set: int, unforeseen: Any = None
) -> list[tf.Tensor]:
    """One allgather of all of the tensors, as reduce_tensors()."""
    for tensor in tensors:
        _require_rows(tensor, "allgather")
    gathered = run("allgather", to_send(tensors), tensor_name=name, process_set=process_set, unforeseen=unforeseen)
    return [_with_open_rows(*pair) for pair in zip(received(gathered, tensors), tensors)]


def _require_rows(tensor: tf.Tensor, collective: str) -> None:
    if tensor.shape.rank == 0:
        raise tf.errors.FailedPreconditionError(
            None, None, f"hvd: {collective} distributes rows, and a tensor without dimensions has none"
        )


def _with_open_rows(output: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """In a graph: with the shape of `like` but for the first dimension."""
    if not tf.executing_eagerly() and like.shape.rank is not None:
        output.set_shape([None, *like.shape[1:]])
    return output


def _converted(value: Any) -> tf.Tensor:
    """As tf.convert_to_tensor(), which takes as long as a fifth of an eager collective also for a tensor."""
    return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all ranks of the set, which must all call it.

    Args:
        tensor: a tensor, variable or whatever converts to one, of the same shape and dtype on every rank; bool: only
            Min and Max. Or tf.IndexedSlices, whose values and indices are gathered: how many there are may differ.
        average: older form of `op`: True is Average, False is Sum.
        device_dense: where the operation is to be placed, as for tf.device.
        device_sparse: the same for IndexedSlices.
        compression: the smaller type that is used on the wire; see `Compression`.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor: inputs are multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it. Both are taken in float32 for float32 and 16-bit floats, as
            `tensor * factor` is, else in double precision; an average's quotient is not rounded before the result is.
        name: the same on every rank.
        process_set: the ranks that take part.
        ignore_name_scope: in a graph, leaves the current scope out of the name.

    Returns:
        A new tensor of the same shape and dtype, with the same bits on every rank; or IndexedSlices, whose values are
        floating-point numbers if integers were averaged: a row's average is the sum of several of them. Differentiable,
        if op is Average or Sum.

    Raises:
        ValueError, TypeError: hvd is not initialised, the process set is not registered, or an argument is of no use.
        NotImplementedError: IndexedSlices with another op than Average or Sum, or with scale factors.
        tf.errors.InvalidArgumentError: the dtype lacks the operation, or the name is in use on this rank.
        tf.errors.FailedPreconditionError: the ranks disagree about shape, dtype, operation or factors.
        tf.errors.UnknownError: a rank was lost, or the runtime was shut down; a HorovodInternalError, too, in eager
            mode.
    """
    op = arguments.reduce_op(resolve_op(op, average))
    if isinstance(tensor, tf.IndexedSlices):
        if (prescale_factor, postscale_factor) != (1.0, 1.0):
            raise NotImplementedError("IndexedSlices cannot be scaled: scale their values")
        with placed_on(device_sparse):
            return reduce_slices(tensor, wire_name("allgather", name, ignore_name_scope), op, process_set)
    with placed_on(device_dense):
        sent, context = arguments.compressor(compression).compress(_converted(tensor))
        name = wire_name("allreduce", name, ignore_name_scope)
        reduced = reduce_tensors([sent], name, op, prescale_factor, postscale_factor, set_id(process_set))
        return compression.decompress(reduced[0], context)


def reduce_slices(
    slices: tf.IndexedSlices, name: str, op: int, process_set: ProcessSet, unforeseen: Any = None
) -> tf.IndexedSlices:
    """IndexedSlices with those of all ranks. `name`: that on the wire."""
    if op not in (Average, Sum):
        raise NotImplementedError(
            "IndexedSlices can only be summed up or averaged; others need tensors (sparse_as_dense=True)"
        )
    values, indices = gather_tensors([slices.values, slices.indices], name, set_id(process_set), unforeseen)
    if op == Average:
        values = values / tf.cast(size_op(set_id(process_set)), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduces several tensors, which become ready as one: none is reduced before all are there on all ranks. There may
    be IndexedSlices among them, which are gathered one by one.

    Args and errors as for `allreduce`; every rank must give equally many tensors, in the same order, and IndexedSlices
    at the same places.

    Returns:
        New tensors of the same shapes and dtypes, and IndexedSlices as `allreduce` returns them.
    """
    op, tensors = arguments.reduce_op(resolve_op(op, average)), list(tensors)
    if not tensors:
        return []
    reduced: list[Any] = [None] * len(tensors)
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    others = (device_dense, device_sparse, compression, op, prescale_factor, postscale_factor)
    for i in sorted(set(range(len(tensors))) - set(dense)):
        its_name = None if name is None else f"{name}_{i}of{len(tensors)}"
        reduced[i] = allreduce(tensors[i], None, *others, its_name, process_set, ignore_name_scope)
    with placed_on(device_dense):
        arguments.compressor(compression)
        compressed = [compression.compress(tensor) for tensor in (_converted(tensors[i]) for i in dense)]
        name = wire_name("grouped_allreduce", name, ignore_name_scope)
        sent = [tensor for tensor, _ in compressed]
        results = []
        if sent:
            results = reduce_tensors(sent, name, op, prescale_factor, postscale_factor, set_id(process_set))
        for i, result, (_, context) in zip(dense, results, compressed):
            reduced[i] = compression.decompress(result, context)
    return reduced


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Concatenates the ranks' tensors along the first dimension, in rank order. All ranks of the set must call it.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        name: the same on every rank.
        ignore_name_scope: as for `allreduce`.
        process_set: the ranks that take part.

    Returns:
        A new tensor of shape [sum of the first dimensions, ...], the same on every rank. Differentiable.

    Raises:
        tf.errors.FailedPreconditionError: the tensor is a scalar, or the ranks disagree about dtype or other
            dimensions.
        ValueError, TypeError, other errors: as `allreduce`.
    """
    name = wire_name("allgather", name, ignore_name_scope)
    return gather_tensors([_converted(tensor)], name, set_id(process_set))[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Concatenates several tensors along their first dimensions: as `allgather`, which says what holds for each.

    Every rank of the set must give equally many tensors, in the same order; none is gathered before all ranks have
    submitted all of them.

    Returns:
        New tensors, in the order of `tensors`; an empty list for none. Differentiable. Raises as `allgather`.
    """
    tensors = list(tensors)
    if not tensors:
        return []
    name = wire_name("grouped_allgather", name, ignore_name_scope)
    return gather_tensors([_converted(tensor) for tensor in tensors], name, set_id(process_set))


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Gives every rank the root's tensor. All ranks of the set must call it.

    Args:
        tensor: the same shape and dtype on every rank; of the others' only these matter.
        root_rank: the root's number in the job, also if the process set has fewer ranks.
        name: the same on every rank.
        ignore_name_scope: as for `allreduce`.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same shape and dtype. Differentiable.

    Raises:
        tf.errors.InvalidArgumentError: the root is not in the set, or the name is in use on this rank.
        ValueError, TypeError, other errors: as `allreduce`.
    """
    name = wire_name("broadcast", name, ignore_name_scope)
    return broadcast_tensors([_converted(tensor)], root_rank, name, process_set)[0]


def broadcast_tensors(
    tensors: Sequence[tf.Tensor], root_rank: int, name: str, process_set: ProcessSet
) -> list[tf.Tensor]:
    """As `broadcast`, of several tensors, which become ready as one. `name`: that on the wire."""
    root_rank = arguments.rank(root_rank, "root_rank")
    outputs: list[tf.Tensor] = run(
        "broadcast", to_send(tensors), tensor_name=name, root_rank=root_rank, process_set=set_id(process_set)
    )
    return received(outputs, tensors)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrites variables with the root's. All ranks must call it, with variables of the same shapes and dtypes.

    Returns:
        The variables; in a graph of tf.compat.v1, what assigns them.
    """
    variables = list(variables)
    if not variables:
        return []
    values = broadcast_tensors(
        [tf.convert_to_tensor(variable) for variable in variables],
        root_rank,
        wire_name("broadcast_", name),
        process_set,
    )
    assigned = [variable.assign(value) for variable, value in zip(variables, values)]
    return variables if tf.executing_eagerly() else assigned


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank its rows of the tensor, and concatenates what comes from each rank, in rank order. All ranks of
    the set must call it.

    Args:
        tensor: at least one dimension; the first one may differ between ranks, the others may not.
        splits: how many rows go to each rank of the set, integers; the rows beyond their sum are not sent. None:
            equally many, and the first dimension must be divisible by the number of ranks.
        name: the same on every rank.
        ignore_name_scope: as for `allreduce`.
        process_set: the ranks that take part.

    Returns:
        A new tensor of shape [rows received, ...]; if splits are given, also the number of rows received from each rank
        (int32). Differentiable.

    Raises:
        tf.errors.InvalidArgumentError: splits are not an integer for each rank, or add up to more rows than there are.
        tf.errors.FailedPreconditionError: the tensor is a scalar, or the ranks disagree.
        ValueError, TypeError, other errors: as `allreduce`.
    """
    tensor = _converted(tensor)
    _require_rows(tensor, "alltoall")
    output, received_splits = run(
        "alltoall",
        *to_send([tensor]),
        tf.zeros([0], tf.int64) if splits is None else _checked_splits(splits),
        tensor_name=wire_name("alltoall", name, ignore_name_scope),
        process_set=set_id(process_set),
    )
    output = _with_open_rows(received([output], [tensor])[0], tensor)
    return output if splits is None else (output, received_splits)


def _checked_splits(splits: Any) -> tf.Tensor:
    splits = tf.convert_to_tensor(splits)
    # The op takes no splits for equal ones, and whatever is cast.
    if splits.shape.rank not in (1, None) or splits.shape == [0] or not splits.dtype.is_integer:
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"hvd: alltoall needs an integer for each rank as splits, not {splits.dtype.name} of shape {splits.shape}",
        )
    return tf.cast(splits, tf.int64)


def _scatter(
    tensors: list[tf.Tensor],
    name: str,
    op: int,
    process_set: ProcessSet,
    factors: tuple[float, float],
    compression: type[Compressor],
) -> list[tf.Tensor]:
    op = arguments.reduce_op(op)
    arguments.compressor(compression)
    for tensor in tensors:
        _require_rows(tensor, "reducescatter")
    compressed = [compression.compress(tensor) for tensor in tensors]
    sent = [tensor for tensor, _ in compressed]
    require_reducible(sent, "reducescatter", op)
    rows = run(
        "reducescatter",
        to_send(sent),
        tensor_name=name,
        reduce_op=op,
        prescale_bits=_bits(factors[0]),
        postscale_bits=_bits(factors[1]),
        process_set=set_id(process_set),
    )
    decompressed = [
        compression.decompress(*pair) for pair in zip(received(rows, sent), (context for _, context in compressed))
    ]
    return [_with_open_rows(*pair) for pair in zip(decompressed, tensors)]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces a tensor over all ranks of the set, which must all call it, and gives each rank its rows of the result,
    in rank order.

    Args:
        tensor: at least one dimension; the same shape and dtype on every rank. If its rows do not divide evenly, the
            first ranks receive one more.
        op: Average (the default), Sum, Min, Max or Product.
        The others as for `allreduce`.

    Returns:
        A new tensor of shape [rows of this rank, ...]. Differentiable, if op is Average or Sum.

    Raises:
        tf.errors.FailedPreconditionError: the tensor is a scalar, or the ranks disagree.
        ValueError, TypeError, other errors: as `allreduce`.
    """
    name = wire_name("reducescatter", name, ignore_name_scope)
    factors = (prescale_factor, postscale_factor)
    with placed_on(device_dense):
        return _scatter([_converted(tensor)], name, op, process_set, factors, compression)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Reduces and scatters several tensors, which become ready as one: as `reducescatter`, which says what holds for
    each. Every rank must give equally many tensors, in the same order."""
    tensors = list(tensors)
    if not tensors:
        return []
    name = wire_name("grouped_reducescatter", name, ignore_name_scope)
    factors = (prescale_factor, postscale_factor)
    with placed_on(device_dense):
        return _scatter([_converted(tensor) for tensor in tensors], name, op, process_set, factors, compression)


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Returns when all ranks of the set have called it, which they all must. In a graph: the operation that does.

    Raises:
        ValueError: hvd is not initialised, or the process set is not registered.
        tf.errors.InvalidArgumentError: this rank is not in the set.
        tf.errors.UnknownError: a rank was lost, or has not come in time; in eager mode a HorovodInternalError, too.
    """
    return run("barrier", tensor_name=wire_name("barrier", None), process_set=set_id(process_set))


def join() -> tf.Tensor:
    """Says that this rank has no more data, and waits until all ranks have; the others' operations go on without it
    (docs/errors.md has which).

    Returns:
        The last rank that joined (int32).

    Raises:
        ValueError: hvd is not initialised.
        tf.errors.UnknownError: a rank was lost, or has not come in time; in eager mode a HorovodInternalError, too.
    """
    set_id(global_process_set)
    return run("join")


def _place(op: str, process_set: int | None = None, **attributes: Any) -> tf.Tensor:
    refuse_in_xla(f"hvd.{op}_op")
    if process_set is not None:
        require_registered(process_set)
        attributes["process_set"] = process_set
    return getattr(ops, f"hvd_{op}")(**attributes)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks in a process set, as the graph finds it when it runs (int32). ValueError if hvd is
    initialised, and has no such set."""
    return _place("size", process_set=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 if this process belongs to the process set when the graph runs, else 0 (int32). ValueError if hvd is
    initialised, and has no such set."""
    return _place("process_set_included", process_set=process_set_id, name=name)


def rank_op(name: str | None = None) -> tf.Tensor:
    """This process's rank, as the graph finds it when it runs (int32)."""
    return _place("rank", name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """This process's number on its host, as the graph finds it when it runs (int32)."""
    return _place("local_rank", name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """The number of the job's processes on this host, as the graph finds it when it runs (int32)."""
    return _place("local_size", name=name)
