"""The compressors of JAX's arrays (hvd.compression), and gradients that are sent compressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hvd.compression import CastCompressor, NoneCompressor


class _CastCompressor(CastCompressor):
    @classmethod
    def is_cast(cls, tensor: jax.Array) -> bool:
        wider = tensor.dtype.itemsize > jnp.dtype(cls.dtype).itemsize
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating)) and wider

    @staticmethod
    def cast(tensor: jax.Array, dtype: Any) -> jax.Array:
        return tensor.astype(dtype)


class FP16Compressor(_CastCompressor):
    """Sends floating-point arrays as float16: 11 bits of precision, values up to 65504."""

    dtype = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point arrays as bfloat16: 8 bits of precision, the range of float32."""

    dtype = jnp.bfloat16


class Compression:
    """The compressors that come with hvd."""

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
