"""Compression of tensors for the time of their travel: a smaller type going out, the original one coming back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Compressor:
    """Interface. A compressor of one's own needs these two functions, and no state."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """The tensor to send, and whatever `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """The tensor in its original type."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor


class _CastCompressor(Compressor):
    dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return (tf.cast(tensor, cls.dtype) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating point tensors as float16: 11 bits of precision, values up to 65504."""

    dtype = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends floating point tensors as bfloat16: 8 bits of precision, the range of float32."""

    dtype = tf.bfloat16


class Compression:
    """The compressors that come with hvd."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
