"""Compression: arrays are sent in a smaller type, and restored on arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


class NoneCompressor:
    """Sends arrays as they are."""

    @staticmethod
    def compress(array: jax.Array) -> tuple[jax.Array, Any]:
        """The array to send, and whatever `decompress` needs to know."""
        return array, None

    @staticmethod
    def decompress(array: jax.Array, context: Any) -> jax.Array:
        """The array in its original type."""
        return array


class _CastCompressor(NoneCompressor):
    dtype: Any

    @classmethod
    def compress(cls, array: jax.Array) -> tuple[jax.Array, Any]:
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize > jnp.dtype(cls.dtype).itemsize:
            return array.astype(cls.dtype), array.dtype
        return array, None

    @staticmethod
    def decompress(array: jax.Array, context: Any) -> jax.Array:
        return array if context is None else array.astype(context)


class FP16Compressor(_CastCompressor):
    """Sends floating-point arrays as float16."""

    dtype = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point arrays as bfloat16."""

    dtype = jnp.bfloat16


class Compression:
    """The compressors there are."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def reduce_compressed(
    arrays: Sequence[jax.Array], compression: Any, reduce: Callable[[list[jax.Array]], Sequence[jax.Array]]
) -> list[jax.Array]:
    """What `reduce` makes of all arrays in the types in which they are sent, in their own types."""
    compressed = [compression.compress(array) for array in arrays]
    reduced = reduce([array for array, _ in compressed])
    return [compression.decompress(array, context) for array, (_, context) in zip(reduced, compressed)]
