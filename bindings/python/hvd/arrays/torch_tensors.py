"""Tensors of PyTorch. Nothing here is differentiable; hvd.torch is."""

from __future__ import annotations

from typing import Any

import torch

from hvd import _native
from hvd.arrays.elements import ElementType, element_type
from hvd.arrays.kinds import Kind, Memory
from hvd.torch.tensors import place_of, refuse_overlap, wait_for

_types: dict[torch.dtype, ElementType] = {}


def _type_of(tensor: torch.Tensor) -> ElementType:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ValueError(f"tensors of {tensor.dtype} with the layout {tensor.layout} are not supported: use to_dense()")
    if not (tensor.is_cpu or tensor.is_cuda):
        raise ValueError(f"tensors on {tensor.device} are not supported")
    found = _types[tensor.dtype] = element_type(str(tensor.dtype).partition(".")[2], tensor.element_size())
    return found


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


class _Tensors(Kind):
    def read(self, tensor: torch.Tensor) -> Memory:
        # What has no memory of its own, is_contiguous() refuses.
        element = _types.get(tensor.dtype) if tensor.layout is torch.strided and tensor.is_cpu else None
        element = element or _type_of(tensor)
        if _is_plain(tensor):
            return Memory(tensor.data_ptr(), tensor.shape, element, *place_of(tensor), tensor)
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())
        return Memory(copy.data_ptr(), copy.shape, element, *place_of(copy), copy)

    def write(self, tensor: torch.Tensor) -> Memory:
        if _is_plain(tensor):
            return self.read(tensor)
        refuse_overlap(tensor)
        room = self.read(torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device))
        return room._replace(finish=lambda: self.copy(tensor, room.owner))

    def new(self, tensor: torch.Tensor, given: Memory) -> Memory:
        return self.write(torch.empty_like(tensor, requires_grad=False))

    def take(self, tensor: torch.Tensor, given: Memory, work: _native.Work, index: int) -> torch.Tensor:
        received: torch.Tensor = torch.utils.dlpack.from_dlpack(work.output(index))
        if received.dtype is tensor.dtype:
            return received
        # A view of pairs as complex numbers has a last dimension of 1.
        return received.view(tensor.dtype).reshape(received.shape[: len(given.shape)])

    def copy(self, target: torch.Tensor, source: Any) -> torch.Tensor:
        with torch.no_grad():
            return target.copy_(source)

    def integers(self, tensor: torch.Tensor, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    def wait(self, work: _native.Work) -> None:
        wait_for(work)


_TENSORS = _Tensors()


def kind_for(array: Any) -> Kind | None:
    return _TENSORS if isinstance(array, torch.Tensor) else None
