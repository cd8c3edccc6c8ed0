"""The collectives as operators of torch.library (torch.ops.hvd.*), for torch.compile: with shapes that are known
without running them, and with gradients. The functions of differentiable.py, and the waiting ones of collectives.py,
take these where they are being compiled, and not elsewhere, since an operator costs as much as a small allreduce.

A compiled function runs its collectives in the order of its graph, which is the same on all ranks that compile the same
code; those without a name are numbered then, per process set, as elsewhere. A shape may depend on the rank's place in
its process set, and must not depend on the other ranks' data: allgather and alltoall need as many rows on every rank,
and raise ValueError where there are others. They can be differentiated once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hvd import _native
from hvd import process_set as sets
from hvd.handles import synchronize
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, Sum
from hvd.torch import collectives

_library = torch.library.Library("hvd", "DEF")
_DEVICES = ("CPU", "CUDA")


def _set_of(number: int) -> ProcessSet:
    if number == 0:
        return global_process_set
    found = next((one for one in sets._registered if one.process_set_id == number), None)
    if found is None:
        raise ValueError(
            f"a compiled function uses process set {number}, which is not registered any more: call "
            "torch.compiler.reset(), and compile it with a set that is"
        )
    return found


def _size(number: int) -> int:
    return _set_of(number).size() or 1


def _define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = schema.partition("(")[0]
    _library.define(schema)
    for device in _DEVICES:
        _library.impl(name, run, device)
    torch.library.register_fake(f"hvd::{name}", fake, lib=_library)


def _differentiate(name: str, backward: Callable[..., Any], setup: Callable[..., Any]) -> None:
    torch.library.register_autograd(f"hvd::{name}", backward, setup_context=setup, lib=_library)


def _has_no_gradient(gradient: torch.Tensor) -> torch.Tensor:
    """An operator, so that a backward pass is refused when it is run, and not when it is compiled."""
    raise NotImplementedError("only averages and sums have a gradient that is a collective; detach() the input")


def _same_shape(tensor: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


_define("no_gradient(Tensor gradient) -> Tensor", _has_no_gradient, _same_shape)


# allreduce: the gradient is reduced in the same way.


def _run_allreduce(
    tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float, number: int
) -> torch.Tensor:
    arguments = (tensor.contiguous(), False, name, op, prescale, postscale, _set_of(number))
    if name is not None:
        return collectives.run_allreduce(*arguments)
    call, output = collectives.allreduce_call(*arguments)
    collectives.perform(call, name)  # numbered, as hvd.allreduce is
    return output


def _keep_allreduce(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.arguments = inputs[2:]


def _allreduce_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    linear = ctx.arguments[0] in (Average, Sum)
    reduced = torch.ops.hvd.allreduce(gradient, None, *ctx.arguments) if linear else torch.ops.hvd.no_gradient(gradient)
    return reduced, None, None, None, None, None


_define(
    "allreduce(Tensor tensor, str? name, int op, float prescale, float postscale, int process_set) -> Tensor",
    _run_allreduce,
    _same_shape,
)
_differentiate("allreduce", _allreduce_backward, _keep_allreduce)


def _run_allreduce_in_place(
    tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float, number: int
) -> None:
    collectives.run_allreduce(tensor, True, name, op, prescale, postscale, _set_of(number))


def _nothing(*_: object) -> None:
    return None


_define(
    "allreduce_(Tensor(a!) tensor, str? name, int op, float prescale, float postscale, int process_set) -> ()",
    _run_allreduce_in_place,
    _nothing,
)


def _run_grouped_allreduce(
    tensors: list[torch.Tensor], name: str | None, op: int, prescale: float, postscale: float, number: int
) -> list[torch.Tensor]:
    rows = [tensor.contiguous() for tensor in tensors]
    return collectives.run_grouped_allreduce(rows, False, name, op, prescale, postscale, _set_of(number))


def _same_shapes(tensors: list[torch.Tensor], *_: object) -> list[torch.Tensor]:
    return [_same_shape(tensor) for tensor in tensors]


def _grouped_allreduce_backward(ctx: Any, gradients: list[torch.Tensor]) -> tuple[list[torch.Tensor] | None, ...]:
    if ctx.arguments[0] in (Average, Sum):
        reduced = torch.ops.hvd.grouped_allreduce(gradients, None, *ctx.arguments)
    else:
        reduced = [torch.ops.hvd.no_gradient(gradient) for gradient in gradients]
    return reduced, None, None, None, None, None


_define(
    "grouped_allreduce(Tensor[] tensors, str? name, int op, float prescale, float postscale, int process_set)"
    " -> Tensor[]",
    _run_grouped_allreduce,
    _same_shapes,
)
_differentiate("grouped_allreduce", _grouped_allreduce_backward, _keep_allreduce)


def _run_grouped_allreduce_in_place(
    tensors: list[torch.Tensor], name: str | None, op: int, prescale: float, postscale: float, number: int
) -> None:
    collectives.run_grouped_allreduce(tensors, True, name, op, prescale, postscale, _set_of(number))


_define(
    "grouped_allreduce_(Tensor(a!)[] tensors, str? name, int op, float prescale, float postscale, int process_set)"
    " -> ()",
    _run_grouped_allreduce_in_place,
    _nothing,
)

# allgather: each rank's rows of the average.


def _run_allgather(tensor: torch.Tensor, name: str | None, number: int) -> torch.Tensor:
    gathered = synchronize(collectives.allgather_async(tensor.contiguous(), name, _set_of(number)))
    return _with_rows(gathered, tensor.shape[0] * _size(number), "allgather")


def _with_rows(output: torch.Tensor, rows: int, what: str) -> torch.Tensor:
    if output.shape[0] != rows:
        raise ValueError(
            f"{what} within torch.compile needs as many rows on every rank: {output.shape[0]} came where {rows} should "
            "have; exclude the call with torch.compiler.disable"
        )
    return output


def _gathered_shape(tensor: torch.Tensor, name: str | None, number: int) -> torch.Tensor:
    return tensor.new_empty((tensor.shape[0] * _size(number), *tensor.shape[1:]))


def _keep_allgather(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.rows, ctx.number = inputs[0].shape[0], inputs[2]


def _allgather_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    average = torch.ops.hvd.allreduce(gradient, None, Average, 1.0, 1.0, ctx.number)
    return average.narrow(0, ctx.rows * (_set_of(ctx.number).rank() or 0), ctx.rows), None, None


_define("allgather(Tensor tensor, str? name, int process_set) -> Tensor", _run_allgather, _gathered_shape)
_differentiate("allgather", _allgather_backward, _keep_allgather)


def _run_grouped_allgather(tensors: list[torch.Tensor], name: str | None, number: int) -> list[torch.Tensor]:
    rows = [tensor.contiguous() for tensor in tensors]
    gathered = synchronize(collectives.grouped_allgather_async(rows, name, _set_of(number)))
    whole = zip(gathered, tensors)
    return [_with_rows(output, tensor.shape[0] * _size(number), "grouped_allgather") for output, tensor in whole]


def _gathered_shapes(tensors: list[torch.Tensor], name: str | None, number: int) -> list[torch.Tensor]:
    return [_gathered_shape(tensor, name, number) for tensor in tensors]


def _keep_grouped_allgather(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    ctx.rows, ctx.number = [tensor.shape[0] for tensor in inputs[0]], inputs[2]


def _grouped_allgather_backward(ctx: Any, gradients: list[torch.Tensor]) -> tuple[list[torch.Tensor] | None, ...]:
    averages = torch.ops.hvd.grouped_allreduce(gradients, None, Average, 1.0, 1.0, ctx.number)
    rank = _set_of(ctx.number).rank() or 0
    return [average.narrow(0, rows * rank, rows) for average, rows in zip(averages, ctx.rows)], None, None


_define(
    "grouped_allgather(Tensor[] tensors, str? name, int process_set) -> Tensor[]",
    _run_grouped_allgather,
    _gathered_shapes,
)
_differentiate("grouped_allgather", _grouped_allgather_backward, _keep_grouped_allgather)


# broadcast: the root gets the average, the others nothing.


def _run_broadcast(tensor: torch.Tensor, root_rank: int, name: str | None, number: int) -> torch.Tensor:
    return collectives.run_broadcast(tensor.contiguous(), False, root_rank, name, _set_of(number))


def _keep_broadcast(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.root_rank, ctx.number = inputs[1], inputs[3]


def _broadcast_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return torch.ops.hvd.broadcast_backward(gradient, ctx.root_rank, ctx.number), None, None, None


def _run_broadcast_backward(gradient: torch.Tensor, root_rank: int, number: int) -> torch.Tensor:
    """One operator, so that no compiler finds the other ranks' average unused and leaves out their part."""
    average = _run_allreduce(gradient, None, Average, 1.0, 1.0, number)
    return average if _native.rank() == root_rank else average.zero_()


