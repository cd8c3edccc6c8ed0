"""Rows as blocks on their way to a rank, and as batches there.

Two formats: rows of an RDD are pickled lists of them, rows of a DataFrame are record batches of Arrow. Where Spark has
the rows of an RDD pickled already, because they come from the JVM or are cached, its own bytes are sent on as they are.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from hvd.spark import feeding

_PART_BYTES = 64 << 10
_BLOCK_BYTES = 1 << 20

Epoch = tuple[int, Callable[[], Any]]  # the number of partitions, and the Spark job that sends them all


class Source:
    """An RDD or a DataFrame, on the driver."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.is_arrow = not hasattr(data, "mapPartitionsWithIndex")
        if self.is_arrow and not hasattr(data, "mapInArrow"):
            raise TypeError(f"rows come from an RDD or a DataFrame, not from a {type(data).__name__}")

    def prepare(self, link: feeding.Link) -> Epoch:
        if self.is_arrow:
            # An RDD, whose partitions are final: adaptive execution has decided. Counted without a Python process.
            sent = _sent_as_arrow(self._data, link)
            return int(sent.getNumPartitions()), sent._jrdd.count

        def send(partition: int, parts: Iterable[bytes]) -> Iterator[int]:
            def blocks(room: feeding.Room) -> Iterator[feeding.Parts]:
                return _in_blocks(parts.read_into(room) if isinstance(parts, _PickledParts) else parts)

            yield feeding.send_partition(link, partition, blocks)

        sent = pickled_rows(self._data).mapPartitionsWithIndex(send)
        return int(sent.getNumPartitions()), sent.collect

    def asked(self, link: feeding.Link) -> Any:
        """An RDD of the results of all rows, in their order."""

        def ask(partition: int, parts: Iterable[bytes]) -> Iterator[Any]:
            for results in feeding.infer_partition(link, partition, _in_blocks(parts)):
                yield from pickle.loads(results)

        rdd = self._data.rdd if self.is_arrow else self._data
        return pickled_rows(rdd).mapPartitionsWithIndex(ask)


def _sent_as_arrow(frame: Any, link: feeding.Link) -> Any:
    def send(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        feeding.send_partition(link, context.partitionId(), lambda _: map(_arrow_block, batches))
        return iter(())

    return frame.mapInArrow(send, "nothing int").rdd


def _arrow_block(batch: Any) -> feeding.Parts:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return [memoryview(sink.getvalue()).cast("B")]


def pickled_rows(rdd: Any) -> Any:
    """An RDD of pickled lists of rows."""
    from pyspark import RDD
    from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, CPickleSerializer

    is_pipelined = getattr(rdd, "_is_pipelinable", lambda: False)()
    serializer = rdd._jrdd_deserializer
    is_batched = type(serializer) in (BatchedSerializer, AutoBatchedSerializer)
    if is_batched and isinstance(serializer.serializer, CPickleSerializer) and not is_pipelined:
        return RDD(rdd._jrdd, rdd.context, _AsPickled())  # type: ignore[arg-type]
    return rdd.mapPartitions(_pickle_some)


class _AsPickled:
    """A serializer for Spark that leaves lists of rows pickled."""

    def load_stream(self, stream: Any) -> _PickledParts:
        return _PickledParts(stream)


class _PickledParts:
    """Pickled lists of rows from Spark's JVM. Read once: by iteration, or into the memory from which they are sent."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        while (length := self._next_length()) is not None:
            yield self._stream.read(length)

    def read_into(self, room: feeding.Room) -> Iterator[memoryview]:
        while (length := self._next_length()) is not None:
            part = room(length)
            if self._stream.readinto(part) < length:
                raise EOFError("Spark has closed its stream within a row")
            yield part

    def _next_length(self) -> int | None:
        """None at the end, which Spark's FramedSerializer marks by a length of -1."""
        length = int.from_bytes(self._stream.read(4), "big", signed=True)
        return length if length > 0 else None


def _in_blocks(parts: Iterable[bytes | memoryview]) -> Iterator[list[bytes | memoryview]]:
    """Spark pickles 64 KB at a time, for which a rank would have to wake up too often."""
    block: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        block.append(part)
        size += len(part)
        if size >= _BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _pickle_some(rows: Iterable[Any]) -> Iterator[bytes]:
    rows, count = iter(rows), 1
    while chunk := list(itertools.islice(rows, count)):
        data = pickle.dumps(chunk, 5)
        yield data
        if len(data) < _PART_BYTES:
            count *= 2
        elif len(data) > 4 * _PART_BYTES:
            count = max(1, count // 2)


# ---- in a rank


class Rows:
    """Rows that have come, to be taken in batches."""

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self._taken = 0

    def __len__(self) -> int:
        return len(self._rows) - self._taken

    def add(self, block: feeding.Block) -> bool:
        """Takes the block's rows. Returns True if it keeps no reference to the block's memory."""
        del self._rows[: self._taken]
        self._taken = 0
        for part in block.parts:
            self._rows += pickle.loads(part)
        return True

    def take(self, count: int) -> list[Any]:
        if count == len(self._rows):
            taken, self._rows = self._rows, []
            return taken
        self._taken += count
        return self._rows[self._taken - count : self._taken]


class Columns:
    """As Rows, for record batches."""

    def __init__(self) -> None:
        self._batches: list[Any] = []

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def add(self, block: feeding.Block) -> bool:
        import pyarrow

        # Arrays in shared memory would occupy its slots for as long as the program keeps them.
        is_copied = block.is_read is not None
        for part in block.parts:
            self._batches += pyarrow.ipc.open_stream(bytes(part) if is_copied else part)
        return is_copied

    def take(self, count: int) -> Any:
        """A table of so many rows."""
        import pyarrow

        taken = []
        while count > 0:
            first = self._batches[0]
            taken.append(first.slice(0, count))
            if first.num_rows > count:
                self._batches[0] = first.slice(count)
            else:
                self._batches.pop(0)
            count -= taken[-1].num_rows
        return pyarrow.Table.from_batches(taken)


def as_arrays(batch: Any) -> Any:
    """NumPy arrays: by column's name for a table, dicts and Rows, a tuple for tuples, else one array."""
    if not isinstance(batch, list):
        from hvd.spark import arrow

        return {name: arrow.to_numpy(batch.column(name), name) for name in batch.column_names}
    first = batch[0]
    if isinstance(first, dict):
        return {name: _stacked([row[name] for row in batch]) for name in first}
    if isinstance(first, tuple):
        columns = [_stacked(list(column)) for column in zip(*batch)]
        return dict(zip(first.__fields__, columns)) if hasattr(first, "__fields__") else tuple(columns)
    return _stacked(batch)


def _stacked(values: list[Any]) -> np.ndarray[Any, Any]:
    if isinstance(values[0], (bytes, bytearray, str)):
        return np.array(values, dtype=object)
    if hasattr(values[0], "toArray"):  # vectors of Spark ML
        values = [value.toArray() for value in values]
    return np.asarray(values)
