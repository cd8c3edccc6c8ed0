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


BUCKET_BYTES = 8 << 20


def reduce_compressed(
    gradients: Sequence[jax.Array], name: str, compression: Any, reduce: Callable[..., Sequence[jax.Array]]
) -> list[jax.Array]:
    """What `reduce(arrays, name=...)` makes of all gradients in the types in which they are sent, in their own types.

    It is called for parts of them: one can travel while XLA computes those that follow. Their names differ, so that
    each is the same operation in every step, which the ranks need to agree on only once.
    """
    compressed = [compression.compress(gradient) for gradient in gradients]
    result = list(gradients)
    for number, bucket in enumerate(_buckets([array for array, _ in compressed])):
        reduced = reduce([compressed[i][0] for i in bucket], name=f"{name}.{number}")
        for i, array in zip(bucket, reduced):
            result[i] = compression.decompress(array, compressed[i][1])
    return result


def _buckets(arrays: Sequence[jax.Array]) -> list[list[int]]:
    """Indices in parts of at least BUCKET_BYTES; the last arrays first, since those are usually the gradients that a
    backward pass makes first."""
    buckets: list[list[int]] = []
    room = 0
    for i in reversed(range(len(arrays))):
        if room <= 0:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(i)
        room -= arrays[i].size * arrays[i].dtype.itemsize
    return buckets
