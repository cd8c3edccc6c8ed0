"""Collectives on arrays of any library, and barrier and join. `import hvd` is enough, and imports no library.

Common to all of them:

- Every rank of the process set must call, with the same name, dtype, reduce operation and scale factors. Shapes must be
  equal too, except where a function says otherwise. Ranks may call in different orders if the operations have names;
  unnamed ones are numbered per process set, and must be called in the same order on all ranks. Names are those of
  `hvd.torch`: a rank with NumPy and one with PyTorch may be in one operation.
- An array is one of NumPy, PyTorch, JAX, TensorFlow (eager), MXNet or Arrow, an array.array, memoryview, bytes or
  bytearray, or whatever else has the buffer protocol or DLPack on a CPU or a CUDA GPU. Libraries may differ between
  ranks. The result is of the kind and dtype of this rank's own array: an array of NumPy for one of NumPy, a memoryview
  for what has only the buffer protocol.
- Inputs may be read-only, without dimensions, and of any strides and byte order; those that are not contiguous are
  copied first.
- `out`, an array of the result's shape and dtype, of any kind that can be changed, gets the result and is returned. It
  may be the array given to an allreduce or a broadcast, for an operation in place, but may not overlap it otherwise.
- int8 to int64, uint8, float16, bfloat16, float32, float64 and bool (Min and Max) are reduced. Integers are scaled in
  double precision and truncated, and 16-bit floats summed in float32 and rounded once. Complex numbers have Sum and
  Average. All other types of fixed size (unsigned integers, 8-bit floats, dates, text, ...) only move: allgather,
  broadcast and alltoall take them.
- Errors that this rank can see raise ValueError from the call itself: an unsupported dtype, device or operation, an
  `out` that does not fit, a name that is in use, an uninitialised runtime; or TypeError: what is no array, operation or
  process set where one is expected. Errors between ranks (a mismatch, a lost rank) raise HorovodInternalError when
  waiting.
- Asynchronous forms return a handle for `poll()` and `synchronize()`. Until then the arrays must not be touched. An
  operation that nobody waits for goes on, and its name is free again when it has ended; its result is dropped with the
  handle.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from hvd import _native, arguments
from hvd._native import OperationSpec
from hvd.arguments import outputs_apart
from hvd.arguments import process_set_number as set_id
from hvd.arrays import Memory, kind_of
from hvd.exceptions import NoRowsError
from hvd.handles import register, synchronize
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, Sum, resolve_op
from hvd.specs import find_group_spec, find_spec, make_spec, wire_name

_Outs = Optional[Sequence[Any]]


def _described(memory: Memory) -> tuple[tuple[int, ...], int]:
    """Shape and type code, as the runtime is to see them."""
    element = memory.type
    return (memory.shape + element.trailing if element.trailing else memory.shape), element.code


def _require_fit(given: Memory, room: Memory, first: int = 0) -> None:
    """ValueError if `room`, the memory of an `out`, cannot hold a result for `given`. Dimensions before `first` may
    differ."""
    if room.type.name != given.type.name:
        raise ValueError(f"out is of {room.type.name}, but the array of {given.type.name}")
    if room.device != given.device:
        places = f"{_place_name(room)} and {_place_name(given)}"
        raise ValueError(f"out and the array are on different devices, {places}: give both on one")
    if room.shape[first:] != given.shape[first:] or len(room.shape) != len(given.shape):
        raise ValueError(f"out has the shape {tuple(room.shape)}, but the array {tuple(given.shape)}")


def _place_name(memory: Memory) -> str:
    return "the CPU" if memory.device < 0 else f"GPU {memory.device}"


def _paired(tensor: Any, out: Any) -> tuple[Memory, Memory]:
    """For a result of the input's shape: the input's memory, and room for the result."""
    kind = kind_of(tensor)
    if out is tensor:
        room = kind.write(tensor)
        return (room if room.finish is None else kind.read(tensor)), room
    given = kind.read(tensor)
    if out is None:
        return given, kind.new(tensor, given)
    room = kind_of(out).write(out)
    _require_fit(given, room)
    distance = abs(room.address - given.address)
    if 0 < distance < given.type.bytes * math.prod(given.shape):
        raise ValueError("out overlaps the array: give the array itself, or one apart from it")
    return given, room


Call = tuple[OperationSpec, tuple[int], tuple[int], object, int]  # as submit() and run() take it
GroupCall = tuple[OperationSpec, list[int], list[int], object, int]


def single_call(
    collective: int,
    function: str,
    name: str | None,
    tensor: Any,
    out: Any,
    process_set: ProcessSet,
    op: int = Sum,
    root_rank: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tuple[Call, Memory]:
    """A collective whose result has the input's shape: the arguments of submit() and run(), and where the result will
    be."""
    given, room = _paired(tensor, out)
    # Unpacked: this is the hot path of small operations, and an attribute takes as long as all of these do.
    address, shape, element, device, stream, owner, _ = given
    _, code, _, _, trailing, reductions = element
    if collective == _native.ALLREDUCE and op not in reductions:
        element.require_reducible(function, op)
    spec = find_spec(
        collective,
        function,
        name,
        set_id(process_set),
        (shape + trailing if trailing else shape, code),
        op,
        root_rank,
        prescale_factor,
        postscale_factor,
        device,
    )
    return (spec, (address,), (room.address,), (owner, room.owner, out), stream), room


def _run(name: str | None, tensor: Any, call: Call) -> None:
    """On this thread where that is possible, without handing anything over. Without a name it is numbered, so that a
    disagreement about which operation it is comes to light."""
    if name is None:
        kind_of(tensor).wait(_native.submit(*call))
    else:
        _native.run(*call)


def _start(tensor: Any, call: Call, room: Memory) -> int:
    return register(_native.submit(*call), kind_of(tensor).wait, lambda _: room.result())


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> Any:
    """Reduces an array over all ranks.

    Args:
        tensor: an array, of the same shape and dtype on every rank. bool: only Min and Max; complex: only Sum and
            Average.
        average: older form of `op`: True is Average, False is Sum.
        name: the same on every rank.
        op: Average (the default), Sum, Adasum, Min, Max or Product. Sums of integers wrap around, also for averages,
            which are then truncated. Adasum is for floating-point arrays (`hvd.torch.allreduce` says what it is).
        prescale_factor: inputs are multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it. Both are taken in float32 for float32 and 16-bit floats, else
            in double precision; an average's quotient is not rounded before the result is.
        process_set: the ranks that take part.
        out: gets the result; may be `tensor`.

    Returns:
        An array of the same kind, shape and dtype, with the same bits on every rank.

    Raises:
        ValueError: the dtype cannot be reduced so; `out` is read-only, or of another shape or dtype.
        TypeError: `tensor` is no array.
        HorovodInternalError: the ranks disagree, or one was lost.
    """
    op = resolve_op(op, average)
    call, room = single_call(
        _native.ALLREDUCE, "allreduce", name, tensor, out, process_set, op, 0, prescale_factor, postscale_factor
    )
    if name is None:
        kind_of(tensor).wait(_native.submit(*call))
    else:
        _native.run(*call)
    return room.owner if room.finish is None else room.finish()


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> int:
    """Starts an allreduce. Arguments and errors as for `allreduce`; returns a handle."""
    op = resolve_op(op, average)
    factors = prescale_factor, postscale_factor
    started = single_call(_native.ALLREDUCE, "allreduce", name, tensor, out, process_set, op, 0, *factors)
    return _start(tensor, *started)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> Any:
    """Gives every rank the root's array.

    Args:
        tensor: an array, of the same shape and dtype on every rank; of the others' only these matter.
        root_rank: the root's number in the job, also if the process set has fewer ranks.
        name: the same on every rank.
        process_set: the ranks that take part.
        out: gets the result; may be `tensor`.

    Returns:
        An array of the same kind, shape and dtype: the root's.

    Raises:
        ValueError: `root_rank` is not in the set, the dtype is not supported, or `out` is read-only or does not fit.
        TypeError: `tensor` is no array, or `root_rank` no integer.
        HorovodInternalError: the ranks disagree, or one was lost.
    """
    call, room = single_call(_native.BROADCAST, "broadcast", name, tensor, out, process_set, Sum, root_rank)
    _run(name, tensor, call)
    return room.result()


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> int:
    """Starts a broadcast. Arguments and errors as for `broadcast`; returns a handle."""
    return _start(tensor, *single_call(_native.BROADCAST, "broadcast", name, tensor, out, process_set, Sum, root_rank))


def _group(tensors: Iterable[Any], out: _Outs) -> tuple[list[Any], list[Any]]:
    """The arrays of a group, and the one for each result, or None."""
    listed = list(tensors)
    if not listed:
        raise ValueError("a group needs at least one array")
    outs = [None] * len(listed) if out is None else list(out)
    if len(outs) != len(listed):
        raise ValueError(f"out has {len(outs)} arrays, but the group {len(listed)}")
    return listed, outs


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    out: _Outs = None,
) -> list[Any]:
    """Reduces several arrays as one operation: none is reduced before all ranks of the set have submitted all of them.

    Args:
        tensors: at least one array, all on one device; equally many on every rank, in the same order, with the same
            shapes and dtypes. They may differ in dtype from each other.
        average, name, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.
        out: an array for each result, or None in its place for a new one; no two may share memory.

    Returns:
        A list of arrays of the same kinds, shapes and dtypes, in the order of `tensors`.

    Raises:
        ValueError: there are no arrays, they are on several devices, or as `allreduce`.
        TypeError, HorovodInternalError: as `allreduce`.
    """
    factors = prescale_factor, postscale_factor
    result: list[Any] = synchronize(grouped_allreduce_async(tensors, average, name, op, *factors, process_set, out=out))
    return result


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    out: _Outs = None,
) -> int:
    """Starts an allreduce of several arrays. Arguments and errors as for `grouped_allreduce`; returns a handle."""
    factors = prescale_factor, postscale_factor
    call, listed, rooms = group_call(tensors, average, name, op, *factors, process_set, out=out)
    return register(_native.submit(*call), kind_of(listed[0]).wait, lambda _: [room.result() for room in rooms])


def group_call(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    out: _Outs = None,
) -> tuple[GroupCall, list[Any], list[Memory]]:
    """An allreduce of several arrays: the arguments of submit(), the arrays, and where the results will be."""
    op = resolve_op(op, average)
    listed, outs = _group(tensors, out)
    paired = [_paired(*pair) for pair in zip(listed, outs)]
    given = [memory for memory, _ in paired]
    rooms = [room for _, room in paired]
    if out is not None:
        outputs_apart([each for each in outs if each is not None], map(_extent, rooms))
        # Each result apart from the other arrays: it may come before these were read.
        _require_apart(given, rooms)
    factors = prescale_factor, postscale_factor
    spec = _group_spec(_native.ALLREDUCE, "grouped_allreduce", name, process_set, given, op, *factors)
    addresses = [memory.address for memory in given], [room.address for room in rooms]
    return (spec, *addresses, (given, rooms, outs), given[0].stream), listed, rooms


def _require_apart(given: Sequence[Memory], rooms: Sequence[Memory]) -> None:
    """ValueError if a result would overwrite the array of another one."""
    ends = sorted((*_extent(room), number) for number, room in enumerate(rooms))
    starts = [first for first, _, _ in ends]
    for number, (first, end) in enumerate(map(_extent, given)):
        position = max(bisect.bisect_right(starts, first) - 1, 0)
        while position < len(ends) and ends[position][0] < end:
            begin, stop, owner = ends[position]
            if owner != number and first < stop and begin < end and begin < stop:
                raise ValueError(
                    "out overlaps another array of the group: give each array itself, or one apart from all"
                )
            position += 1


def _extent(memory: Memory) -> tuple[int, int]:
    """First address and end."""
    return memory.address, memory.address + math.prod(memory.shape) * memory.type.bytes


def _group_spec(
    collective: int,
    function: str,
    name: str | None,
    process_set: ProcessSet,
    given: Sequence[Memory],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    rooms: Sequence[Memory] | None = None,
) -> OperationSpec:
    """`rooms`: for results whose rows are not those of the arrays."""
    if collective != _native.ALLGATHER:
        for memory in given:
            memory.type.require_reducible(function, op)
    if any(memory.device != given[0].device for memory in given):
        raise ValueError(arguments.on_several_devices(function, "arrays", map(_place_name, given)))
    descriptions = tuple([_described(memory) for memory in given])
    place = set_id(process_set), descriptions
    factors = prescale_factor, postscale_factor
    rows = None if rooms is None else tuple([room.shape[0] for room in rooms])
    return find_group_spec(collective, function, name, *place, op, *factors, given[0].device, rows)


def _rows_of(tensor: Any, out: Any) -> tuple[Memory, Memory | None]:
    """The memory of an input whose rows are gathered, exchanged or scattered, and room for the result in `out`."""
    given = kind_of(tensor).read(tensor)
    if not given.shape:
        raise NoRowsError("an array with at least one dimension is needed: a scalar has no rows")
    if out is None:
        return given, None
    room = kind_of(out).write(out)
    _require_fit(given, room, first=1)
    return given, room


def _start_rows(
    collective: int,
    function: str,
    name: str | None,
    process_set: ProcessSet,
    tensors: Iterable[Any],
    out: _Outs,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    tensors, outs = _group(tensors, out)
    if out is not None and any(each is None for each in outs):
        raise ValueError("out has None where an array for each result is needed")
    paired = [_rows_of(*pair) for pair in zip(tensors, outs)]
    given = [memory for memory, _ in paired]
    rooms = [room for _, room in paired if room is not None]
    factors = prescale_factor, postscale_factor
    spec = _group_spec(collective, function, name, process_set, given, op, *factors, rooms or None)
    inputs, wait = [memory.address for memory in given], kind_of(tensors[0]).wait
    if not rooms:
        work = _native.submit(spec, inputs, None, given, given[0].stream)
        results = list(enumerate(zip(tensors, given)))
        return register(
            work, wait, lambda work: [kind_of(array).take(array, memory, work, i) for i, (array, memory) in results]
        )
    outputs_apart(outs, map(_extent, rooms))
    work = _native.submit(spec, inputs, [room.address for room in rooms], (given, rooms, outs), given[0].stream)
    return register(work, wait, lambda _: [room.result() for room in rooms])


def _start_one(
    collective: int,
    function: str,
    name: str | None,
    process_set: ProcessSet,
    tensor: Any,
    out: Any,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """As _start_rows, for one array; the result of the handle is one array."""
    given, room = _rows_of(tensor, out)
    factors = prescale_factor, postscale_factor
    rooms = None if room is None else [room]
    spec = _group_spec(collective, function, name, process_set, [given], op, *factors, rooms)
    work = _start_with(spec, given, room)
    return register(work, kind_of(tensor).wait, lambda work: _result_of(tensor, given, room, work))


def _start_with(spec: OperationSpec, given: Memory, room: Memory | None) -> _native.Work:
    if room is None:
        return _native.submit(spec, [given.address], None, given.owner, given.stream)
    return _native.submit(spec, [given.address], [room.address], (given, room), given.stream)


def _result_of(tensor: Any, given: Memory, room: Memory | None, work: _native.Work) -> Any:
    return kind_of(tensor).take(tensor, given, work, 0) if room is None else room.result()


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, *, out: Any = None
) -> Any:
    """Concatenates the ranks' arrays along the first dimension, in rank order.

    Args:
        tensor: an array of at least one dimension; the first one may differ between ranks, the others may not.
        name: the same on every rank.
        process_set: the ranks that take part.
        out: gets the result, whose shape it has.

    Returns:
        An array of the same kind and dtype and of the shape [sum of the first dimensions, ...], the same on every rank.

    Raises:
        ValueError: the dtype is not supported, there is no first dimension, or `out` is read-only or does not fit. That
            its first dimension does not fit is known when the operation is over, and an error on this rank alone.
        TypeError, HorovodInternalError: as `allreduce`.
    """
    return synchronize(allgather_async(tensor, name, process_set, out=out))


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, *, out: Any = None
) -> int:
    """Starts an allgather. Arguments and errors as for `allgather`; returns a handle."""
    return _start_one(_native.ALLGATHER, "allgather", name, process_set, tensor, out)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set, *, out: _Outs = None
) -> list[Any]:
    """Concatenates several arrays along their first dimensions: as `allgather`, which says what holds for each.

    Every rank of the set must give equally many arrays, in the same order; none is gathered before all ranks have
    submitted all of them.

    Args:
        tensors: at least one array, all on one device.
        out: an array for each result.

    Returns:
        A list of arrays, in the order of `tensors`.

    Raises:
        ValueError: there are no arrays, they are on several devices, or as `allgather`.
        TypeError, HorovodInternalError: as `allgather`.
    """
    result: list[Any] = synchronize(grouped_allgather_async(tensors, name, process_set, out=out))
    return result


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set, *, out: _Outs = None
) -> int:
    """Starts an allgather of several arrays. Arguments and errors as for `allgather`; returns a handle."""
    return _start_rows(_native.ALLGATHER, "grouped_allgather", name, process_set, tensors, out)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    out: Any = None,
) -> Any:
    """Reduces an array over all ranks and gives each rank its part of the rows, in rank order.

    Args:
        tensor: an array of at least one dimension, of the same shape and dtype on every rank. If its rows do not divide
            evenly, the first ranks receive one more.
        name, prescale_factor, postscale_factor, process_set: as for `allreduce`.
        op: Average, Sum, Min, Max or Product.
        out: gets the result, whose shape it has.

    Returns:
        An array of the same kind and dtype, of shape [this rank's rows, ...].

    Raises:
        ValueError: there is no first dimension, the dtype cannot be reduced so, `op` is Adasum, or `out` is read-only
            or does not fit.
        TypeError, HorovodInternalError: as `allreduce`.
    """
    return synchronize(reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor, out=out))


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    out: Any = None,
) -> int:
    """Starts a reducescatter. Arguments and errors as for `reducescatter`; returns a handle."""
    op = resolve_op(op, None)
    factors = prescale_factor, postscale_factor
    return _start_one(_native.REDUCESCATTER, "reducescatter", name, process_set, tensor, out, op, *factors)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    out: _Outs = None,
) -> list[Any]:
    """Reduces several arrays and gives each rank its part of their rows: as `reducescatter`, which says what holds for
    each.

    Every rank of the set must give equally many arrays, in the same order; none is reduced before all ranks have
    submitted all of them.

    Args:
        tensors: at least one array, all on one device.
        out: an array for each result.

    Returns:
        A list of arrays, in the order of `tensors`: this rank's rows of each.

    Raises:
        ValueError: there are no arrays, they are on several devices, or as `reducescatter`.
        TypeError, HorovodInternalError: as `reducescatter`.
    """
    result: list[Any] = synchronize(
        grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor, out=out)
    )
    return result


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    out: _Outs = None,
) -> int:
    """Starts a reducescatter of several arrays. Arguments and errors as for `reducescatter`; returns a handle."""
    op = resolve_op(op, None)
    factors = prescale_factor, postscale_factor
    return _start_rows(_native.REDUCESCATTER, "grouped_reducescatter", name, process_set, tensors, out, op, *factors)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> Any:
    """Sends each rank its rows of the array, and concatenates what comes from each rank, in rank order.

    Args:
        tensor: an array of at least one dimension; the first one may differ between ranks, the others may not.
        splits: how many rows go to each rank of the set, as a list or an array of integers; the rows beyond their sum
            are not sent. None: equally many, and the first dimension must be divisible by the number of ranks.
        name: the same on every rank.
        process_set: the ranks that take part.
        out: gets the result, whose shape it has.

    Returns:
        An array of the same kind and dtype, of shape [rows received, ...]; if splits are given, also the number of rows
        received from each rank, as an array of int32 of shape [ranks of the set].

    Raises:
        ValueError: there is no first dimension, splits are not one for each rank or add up to more rows than there are,
            the rows cannot be divided equally, or as `allgather`.
        TypeError, HorovodInternalError: as `allgather`.
    """
    output, received_splits = synchronize(alltoall_async(tensor, splits, name, process_set, out=out))
    return output if splits is None else (output, received_splits)


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    out: Any = None,
) -> int:
    """Starts an alltoall. Arguments as for `alltoall`; the handle's result is always (output, received_splits)."""
    rows = None if splits is None else arguments.rows(splits, "splits")
    given, room = _rows_of(tensor, out)
    spec = make_spec(
        _native.ALLTOALL,
        wire_name("alltoall", name),
        set_id(process_set),
        [_described(given)],
        splits=rows,
        device=given.device,
        output_rows=None if room is None else [room.shape[0]],
    )
    work = _start_with(spec, given, room)
    kind = kind_of(tensor)
    return register(
        work,
        kind.wait,
        lambda work: (_result_of(tensor, given, room, work), kind.integers(tensor, work.received_splits())),
    )


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the process set have called it, which they all must.

    Raises:
        ValueError, TypeError: hvd is not initialised, or the set is not registered or does not have this rank.
        HorovodInternalError: a rank of the set was lost, or has not come in time.
    """
    _native.submit(OperationSpec(_native.BARRIER, None, set_id(process_set), []), [], None, None).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all ranks of the job have said so, which they all must.

    Until then the others' collectives go on without it. In reductions it stands for neutral elements (an average is
    divided by the number of all ranks, or with HVD_JOIN_DIVISOR=contributing of those that have not joined), and its
    slice of a reducescatter is dropped; to allgather and alltoall it brings no rows. What cannot do without it fails
    with HorovodInternalError on the others: a broadcast from it, an alltoall with rows for it, and a minimum, maximum
    or product with a prescale factor. What was started before is finished first.

    Args:
        device: not needed; for scripts that give it. A rank takes part in what GPUs do with the GPU of its own arrays.

    Returns:
        The rank that joined last.

    Raises:
        ValueError: hvd is not initialised.
        HorovodInternalError: a rank was lost, or has not come in time.
    """
    work = _native.submit(OperationSpec(_native.JOIN, None, 0, []), [], None, None)
    work.wait()
    return work.last_joined()
