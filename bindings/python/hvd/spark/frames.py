"""Rows on the way from Spark's frames into files, and from Arrow batches into models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hvd.spark.store import Store


def write(
    frame: Any,
    columns: Sequence[str],
    validation: float | str | None,
    store: Store,
    index: int,
    files: int,
    seed: int,
) -> tuple[str, str | None]:
    """Writes the columns of a frame as Parquet, the rows for validation apart; returns where: for training, and for
    validation if there is any.

    Args:
        validation: the ratio of rows, or the column that is positive in them.
        files: as many at most.

    Raises:
        ValueError: a column is not there, or the ratio is not between 0 and 1.
    """
    from pyspark.sql import functions

    names = [*columns, *([validation] if isinstance(validation, str) else [])]
    if missing := [name for name in names if name not in frame.columns]:
        raise ValueError(f"no column {', '.join(missing)}: the frame has {', '.join(frame.columns)}")
    frame = frame.select(*[_plain(frame, name) for name in dict.fromkeys(names)])
    train_path, val_path = store.get_train_data_path(index), store.get_val_data_path(index)
    if not validation:
        _write(frame, train_path, files)
        return train_path, None
    if isinstance(validation, str):
        is_validation = functions.coalesce(functions.col(validation).cast("double") > 0, functions.lit(False))
        train, val = frame.filter(~is_validation).drop(validation), frame.filter(is_validation).drop(validation)
        share = 0.5
    else:
        if not 0 < validation < 1:
            raise ValueError(f"validation is {validation}: a ratio between 0 and 1, or the name of a column")
        train, val = frame.randomSplit([1 - validation, validation], seed)
        share = validation
    _write(train, train_path, files)
    _write(val, val_path, max(1, int(files * share)))
    return train_path, val_path


def _plain(frame: Any, name: str) -> Any:
    """A column; vectors as arrays."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT

    column = frame[name]
    return vector_to_array(column).alias(name) if isinstance(frame.schema[name].dataType, VectorUDT) else column


def _write(frame: Any, path: str, files: int) -> None:
    frame.coalesce(files).write.mode("overwrite").parquet(path)


def to_numpy(array: Any, name: str) -> Any:
    """A column of an Arrow batch as an array of shape (rows, ...); vectors are dense."""
    import pyarrow as pa

    from hvd.data.parquet_files import to_numpy as plain

    is_vector = pa.types.is_struct(array.type) and {"size", "indices", "values"} <= {f.name for f in array.type}
    return _dense(array) if is_vector else plain(array, name)


def _dense(vectors: Any) -> Any:
    rows = []
    for vector in vectors.to_pylist():
        if vector["type"] == 1:
            rows.append(vector["values"])
        else:
            row = np.zeros(vector["size"])
            row[vector["indices"]] = vector["values"]
            rows.append(row)
    return np.array(rows, np.float64)


def vectors(values: Any) -> Any:
    """An array of shape (rows, length) as an Arrow array of Spark's dense vectors."""
    import pyarrow as pa

    rows, length = values.shape
    flat = pa.array(np.ascontiguousarray(values, np.float64).reshape(-1))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * length)
    kinds = pa.array(np.ones(rows, np.int8))
    nothing = pa.nulls(rows, pa.int32())
    no_indices = pa.nulls(rows, pa.list_(pa.int32()))
    content = [kinds, nothing, no_indices, pa.ListArray.from_arrays(offsets, flat)]
    return pa.StructArray.from_arrays(content, names=["type", "size", "indices", "values"])
