"""Readers of Parquet and TFRecord files whose rows follow the ranks of a job.

    reader = hvd.data.parquet("s3://bucket/train", batch_size=64, columns=["image", "label"])
    for epoch in range(reader.epoch, epochs):
        for batch in reader:            # {"image": array of (64, ...), "label": array of (64,)}
            ...

All ranks get equally many batches, whatever the number of files, and each row once in an epoch. A reader knows what of
the epoch was processed: as a value of an elastic state, it goes on with the rest when ranks come or go. It reads ahead
while the training works on what was read before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hvd.data import files
from hvd.data.reader import Reader

if TYPE_CHECKING:
    from hvd.data.files import Source

__all__ = ["Reader", "parquet", "tfrecord"]


def parquet(
    source: Source,
    batch_size: int,
    *,
    columns: Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Reader:
    """Reads a data set of Parquet files. Needs pyarrow. Any rank can make it without the others.

    Args:
        source: a folder, a file, or a list of them; paths, or URLs for fsspec. The same files on every rank.
        batch_size: rows in a batch of one rank. The last batch of an epoch may be smaller, on all ranks alike.
        columns: the others are not read. None: all.
        storage_options: for fsspec.
        options: of `Reader`.

    Returns:
        A reader whose batches are dictionaries of NumPy arrays of shape (rows, ...): lists of equal length are further
        dimensions; strings, bytes and other lists are objects.

    Raises:
        FileNotFoundError, ImportError, ValueError: a path is not there, pyarrow or fsspec is missing, or an argument or
            a column name is wrong.
    """
    try:
        from hvd.data.parquet_files import Parquet
    except ImportError as error:
        raise ImportError("hvd.data.parquet needs pyarrow and NumPy: pip install pyarrow") from error
    return Reader(Parquet(files.found(source, storage_options), columns), batch_size, **options)


def tfrecord(
    source: Source,
    batch_size: int,
    *,
    features: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Reader:
    """Reads a data set of uncompressed TFRecord files, and checks their checksums.

    Args:
        source, batch_size, storage_options, options: as for `parquet`.
        features: decodes records as Example protos: fixed-length features as `tf.io.parse_example` takes them. Needs
            TensorFlow. None: batches are `{"record": array of bytes objects}`.

    Raises:
        FileNotFoundError, ImportError, ValueError: as for `parquet`. A file that is damaged is a ValueError of the
            first iteration, or of the one that comes to it.
    """
    from hvd.data.tfrecord_files import TFRecord

    return Reader(TFRecord(files.found(source, storage_options), features), batch_size, **options)
