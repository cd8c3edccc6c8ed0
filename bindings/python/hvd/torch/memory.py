"""Tensors in the memory that the ranks of a host share.

Where the tensors of an allreduce lie there on every rank, the ranks add them up in place: two passes over the data
instead of five, and nothing is packed. Such a tensor is used like any other. Each rank makes its own; no other has to
call. Where no memory is shared (one rank on a host, HVD_SHARED_MEMORY=0) it is ordinary memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from hvd import _native
from hvd.torch.tensors import element_of, with_dtype

_ALIGNMENT = 128  # bytes; where each view of a bucket begins


def empty(*size: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """An uninitialised contiguous CPU tensor in shared memory, as `torch.empty` makes one in ordinary memory.

    Local; needs an initialised runtime. The memory goes back when the last tensor on it is gone, and stays valid after
    `shutdown()`. A process forked from this one shares it and must not write to it.

    Args:
        size: the shape, as numbers or as one sequence.
        dtype: any type that collectives support; None: torch's default.

    Raises:
        ValueError: not initialised, a type that is not supported, or no room (HVD_ARENA_LIMIT).
    """
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)  # type: ignore[arg-type]
    dtype = torch.get_default_dtype() if dtype is None else dtype
    element = element_of(dtype)
    if any(dimension < 0 for dimension in shape):
        raise ValueError(f"size is {tuple(shape)}: a dimension cannot be negative")
    if shape.numel() == 0:
        return torch.empty(shape, dtype=dtype)
    capsule = _native.empty(tuple(shape) + element.trailing, element.code, shape.numel() * element.bytes)
    return with_dtype(torch.utils.dlpack.from_dlpack(capsule), dtype, len(shape))


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """`empty` with the shape and dtype of a tensor."""
    return empty(tensor.shape, dtype=tensor.dtype)


def bucket_views(tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """One tensor in shared memory, and views of it with the shapes of the given tensors, one behind the other.

    For gradients that are reduced together: `hvd.allreduce_(bucket)` reduces all views at once, without packing. Each
    view begins at a multiple of 128 bytes; what lies between is zero.

    Args:
        tensors: of one dtype, which is the bucket's. Only their shapes matter; nothing is copied.

    Returns:
        The bucket (one dimension, all zero) and the views, in the order of the tensors.

    Raises:
        ValueError: no tensors, or of several dtypes; and as `empty`.
    """
    likes = list(tensors)
    dtypes = {like.dtype for like in likes}
    if not likes:
        raise ValueError("a bucket needs at least one tensor, and tensors is empty")
    if len(dtypes) != 1:
        names = ", ".join(sorted(map(str, dtypes)))
        raise ValueError(f"a bucket has one dtype, but the tensors have {names}: make a bucket for each")
    (dtype,) = dtypes
    step = _ALIGNMENT // dtype.itemsize
    starts = [0]
    for like in likes:
        starts.append(starts[-1] + -(-like.numel() // step) * step)
    bucket = empty(starts[-1], dtype=dtype).zero_()
    views = [bucket[start : start + like.numel()].view(like.shape) for start, like in zip(starts, likes)]
    return bucket, views


def arena_usage() -> dict[str, int]:
    """Bytes of shared memory of this rank: "limit" (HVD_ARENA_LIMIT; 0 where nothing is shared), "used" and "peak"."""
    return dict(zip(("limit", "used", "peak"), _native.arena_usage()))
