"""Element types that the ops do not have: complex numbers as pairs of real ones, others as bytes, which only move."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from hvd.arrays.elements import element_type

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


def any_complex(tensors: Sequence[tf.Tensor]) -> bool:
    """Whether there is one among them: all others are sent, and received, as they are."""
    return any(tensor.dtype.is_complex for tensor in tensors)


def to_send(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What ops are given for these tensors; those that are not complex stay as they are."""
    for tensor in tensors:
        if not (is_movable(tensor.dtype) or tensor.dtype.is_complex):
            raise TypeError(
                f"tensors of {tensor.dtype.name} are not supported: use broadcast_object() or allgather_object(), or "
                "tf.bitcast() to integers of the same width"
            )
    return [_paired(tensor) if tensor.dtype.is_complex else tensor for tensor in tensors]


def _paired(tensor: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], axis=-1)


def received(outputs: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The outputs of ops that were given `to_send(tensors)`, in the tensors' types."""
    return [
        tf.complex(output[..., 0], output[..., 1]) if tensor.dtype.is_complex else output
        for output, tensor in zip(outputs, tensors)
    ]


def require_reducible(tensors: Sequence[tf.Tensor], collective: str, op: int) -> None:
    """ValueError if a tensor is complex and this is neither a sum nor an average."""
    for dtype in {tensor.dtype for tensor in tensors if tensor.dtype.is_complex}:
        element_type(dtype.name, dtype.size).require_reducible(collective, op)
