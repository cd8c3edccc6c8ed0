"""Compression of tensors: the smaller type that is used on the wire, and back to the original one.

Each framework has its own `FP16Compressor` and its like in `hvd.<framework>.compression`.
"""

from __future__ import annotations

from typing import Any


class Compressor:
    """Interface. A compressor of your own needs these two functions, and no state."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and whatever `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class CastCompressor(Compressor):
    """Sends tensors of some types as `dtype`. A framework says which types, and how to cast."""

    dtype: Any

    @classmethod
    def is_cast(cls, tensor: Any) -> bool:
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return (cls.cast(tensor, cls.dtype), tensor.dtype) if cls.is_cast(tensor) else (tensor, None)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else cls.cast(tensor, ctx)
