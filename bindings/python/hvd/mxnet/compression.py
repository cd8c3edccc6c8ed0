"""The compressors of MXNet's arrays (hvd.compression)."""

from __future__ import annotations

from typing import Any

import mxnet

from hvd.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(CastCompressor):
    """Sends float32 and float64 as float16: 11 bits of precision, values up to 65504."""

    dtype = "float16"

    @classmethod
    def is_cast(cls, tensor: Any) -> bool:
        return getattr(tensor.dtype, "__name__", str(tensor.dtype)) in ("float32", "float64")

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        with mxnet.autograd.pause():
            return tensor.astype(dtype)


class Compression:
    """The compressors that come with hvd."""

    none = NoneCompressor
    fp16 = FP16Compressor
