"""TFRecord files. TensorFlow is needed only to decode the Example protos in them.

A record is its length (8 bytes, little-endian), the masked CRC-32C of the length (4), the bytes, and theirs (4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hvd import _native
from hvd.data.division import Group
from hvd.data.files import Files

_GROUP_BYTES = 4 << 20
_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4

Columns = dict[str, Any]


class TFRecord:
    """Records of TFRecord files, in groups of about 4 MB.

    To count the records of a file, the header of each is read.
    """

    def __init__(self, files: Files, features: Mapping[str, Any] | None) -> None:
        self.files = files
        self._features = features
        if features is not None:
            try:
                import tensorflow  # noqa: F401
            except ImportError:
                raise ImportError("features= needs TensorFlow; without it the records come as bytes") from None

    def groups(self, file: int) -> list[Group]:
        path, found = self.files.paths[file], []
        start = position = rows = 0
        with self.files.open(file) as opened:
            size = opened.seek(0, 2)
            while position < size:
                opened.seek(position)
                position += _HEADER.size + _length(opened.read(_HEADER.size), path, position) + _FOOTER_BYTES
                rows += 1
                if position > size:
                    raise ValueError(f"{path} is cut off: its last record should end at byte {position}, of {size}")
                if position - start >= _GROUP_BYTES or position == size:
                    found.append(Group(file, start, position, rows))
                    start, rows = position, 0
        return found

    def read(self, groups: Iterable[Group], rows: Any) -> Columns:
        """These rows of the groups taken together, in this order; None: all."""
        every = [record for group in groups for record in self._records(group)]
        records = np.empty(len(every), object)
        records[:] = every
        if rows is not None:
            records = records[rows]
        return {"record": records} if self._features is None else _decoded(records, self._features)

    def _records(self, group: Group) -> Iterator[bytes]:
        with self.files.open(group.file) as opened:
            opened.seek(group.start)
            data = memoryview(opened.read(group.stop - group.start))
        path, position = self.files.paths[group.file], 0
        while position < len(data):
            begin = position + _HEADER.size
            end = begin + _length(data[position:begin], path, group.start + position)
            position = end + _FOOTER_BYTES
            record = bytes(data[begin:end])
            if int.from_bytes(data[end:position], "little") != masked_crc(record):
                raise ValueError(f"{path}: the record at byte {group.start + begin} is damaged: its checksum differs")
            yield record


def _length(header: bytes | memoryview, path: str, position: int) -> int:
    if len(header) == _HEADER.size:
        length, crc = _HEADER.unpack(header)
        if crc == masked_crc(header[:8]):
            return int(length)
    raise ValueError(f"{path} has no record at byte {position}: it is damaged, compressed, or no TFRecord file")


def masked_crc(data: bytes | memoryview) -> int:
    crc = _native.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _decoded(records: Any, features: Mapping[str, Any]) -> Columns:
    import tensorflow as tf

    with tf.device("/CPU:0"):
        found = tf.io.parse_example(tf.constant(records.tolist(), tf.string), dict(features))
    for name, value in found.items():
        if not isinstance(value, tf.Tensor):
            raise ValueError(f"feature {name!r} has no shape of its own: use tf.io.FixedLenFeature")
    return {name: value.numpy() for name, value in found.items()}
