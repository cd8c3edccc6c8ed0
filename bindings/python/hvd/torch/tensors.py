"""What the runtime needs to know of a torch tensor, and tensors made of what it returns.

Nothing in hvd is compiled against torch: memory goes out as an address and comes back through DLPack.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hvd import _native
from hvd.arrays.elements import ElementType, element_type
from hvd.specs import Description

if not hasattr(torch.library, "register_autograd"):
    raise ImportError(f"hvd.torch needs PyTorch 2.4 or newer; this is {torch.__version__}: pip install -U torch")

CODE_OF_DTYPE: dict[torch.dtype, int] = {
    torch.uint8: _native.UINT8,
    torch.int8: _native.INT8,
    torch.int16: _native.INT16,
    torch.int32: _native.INT32,
    torch.int64: _native.INT64,
    torch.float16: _native.FLOAT16,
    torch.bfloat16: _native.BFLOAT16,
    torch.float32: _native.FLOAT32,
    torch.float64: _native.FLOAT64,
    torch.bool: _native.BOOL,
    torch.uint16: _native.UINT16,
    torch.uint32: _native.UINT32,
    torch.uint64: _native.UINT64,
}

# All other dtypes have no code of their own: see element_of().

_REDUCTIONS = {_native.ALLREDUCE: "allreduce", _native.REDUCESCATTER: "reducescatter"}
_STRIDED = torch.strided
_elements: dict[torch.dtype, ElementType] = {}


def element_of(dtype: torch.dtype) -> ElementType:
    """How the runtime takes elements of a dtype: complex numbers as pairs, float8 as integers that only move.
    ValueError for quantized ones, which are numbers only together with their tensor's scale."""
    found = _elements.get(dtype)
    if found is None:
        name = str(dtype).partition(".")[2]
        if name.startswith(("qint", "quint")):
            raise ValueError(
                f"quantized tensors ({dtype}) are not supported: use dequantize(), or int_repr() to move them"
            )
        found = _elements[dtype] = element_type(name, dtype.itemsize)
    return found


def describe(tensor: torch.Tensor, collective: int, op: int) -> tuple[torch.Tensor, int, Description]:
    """The tensor whose memory the runtime is to use, its address, and its description.

    It is the one given if that is contiguous, else a copy of it in row-major order: what is sent are the elements in
    the order of their indices, so that ranks with other strides (channels_last) agree.

    Raises:
        TypeError: no tensor.
        ValueError: one of a dtype, layout or device that is not supported, or not by this collective and operation.
    """
    try:
        if (tensor.is_cpu or tensor.is_cuda) and tensor.is_contiguous() and not tensor.is_neg():
            address = tensor.data_ptr()
            if address or tensor.layout is _STRIDED:  # tensors of other layouts have none, or raise
                return tensor, address, (tensor.shape, CODE_OF_DTYPE[tensor.dtype])
    except (AttributeError, KeyError, RuntimeError):
        pass
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a torch.Tensor is needed, not {type(tensor).__name__}")
    refuse_without_memory(tensor)
    element = element_of(tensor.dtype)
    if collective in _REDUCTIONS:
        element.require_reducible(_REDUCTIONS[collective], op)
    sent = tensor if is_plain(tensor) else in_order_of_indices(tensor)
    return sent, sent.data_ptr(), (tuple(sent.shape) + element.trailing, element.code)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the elements lie in memory as they are, in the order of their indices."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def in_order_of_indices(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy without a graph, of what a conjugated or negated view stands for."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def refuse_overlap(tensor: torch.Tensor) -> None:
    """ValueError if elements share their memory (an expanded tensor), so that it cannot hold a result."""
    if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride())):
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} cannot hold a result: its elements "
            "share memory; use contiguous()"
        )


def delivered(received: torch.Tensor, given: torch.Tensor, in_place: bool) -> torch.Tensor:
    """The result as the caller is to have it: in the tensor given, or in a new one with its memory format."""
    if received is given:
        return given
    with torch.no_grad():
        if in_place:
            given.copy_(received)
            return given
        if given.is_contiguous():
            return received
        return torch.empty_like(given, requires_grad=False).copy_(received)


CPU_PLACE = (-1, 0)


def place_of(tensor: torch.Tensor) -> tuple[int, int]:
    """The tensor's GPU, and the stream in which it becomes ready: the current one. CPU_PLACE on the CPU."""
    if tensor.is_cpu:
        return CPU_PLACE
    device = tensor.device.index
    return device, torch.cuda.current_stream(device).cuda_stream


def wait_for(work: _native.Work) -> None:
    """Until the result may be used; on a GPU, by what comes next in the current stream: nobody waits for the GPU.

    Raises:
        HorovodInternalError: the operation failed.
    """
    if work.device < 0:
        work.wait()
    else:
        work.wait_on_stream(torch.cuda.current_stream(work.device).cuda_stream)


def refuse_without_memory(tensor: torch.Tensor) -> None:
    """ValueError, with what to do, for a tensor whose elements do not lie in a CPU's or GPU's memory one by one."""
    wrong = _what_is_wrong_with(tensor)
    if wrong is not None:
        raise ValueError(wrong)


def _what_is_wrong_with(tensor: torch.Tensor) -> str | None:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return (
            "within grad, vjp, jacrev and vmap of torch.func only waiting collectives with new results are supported, "
            "such as hvd.torch.allreduce: call others on what the transformed function returns"
        )
    if tensor.is_nested:
        return "nested tensors are not supported: send their values() and offsets(), or use to_padded_tensor()"
    if tensor.layout is torch.sparse_coo:
        return f"sparse tensors ({tensor.layout}) are not supported: use sparse_allreduce_async() or to_dense()"
    if tensor.layout is not torch.strided:
        also = ", or sparse_allreduce_async() of to_sparse_coo()" if "sparse" in str(tensor.layout) else ""
        return f"tensors of the layout {tensor.layout} are not supported: use to_dense(){also}"
    if not (tensor.is_cpu or tensor.is_cuda):
        return f"tensors on {tensor.device} are not supported: use to() with a CPU or a CUDA device"
    return None


def taken_output(work: _native.Work, given: torch.Tensor, index: int = 0) -> torch.Tensor:
    """The result of a finished operation on the tensor given, which had this index, and for which the runtime provided
    the output; of its dtype."""
    received: torch.Tensor = torch.utils.dlpack.from_dlpack(work.output(index))
    return with_dtype(received, given.dtype, given.dim())


def with_dtype(memory: torch.Tensor, dtype: torch.dtype, dimensions: int) -> torch.Tensor:
    """A view of what the runtime takes for elements of this dtype (see element_of) as a tensor of it."""
    if memory.dtype is dtype:
        return memory
    # A view of pairs as complex numbers has a last dimension of 1.
    return memory.view(dtype).reshape(memory.shape[:dimensions])


def taken_outputs(work: _native.Work, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """As taken_output, of a finished operation on these tensors."""
    return [taken_output(work, tensor, index) for index, tensor in enumerate(given)]


def taken_output_and_splits(
    work: _native.Work, given: torch.Tensor, splits: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result of a finished alltoall, and the number of rows received from each rank (int32), on the device of the
    splits that were given."""
    device = splits.device if isinstance(splits, torch.Tensor) else None
    return taken_output(work, given), torch.tensor(work.received_splits(), dtype=torch.int32, device=device)
