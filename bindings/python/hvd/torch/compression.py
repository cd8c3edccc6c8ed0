"""The compressors of PyTorch's tensors (hvd.compression)."""

from __future__ import annotations

import torch

from hvd.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(CastCompressor):
    @classmethod
    def is_cast(cls, tensor: torch.Tensor) -> bool:
        return tensor.dtype.is_floating_point and tensor.dtype.itemsize != cls.dtype.itemsize

    @staticmethod
    def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor.to(dtype)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16: 11 bits of precision, values up to 65504. bfloat16 stays as it is, and
    8-bit floats, which cannot be reduced, are widened."""

    dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: 8 bits of precision, the range of float32. float16 stays as it is, and
    8-bit floats, which cannot be reduced, are widened."""

    dtype = torch.bfloat16


class Compression:
    """The compressors that come with hvd."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
