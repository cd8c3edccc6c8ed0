"""Element types that hvd does not know, as bytes: for what only moves."""

from __future__ import annotations

import tensorflow as tf

_MOVABLE = frozenset(
    [
        tf.uint8,
        tf.uint16,
        tf.uint32,
        tf.uint64,
        tf.int8,
        tf.int16,
        tf.int32,
        tf.int64,
        tf.float16,
        tf.bfloat16,
        tf.float32,
        tf.float64,
        tf.bool,
    ]
)


def is_movable(dtype: tf.DType) -> bool:
    """Whether hvd's ops take tensors of this type."""
    return dtype in _MOVABLE


def as_bytes(tensor: tf.Tensor) -> tf.Tensor:
    """A tensor of shape [..., bytes of an element]. TypeError for strings and the like, which have no fixed size."""
    if tensor.dtype.size is None or tensor.dtype in (tf.string, tf.resource, tf.variant):
        raise TypeError(f"tensors of {tensor.dtype.name} cannot be sent: their elements have no fixed size")
    return tf.bitcast(tensor, tf.uint8)


def from_bytes(sent: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """What as_bytes() was given."""
    return tf.bitcast(sent, dtype)
