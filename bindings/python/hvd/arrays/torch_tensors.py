"""Tensors of PyTorch. Nothing here is differentiable; hvd.torch is."""

from __future__ import annotations

from typing import Any

import torch

from hvd import _native
from hvd.arrays.kinds import Kind, Memory
from hvd.torch.tensors import (
    CPU_PLACE,
    element_of,
    in_order_of_indices,
    is_plain,
    place_of,
    refuse_overlap,
    refuse_without_memory,
    taken_output,
    wait_for,
)


class _Tensors(Kind):
    def read(self, tensor: torch.Tensor) -> Memory:
        element = element_of(tensor.dtype)
        try:
            if tensor.layout is torch.strided and tensor.is_cpu and is_plain(tensor):
                return Memory(tensor.data_ptr(), tensor.shape, element, *CPU_PLACE, tensor)
        except RuntimeError:
            pass
        refuse_without_memory(tensor)
        kept = tensor if is_plain(tensor) else in_order_of_indices(tensor)
        return Memory(kept.data_ptr(), kept.shape, element, *place_of(kept), kept)

    def write(self, tensor: torch.Tensor) -> Memory:
        if is_plain(tensor):
            return self.read(tensor)
        refuse_overlap(tensor)
        room = self.read(torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device))
        return room._replace(finish=lambda: self.copy(tensor, room.owner))

    def new(self, tensor: torch.Tensor, given: Memory) -> Memory:
        return self.write(torch.empty_like(tensor, requires_grad=False))

    def take(self, tensor: torch.Tensor, given: Memory, work: _native.Work, index: int) -> torch.Tensor:
        return taken_output(work, tensor, index)

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
