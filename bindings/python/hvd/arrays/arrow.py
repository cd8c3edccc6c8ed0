"""Arrays of Arrow: numbers without nulls, and buffers. They cannot be changed, so results are new ones."""

from __future__ import annotations

from typing import Any

import pyarrow

from hvd import _native
from hvd.arrays.buffers import kind_for as buffer_kind_for
from hvd.arrays.dlpack import Exported, ImmutableArrays
from hvd.arrays.kinds import Kind


class _Arrays(ImmutableArrays):
    def _made(self, array: Any, exported: Exported) -> Any:
        tensor = _native.ManagedTensor(exported.__dlpack__())
        return pyarrow.Array.from_buffers(array.type, tensor.shape[0], [None, pyarrow.py_buffer(tensor)])

    def integers(self, array: Any, values: list[int]) -> Any:
        return pyarrow.array(values, type=pyarrow.int32())


_ARRAYS = _Arrays()


def kind_for(array: Any) -> Kind | None:
    return _ARRAYS if isinstance(array, pyarrow.Array) else buffer_kind_for(array)