_define(
    "broadcast_backward(Tensor gradient, int root_rank, int process_set) -> Tensor",
    _run_broadcast_backward,
    _same_shape,
)
_define("broadcast(Tensor tensor, int root_rank, str? name, int process_set) -> Tensor", _run_broadcast, _same_shape)
_differentiate("broadcast", _broadcast_backward, _keep_broadcast)


def _run_broadcast_in_place(tensor: torch.Tensor, root_rank: int, name: str | None, number: int) -> None:
    collectives.run_broadcast(tensor, True, root_rank, name, _set_of(number))


_define(
    "broadcast_(Tensor(a!) tensor, int root_rank, str? name, int process_set) -> ()", _run_broadcast_in_place, _nothing
)


# reducescatter: the gradients of all rows, gathered.


def _run_reducescatter(
    tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float, number: int
) -> torch.Tensor:
    arguments = (name, op, _set_of(number), prescale, postscale)
    return synchronize(collectives.reducescatter_async(tensor.contiguous(), *arguments))


def _scattered_shape(
    tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float, number: int
) -> torch.Tensor:
    size, rank = _size(number), _set_of(number).rank() or 0
    return tensor.new_empty(((tensor.shape[0] + size - 1 - rank) // size, *tensor.shape[1:]))


def _keep_reducescatter(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    tensor, _, ctx.op, prescale, postscale, ctx.number = inputs
    ctx.rows, ctx.scale = tensor.shape[0], prescale * postscale


def _reducescatter_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    if ctx.op not in (Average, Sum):
        gradient = torch.ops.hvd.no_gradient(gradient)
    scale = ctx.scale * (_size(ctx.number) if ctx.op == Sum else 1)
    gathered = torch.ops.hvd.allgather_rows(gradient * scale, ctx.rows, ctx.number)
    return gathered, None, None, None, None, None


def _run_allgather_rows(tensor: torch.Tensor, rows: int, number: int) -> torch.Tensor:
    gathered = synchronize(collectives.allgather_async(tensor.contiguous(), None, _set_of(number)))
    if gathered.shape[0] != rows:
        raise RuntimeError(
            "a rank has joined between a reducescatter that it took part in and its backward pass: call join() after "
            "the last backward pass"
        )
    return gathered


def _shape_of_rows(tensor: torch.Tensor, rows: int, number: int) -> torch.Tensor:
    return tensor.new_empty((rows, *tensor.shape[1:]))


_define("allgather_rows(Tensor tensor, SymInt rows, int process_set) -> Tensor", _run_allgather_rows, _shape_of_rows)
_define(
    "reducescatter(Tensor tensor, str? name, int op, float prescale, float postscale, int process_set) -> Tensor",
    _run_reducescatter,
    _scattered_shape,
)
_differentiate("reducescatter", _reducescatter_backward, _keep_reducescatter)


def _run_grouped_reducescatter(
    tensors: list[torch.Tensor], name: str | None, op: int, prescale: float, postscale: float, number: int
) -> list[torch.Tensor]:
    rows = [tensor.contiguous() for tensor in tensors]
    arguments = (name, op, _set_of(number), prescale, postscale)
    parts: list[torch.Tensor] = synchronize(collectives.grouped_reducescatter_async(rows, *arguments))
    return parts


def _scattered_shapes(tensors: list[torch.Tensor], *arguments: Any) -> list[torch.Tensor]:
    return [_scattered_shape(tensor, *arguments) for tensor in tensors]


def _keep_grouped_reducescatter(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    tensors, _, ctx.op, prescale, postscale, ctx.number = inputs
    ctx.rows, ctx.scale = [tensor.shape[0] for tensor in tensors], prescale * postscale


def _grouped_reducescatter_backward(ctx: Any, gradients: list[torch.Tensor]) -> tuple[list[torch.Tensor] | None, ...]:
    if ctx.op not in (Average, Sum):
        gradients = [torch.ops.hvd.no_gradient(gradient) for gradient in gradients]
    scale = ctx.scale * (_size(ctx.number) if ctx.op == Sum else 1)
    gathered = [
        torch.ops.hvd.allgather_rows(gradient * scale, rows, ctx.number) for gradient, rows in zip(gradients, ctx.rows)
    ]
    return gathered, None, None, None, None, None


_define(
    "grouped_reducescatter(Tensor[] tensors, str? name, int op, float prescale, float postscale, int process_set)"
    " -> Tensor[]",
    _run_grouped_reducescatter,
    _scattered_shapes,
)
_differentiate("grouped_reducescatter", _grouped_reducescatter_backward, _keep_grouped_reducescatter)


# alltoall in equal parts: the gradients travel back.


def _run_alltoall(tensor: torch.Tensor, name: str | None, number: int) -> torch.Tensor:
    output, _ = synchronize(collectives.alltoall_async(tensor.contiguous(), None, name, _set_of(number)))
    return _with_rows(output, tensor.shape[0], "alltoall")


def _keep_alltoall(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.number = inputs[2]


def _alltoall_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return torch.ops.hvd.alltoall(gradient, None, ctx.number), None, None


_define("alltoall(Tensor tensor, str? name, int process_set) -> Tensor", _run_alltoall, _same_shape)
_differentiate("alltoall", _alltoall_backward, _keep_alltoall)
