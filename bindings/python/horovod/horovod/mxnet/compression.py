"""See `hvd.mxnet.Compression`."""

from hvd.mxnet.compression import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
