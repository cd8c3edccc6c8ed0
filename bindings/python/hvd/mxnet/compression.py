"""Compression: gradients are sent in a smaller type, and restored on arrival."""

from __future__ import annotations

from typing import Any

import mxnet


class Compressor:
    """Interface. A compressor of one's own needs these two functions, and no state."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array to send, and whatever `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The array in its original type."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends arrays as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16: 11 bits of precision, values up to 65504."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        name = getattr(tensor.dtype, "__name__", str(tensor.dtype))
        if name not in ("float32", "float64"):
            return tensor, None
        with mxnet.autograd.pause():
            return tensor.astype("float16"), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        if ctx is None:
            return tensor
        with mxnet.autograd.pause():
            return tensor.astype(ctx)


class Compression:
    """The compressors that come with hvd."""

    none = NoneCompressor
    fp16 = FP16Compressor
