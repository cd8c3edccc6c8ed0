"""Eager tensors and variables of TensorFlow. In a tf.function hvd.tensorflow works."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvd.arrays.dlpack import Exported, ImmutableArrays
from hvd.arrays.kinds import Kind, Memory


class _Tensors(ImmutableArrays):
    """Results are tensors, also those of variables."""

    def read(self, array: Any) -> Memory:
        tensor = array.value() if isinstance(array, tf.Variable) else array
        if tensor.dtype in (tf.string, tf.resource, tf.variant):
            raise ValueError(f"tensors of {tensor.dtype.name} are not supported: use allgather_object() and its like")
        try:
            return super().read(tensor)
        except tf.errors.OpError as error:  # 8-bit floats, for instance, which its DLPack does not know
            raise ValueError(f"tensors of {tensor.dtype.name} are not supported: {error.message}") from None

    def _made(self, array: Any, exported: Exported) -> Any:
        return tf.experimental.dlpack.from_dlpack(exported.__dlpack__())

    def integers(self, array: Any, values: list[int]) -> Any:
        return tf.constant(values, dtype=tf.int32)


_TENSORS = _Tensors()


def kind_for(array: Any) -> Kind | None:
    if isinstance(array, tf.Variable):
        return _TENSORS
    if isinstance(array, (tf.IndexedSlices, tf.SparseTensor)):
        raise TypeError(f"tf.{type(array).__name__} is not one tensor but several: use hvd.tensorflow, or give each")
    if tf.is_tensor(array) and not hasattr(array, "numpy"):
        raise TypeError("a tensor without a value, as in a tf.function: use hvd.tensorflow there")
    return _TENSORS if hasattr(array, "__dlpack__") else None
