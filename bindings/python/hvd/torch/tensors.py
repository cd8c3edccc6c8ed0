"""What the runtime needs to know of a torch tensor, and tensors made of what it returns.

Nothing in hvd is compiled against torch: memory goes out as an address and comes back through DLPack.
"""

from __future__ import annotations

import torch

from hvd import _native

if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
    raise ImportError(f"hvd.torch needs PyTorch 2.1 or newer; this is {torch.__version__}")

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
}
CODE_OF_DTYPE.update(  # PyTorch has them from 2.3 on
    (getattr(torch, name), getattr(_native, name.upper()))
    for name in ("uint16", "uint32", "uint64")
    if hasattr(torch, name)
)

Description = tuple[tuple[int, ...], int]  # shape and type code, as of hvd.specs


def describe(tensor: torch.Tensor) -> tuple[torch.Tensor, Description]:
    """The tensor whose memory the runtime is to use, and its description.

    It is the one given if that is contiguous, else a copy of it in row-major order: what is sent are the elements in
    the order of their indices, so that ranks with other strides (channels_last) agree.

    Raises:
        TypeError: no tensor.
        ValueError: one of a dtype, layout or device that is not supported.
    """
    try:
        if (tensor.is_cpu or tensor.is_cuda) and tensor.is_contiguous() and not tensor.is_neg():
            return tensor, (tensor.shape, CODE_OF_DTYPE[tensor.dtype])
    except (AttributeError, KeyError, RuntimeError):
        pass
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a torch.Tensor is needed, not {type(tensor).__name__}")
    wrong = _what_is_wrong_with(tensor)
    if wrong:
        raise ValueError(wrong)
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())
    return copy, (copy.shape, CODE_OF_DTYPE[copy.dtype])


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


def _what_is_wrong_with(tensor: torch.Tensor) -> str | None:
    if tensor.layout is not torch.strided:
        return f"sparse tensors ({tensor.layout}) are not supported: use sparse_allreduce_async() or to_dense()"
    if tensor.dtype not in CODE_OF_DTYPE:
        return f"tensors of {tensor.dtype} are not supported"
    if not (tensor.is_cpu or tensor.is_cuda):
        return f"tensors on {tensor.device} are not supported"
    return None


def taken_output(work: _native.Work) -> torch.Tensor:
    """The result of a finished operation to which the caller gave no output."""
    return torch.utils.dlpack.from_dlpack(work.output(0))


def taken_outputs(work: _native.Work, number: int) -> list[torch.Tensor]:
    """The results of a finished operation on that many tensors."""
    return [torch.utils.dlpack.from_dlpack(work.output(i)) for i in range(number)]


def taken_output_and_splits(work: _native.Work) -> tuple[torch.Tensor, torch.Tensor]:
    """The result of a finished alltoall, and the number of rows received from each rank (int32)."""
    return taken_output(work), torch.tensor(work.received_splits(), dtype=torch.int32)
