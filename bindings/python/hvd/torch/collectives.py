"""Collectives on torch tensors: the asynchronous and the in-place forms.

Common to all of them:

- Every rank of the process set must call, with the same name, dtype, reduce operation and scale factors. Shapes must be
  equal too, except where a function says otherwise. Ranks may call in different orders if the operations have names;
  unnamed ones are numbered per process set, and must be called in the same order on all ranks. `allreduce_` is the
  exception: it is not numbered, a loop of it has one name, and without a name it only matches itself on other ranks.
- Tensors are on the CPU or a GPU (with NCCL; docs/errors.md has what that cannot do), of uint8, int8, int16, int32,
  int64, float16, bfloat16, float32, float64, bool (only Min and Max) or complex numbers (only Average and Sum);
  what only moves (allgather, broadcast, alltoall) also of uint16, uint32, uint64, float8 and other dtypes of
  whole bytes. On the CPU integers are scaled in double precision and truncated, and 16-bit floats summed in float32 and
  rounded once. docs/pytorch.md has what is refused.
- Tensors may have any strides; those that are not contiguous are copied before they are sent. A result of the same
  shape has the memory format of the tensor given, and an in-place form writes to it, at the latest in `synchronize()`.
- Errors that this rank can see raise ValueError from the call itself: an unsupported tensor, a name that is in use, an
  uninitialised runtime; or TypeError: an argument that is no tensor, operation or process set where one is expected.
  Errors between ranks (a mismatch, a lost rank) raise HorovodInternalError when waiting.
- Asynchronous forms return a handle for `poll()` and `synchronize()`. Until then the tensors must not be touched. An
  operation that nobody waits for goes on, and its name is free again when it has ended; its result is dropped with the
  handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.compiler import is_compiling

from hvd import _native, arguments
from hvd._native import OperationSpec
from hvd.arguments import outputs_apart
from hvd.arguments import process_set_number as set_id
from hvd.exceptions import NoRowsError
from hvd.handles import Finish, register
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, Sum, resolve_op
from hvd.specs import Description, find_group_spec, find_spec, make_spec, wire_name
from hvd.torch.tensors import (
    CPU_PLACE,
    delivered,
    describe,
    place_of,
    refuse_overlap,
    taken_output,
    taken_output_and_splits,
    taken_outputs,
    wait_for,
)

# As submit() and run() take it.
Call = tuple[OperationSpec, Sequence[int], Any, object, int]


def _prepare(
    collective: int,
    function: str,
    name: str | None,
    tensor: torch.Tensor,
    in_place: bool,
    process_set: ProcessSet,
    op: int = Sum,
    root_rank: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tuple[Call, torch.Tensor]:
    """The arguments of submit() and run(), and the tensor that will hold the result: see delivered()."""
    sent, address, description = describe(tensor, collective, op)
    device, stream = CPU_PLACE if sent.is_cpu else place_of(sent)
    spec = find_spec(
        collective,
        function,
        name,
        set_id(process_set),
        description,
        op,
        root_rank,
        prescale_factor,
        postscale_factor,
        device,
    )
    addresses = (address,)
    if in_place or sent is not tensor:
        if sent is not tensor and in_place:
            refuse_overlap(tensor)
        return (spec, addresses, addresses, sent, stream), sent
    output = torch.empty_like(tensor)
    return (spec, addresses, (output.data_ptr(),), (sent, output), stream), output


def allreduce_call(
    tensor: torch.Tensor,
    in_place: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> tuple[Call, torch.Tensor]:
    """The arguments of submit() and run(), and the tensor that will hold the result."""
    return _prepare(
        _native.ALLREDUCE, "allreduce", name, tensor, in_place, process_set, op, 0, prescale_factor, postscale_factor
    )


def run_allreduce(
    tensor: torch.Tensor,
    in_place: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> torch.Tensor:
    """Performs it: on this thread where that is possible, without handing anything over."""
    # As allreduce_call: one more call of Python is a twentieth of a small operation.
    call, output = _prepare(
        _native.ALLREDUCE, "allreduce", name, tensor, in_place, process_set, op, 0, prescale_factor, postscale_factor
    )
    _native.run(*call)
    return tensor if output is tensor else delivered(output, tensor, in_place)


def grouped_allreduce_call(
    tensors: Sequence[torch.Tensor],
    in_place: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> tuple[Call, list[torch.Tensor]]:
    """As allreduce_call, for several tensors that become ready as one."""
    described = _described(tensors, _native.ALLREDUCE, op)
    sent = outputs = described[0]
    if in_place:
        outputs_apart(tensors, ((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.is_contiguous()))
        for kept, tensor in zip(sent, tensors):
            if kept is not tensor:
                refuse_overlap(tensor)
    else:
        outputs = [kept if kept is not tensor else torch.empty_like(kept) for kept, tensor in zip(sent, tensors)]
    factors = prescale_factor, postscale_factor
    return _group_call(
        _native.ALLREDUCE, "grouped_allreduce", name, process_set, described, outputs, op, *factors
    ), outputs


def perform(call: Call, name: str | None) -> None:
    """Starts an operation with outputs and waits: on this thread where that is possible, without handing it over.
    Without a name it is numbered as those of submit(), so that a disagreement about which it is comes to light."""
    spec = call[0]
    if name is not None:
        _native.run(*call)
    elif spec.device < 0:
        (work,) = _native.run_all([call])
        work.wait()
    else:
        wait_for(_native.submit(*call))


_Described = tuple[list[torch.Tensor], list[int], tuple[Description, ...]]  # to send, their addresses, descriptions


def _described(tensors: Sequence[torch.Tensor], collective: int, op: int) -> _Described:
    described = [describe(tensor, collective, op) for tensor in tensors]
    sent, addresses = [sent for sent, _, _ in described], [address for _, address, _ in described]
    return sent, addresses, tuple([description for _, _, description in described])


def _group_call(
    collective: int,
    function: str,
    name: str | None,
    process_set: ProcessSet,
    described: _Described,
    outputs: list[torch.Tensor] | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
) -> Call:
    sent, addresses, descriptions = described
    device, stream = place_of(sent[0]) if sent else CPU_PLACE
    if any(tensor.device != sent[0].device for tensor in sent):
        raise ValueError(arguments.on_several_devices(function, "tensors", (tensor.device for tensor in sent)))
    number = set_id(process_set)
    factors = prescale_factor, postscale_factor
    spec = find_group_spec(collective, function, name, number, descriptions, op, *factors, device)
    if outputs is None or outputs is sent:
        return spec, addresses, None if outputs is None else addresses, sent, stream
    return spec, addresses, [output.data_ptr() for output in outputs], (sent, outputs), stream


def run_grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    in_place: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    """As run_allreduce, for several tensors."""
    factors = prescale_factor, postscale_factor
    call, outputs = grouped_allreduce_call(tensors, in_place, name, op, *factors, process_set)
    perform(call, name)
    return delivered_group(outputs, tensors, in_place)


def start_broadcast(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: str | None, process_set: ProcessSet
) -> tuple[_native.Work, torch.Tensor]:
    """The operation, and the tensor that will hold its result."""
    call, output = _prepare(_native.BROADCAST, "broadcast", name, tensor, in_place, process_set, Sum, root_rank)
    return _native.submit(*call), output


def run_broadcast(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: str | None, process_set: ProcessSet
) -> torch.Tensor:
    """As start_broadcast, and waits: see perform()."""
    call, output = _prepare(_native.BROADCAST, "broadcast", name, tensor, in_place, process_set, Sum, root_rank)
    perform(call, name)
    return delivered(output, tensor, in_place)


def _delivering(output: torch.Tensor, given: torch.Tensor, in_place: bool) -> Finish:
    return lambda _: delivered(output, given, in_place)


def delivered_group(
    outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor], in_place: bool
) -> list[torch.Tensor]:
    return [delivered(output, tensor, in_place) for output, tensor in zip(outputs, given)]


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
    call, output = allreduce_call(tensor, False, name, op, prescale_factor, postscale_factor, process_set)
    return register(_native.submit(*call), wait_for, _delivering(output, tensor, False))


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
    call, output = allreduce_call(tensor, True, name, op, prescale_factor, postscale_factor, process_set)
    return register(_native.submit(*call), wait_for, _delivering(output, tensor, True))


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
    if op is None or average is not None:
        op = resolve_op(op, average)
    if is_compiling():
        torch.ops.hvd.allreduce_(tensor, name, op, prescale_factor, postscale_factor, set_id(process_set))
        return tensor
    call, output = _prepare(
        _native.ALLREDUCE, "allreduce", name, tensor, True, process_set, op, 0, prescale_factor, postscale_factor
    )
    _native.run(*call)
    return tensor if output is tensor else delivered(output, tensor, True)


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
    op, tensors = resolve_op(op, average), list(tensors)
    call, outputs = grouped_allreduce_call(tensors, False, name, op, prescale_factor, postscale_factor, process_set)
    return register(_native.submit(*call), wait_for, lambda _: delivered_group(outputs, tensors, False))


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
    op, tensors = resolve_op(op, average), list(tensors)
    call, outputs = grouped_allreduce_call(tensors, True, name, op, prescale_factor, postscale_factor, process_set)
    return register(_native.submit(*call), wait_for, lambda _: delivered_group(outputs, tensors, True))


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
    op, tensors = resolve_op(op, average), list(tensors)
    if is_compiling():
        factors = prescale_factor, postscale_factor
        torch.ops.hvd.grouped_allreduce_(tensors, name, op, *factors, set_id(process_set))
        return tensors
    return run_grouped_allreduce(tensors, True, name, op, prescale_factor, postscale_factor, process_set)


def _require_rows(tensor: torch.Tensor) -> None:
    if isinstance(tensor, torch.Tensor) and tensor.dim() == 0:
        raise NoRowsError("a tensor with at least one dimension is needed: a scalar has no rows")


def start_group(
    collective: int,
    function: str,
    name: str | None,
    process_set: ProcessSet,
    tensors: Sequence[torch.Tensor],
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> _native.Work:
    """Starts a collective of rows of tensors that become ready as one; the runtime provides the outputs. On the wire it
    is `function`.`name`."""
    for tensor in tensors:
        _require_rows(tensor)
    described = _described(tensors, collective, op)
    factors = prescale_factor, postscale_factor
    return _native.submit(*_group_call(collective, function, name, process_set, described, None, op, *factors))


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts an allgather. Arguments as for `allgather`; returns a handle."""
    work = start_group(_native.ALLGATHER, "allgather", name, process_set, [tensor])
    return register(work, wait_for, lambda work: taken_output(work, tensor))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts an allgather of several tensors. Arguments as for `grouped_allgather`; returns a handle."""
    tensors = list(tensors)
    work = start_group(_native.ALLGATHER, "grouped_allgather", name, process_set, tensors)
    return register(work, wait_for, lambda work: taken_outputs(work, tensors))


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a broadcast into a new tensor. Arguments as for `broadcast`; returns a handle."""
    work, output = start_broadcast(tensor, False, root_rank, name, process_set)
    return register(work, wait_for, _delivering(output, tensor, False))


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a broadcast in place. Arguments as for `broadcast`; returns a handle."""
    work, output = start_broadcast(tensor, True, root_rank, name, process_set)
    return register(work, wait_for, _delivering(output, tensor, True))


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Overwrites the tensor with the root's, and returns it. Arguments as for `broadcast`; not differentiable."""
    if is_compiling():
        torch.ops.hvd.broadcast_(tensor, root_rank, name, set_id(process_set))
        return tensor
    return run_broadcast(tensor, True, root_rank, name, process_set)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall. Arguments as for `alltoall`; the handle's result is always (output, received_splits)."""
    _require_rows(tensor)
    rows = None if splits is None else _listed_splits(splits)
    sent, address, description = describe(tensor, _native.ALLTOALL, Sum)
    device, stream = place_of(sent)
    name = wire_name("alltoall", name)
    spec = make_spec(_native.ALLTOALL, name, set_id(process_set), [description], splits=rows, device=device)
    work = _native.submit(spec, [address], None, sent, stream)
    return register(work, wait_for, lambda work: taken_output_and_splits(work, tensor, splits))


def _listed_splits(splits: torch.Tensor | Sequence[int]) -> list[int]:
    if not isinstance(splits, torch.Tensor):
        return arguments.rows(splits, "splits")
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
    op = resolve_op(op, None)
    factors = prescale_factor, postscale_factor
    work = start_group(_native.REDUCESCATTER, "reducescatter", name, process_set, [tensor], op, *factors)
    return register(work, wait_for, lambda work: taken_output(work, tensor))


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter of several tensors. Arguments as for `grouped_reducescatter`; returns a handle."""
    op, tensors = resolve_op(op, None), list(tensors)
    factors = prescale_factor, postscale_factor
    work = start_group(_native.REDUCESCATTER, "grouped_reducescatter", name, process_set, tensors, op, *factors)
    return register(work, wait_for, lambda work: taken_outputs(work, tensors))
