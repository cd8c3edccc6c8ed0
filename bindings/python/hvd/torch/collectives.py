"""Collectives on torch tensors: the asynchronous and the in-place forms, barrier and join.

Common to all of them:

- Every rank of the process set must call, with the same name, dtype, reduce operation and scale factors. Shapes must be
  equal too, except where a function says otherwise. Ranks may call in different orders if the operations have names;
  unnamed ones are numbered per process set, and must be called in the same order on all ranks. `allreduce_` is the
  exception: it is not numbered, a loop of it has one name, and without a name it can only meet itself.
- Tensors must be contiguous, on the CPU or a GPU (with NCCL; docs/errors.md has what that cannot do), of uint8, int8,
  int16, int32, int64, float16, bfloat16, float32, float64 or bool (which has no sums). On the CPU integers are scaled
  in double precision and truncated, and 16-bit floats summed in float32 and rounded once.
- Errors that this rank can see raise ValueError from the call itself: an unsupported tensor, a name that is in use, an
  uninitialised runtime. Errors between ranks (a mismatch, a lost rank) raise HorovodInternalError when waiting.
- Asynchronous forms return a handle for `poll()` and `synchronize()`. Until then the tensors must not be touched.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hvd import _native
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, Sum
from hvd.torch.handles import register
from hvd.torch.tensors import (
    CPU_PLACE,
    Finish,
    describe,
    place_of,
    taken_output,
    taken_output_and_splits,
    wait_for,
)


def resolve_op(op: int | None, average: bool | None) -> int:
    """The reduce operation meant by `op` and the older `average`, of which at most one may be given."""
    if op is None:
        return Average if average is None or average else Sum
    if average is not None:
        raise ValueError("op and average say the same thing: give only op")
    return op


def set_id(process_set: ProcessSet) -> int:
    number = process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} is not registered")
    return number


def wire_name(collective: str, name: str | None) -> str | None:
    return None if name is None else f"{collective}.{name}"


def _prepare(
    collective: int,
    name: str | None,
    tensor: torch.Tensor,
    in_place: bool,
    process_set: ProcessSet,
    op: int = Sum,
    root_rank: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tuple[tuple, torch.Tensor]:
    """The arguments of submit_one() and run_one(), and the tensor that will hold the result."""
    data, shape, dtype = describe(tensor)
    output = tensor if in_place else torch.empty_like(tensor)
    return (
        collective,
        name,
        set_id(process_set),
        op,
        root_rank,
        prescale_factor,
        postscale_factor,
        data,
        shape,
        dtype,
        data if in_place else output.data_ptr(),
        tensor if in_place else (tensor, output),
        *place_of(tensor),
    ), output


def _prepare_allreduce(
    tensor: torch.Tensor,
    in_place: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> tuple[tuple, torch.Tensor]:
    name = wire_name("allreduce", name)
    return _prepare(_native.ALLREDUCE, name, tensor, in_place, process_set, op, 0, prescale_factor, postscale_factor)


def _prepare_broadcast(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: str | None, process_set: ProcessSet
) -> tuple[tuple, torch.Tensor]:
    return _prepare(_native.BROADCAST, wire_name("broadcast", name), tensor, in_place, process_set, Sum, root_rank)


def start_allreduce(*arguments: object) -> tuple[_native.Work, torch.Tensor]:
    """The operation, and the tensor that will hold its result. Arguments as of _prepare_allreduce."""
    call, output = _prepare_allreduce(*arguments)
    return _native.submit_one(*call), output


def _run(call: tuple) -> None:
    """What _prepare() has made, until its end; on a GPU, as far as this thread has to wait for it."""
    if call[-2] < 0:
        _native.run_one(*call)
    else:
        wait_for(_native.submit_one(*call))


def run_allreduce(*arguments: object) -> torch.Tensor:
    """As start_allreduce, and waits: on this thread where that is possible, without handing anything over."""
    call, output = _prepare_allreduce(*arguments)
    _run(call)
    return output


def start_grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    in_place: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> tuple[_native.Work, list[torch.Tensor]]:
    """As start_allreduce, for several tensors that become ready as one."""
    descriptions = [describe(tensor) for tensor in tensors]
    outputs = list(tensors) if in_place else [torch.empty_like(tensor) for tensor in tensors]
    work = _native.submit(
        _native.ALLREDUCE,
        wire_name("grouped_allreduce", name),
        set_id(process_set),
        op,
        0,
        prescale_factor,
        postscale_factor,
        descriptions,
        [output.data_ptr() for output in outputs],
        None,
        (list(tensors), outputs),
        *(place_of(tensors[0]) if tensors else CPU_PLACE),
    )
    return work, outputs


def start_broadcast(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: str | None, process_set: ProcessSet
) -> tuple[_native.Work, torch.Tensor]:
    """The operation, and the tensor that will hold its result."""
    call, output = _prepare_broadcast(tensor, in_place, root_rank, name, process_set)
    return _native.submit_one(*call), output


def run_broadcast(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: str | None, process_set: ProcessSet
) -> torch.Tensor:
    """As start_broadcast, and waits, as run_allreduce. Without a name it is numbered, like most waiting forms, so that
    a disagreement about which operation it is comes to light."""
    if name is None:
        work, output = start_broadcast(tensor, in_place, root_rank, name, process_set)
        wait_for(work)
        return output
    call, output = _prepare_broadcast(tensor, in_place, root_rank, name, process_set)
    _run(call)
    return output


def _returning(result: object) -> Finish:
    return lambda _: result


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce into a new tensor. Arguments as for `allreduce`; returns a handle."""
    op = resolve_op(op, average)
    work, output = start_allreduce(tensor, False, name, op, prescale_factor, postscale_factor, process_set)
    return register(work, _returning(output))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce in place. Arguments as for `allreduce`; returns a handle."""
    op = resolve_op(op, average)
    work, output = start_allreduce(tensor, True, name, op, prescale_factor, postscale_factor, process_set)
    return register(work, _returning(output))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor in place over all ranks, and returns it. Arguments as for `allreduce`; not differentiable."""
    op = resolve_op(op, average)
    return run_allreduce(tensor, True, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce of several tensors into new ones. Arguments as for `grouped_allreduce`; returns a handle."""
    op = resolve_op(op, average)
    work, outputs = start_grouped_allreduce(tensors, False, name, op, prescale_factor, postscale_factor, process_set)
    return register(work, _returning(outputs))


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce of several tensors in place. Arguments as for `grouped_allreduce`; returns a handle."""
    op = resolve_op(op, average)
    work, outputs = start_grouped_allreduce(tensors, True, name, op, prescale_factor, postscale_factor, process_set)
    return register(work, _returning(outputs))


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors in place, and returns them. Arguments as for `grouped_allreduce`; not differentiable."""
    op = resolve_op(op, average)
    work, outputs = start_grouped_allreduce(tensors, True, name, op, prescale_factor, postscale_factor, process_set)
    wait_for(work)
    return outputs


def _start(
    collective: int,
    name: str | None,
    process_set: ProcessSet,
    tensor: torch.Tensor,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> _native.Work:
    """Starts a collective whose output the runtime provides."""
    data, shape, dtype = describe(tensor)
    return _native.submit_one(
        collective,
        name,
        set_id(process_set),
        op,
        0,
        prescale_factor,
        postscale_factor,
        data,
        shape,
        dtype,
        None,
        tensor,
        *place_of(tensor),
    )


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts an allgather. Arguments as for `allgather`; returns a handle."""
    return register(_start(_native.ALLGATHER, wire_name("allgather", name), process_set, tensor), taken_output)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a broadcast into a new tensor. Arguments as for `broadcast`; returns a handle."""
    work, output = start_broadcast(tensor, False, root_rank, name, process_set)
    return register(work, _returning(output))


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a broadcast in place. Arguments as for `broadcast`; returns a handle."""
    work, output = start_broadcast(tensor, True, root_rank, name, process_set)
    return register(work, _returning(output))


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Overwrites the tensor with the root's, and returns it. Arguments as for `broadcast`; not differentiable."""
    return run_broadcast(tensor, True, root_rank, name, process_set)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall. Arguments as for `alltoall`; the handle's result is always (output, received_splits)."""
    rows = None if splits is None else _listed_splits(splits)
    work = _native.submit(
        _native.ALLTOALL,
        wire_name("alltoall", name),
        set_id(process_set),
        Sum,
        0,
        1.0,
        1.0,
        [describe(tensor)],
        None,
        rows,
        tensor,
        *place_of(tensor),
    )
    return register(work, taken_output_and_splits)


def _listed_splits(splits: torch.Tensor | Sequence[int]) -> list[int]:
    if not isinstance(splits, torch.Tensor):
        return [int(rows) for rows in splits]
    if splits.dim() != 1 or splits.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"splits must be one-dimensional, int32 or int64; not {splits.dtype}, {tuple(splits.shape)}")
    return splits.tolist()


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter. Arguments as for `reducescatter`; returns a handle."""
    name = wire_name("reducescatter", name)
    op = resolve_op(op, None)
    work = _start(_native.REDUCESCATTER, name, process_set, tensor, op, prescale_factor, postscale_factor)
    return register(work, taken_output)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the process set have called it."""
    _native.submit(
        _native.BARRIER, None, set_id(process_set), Sum, 0, 1.0, 1.0, [], None, None, None, *CPU_PLACE
    ).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all ranks have said so.

    Until then the others' collectives go on without it. In reductions it stands for neutral elements (an average is
    divided by the number of all ranks, or with HVD_JOIN_DIVISOR=contributing of those that have not joined), and its
    slice of a reducescatter is dropped; to allgather and alltoall it brings no rows. What cannot do without it fails
    with HorovodInternalError on the others: a broadcast from it, an alltoall with rows for it, and a minimum, maximum
    or product with a prescale factor. What was started before is finished first.

    Args:
        device: as Horovod has it; only -1. A rank takes part in what GPUs do with the GPU of its own tensors.

    Returns:
        The rank that joined last.
    """
    if device != -1:
        raise ValueError("join takes no device: a rank takes part with the GPU of its own tensors; leave device out")
    work = _native.submit(_native.JOIN, None, 0, Sum, 0, 1.0, 1.0, [], None, None, None, *CPU_PLACE)
    work.wait()
    return work.last_joined()
