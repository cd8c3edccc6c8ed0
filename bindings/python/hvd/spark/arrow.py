"""Converts columns between Arrow and NumPy, including vectors of Spark ML, which are structs in Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hvd.data import parquet_files

_DENSE = 1  # the `type` of a dense vector


def to_numpy(array: Any, name: str) -> Any:
    """A column as an array of shape (rows, ...); vectors are dense, in float64. Lists of equal length add a dimension;
    other lists, and text, are objects.

    Raises:
        ValueError: NumPy cannot represent it: integers, lists or vectors with nulls, or other structs.
    """
    kind = array.type
    if not pa.types.is_struct(kind) or not {"size", "indices", "values"} <= {field.name for field in kind}:
        return parquet_files.to_numpy(array, name)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.null_count:
        raise ValueError(f"column {name!r}, of vectors, has nulls: fill them, or leave those rows out")
    kinds = array.field("type").to_numpy(zero_copy_only=False)
    if (kinds == _DENSE).all():
        return parquet_files.to_numpy(pc.struct_field(array, "values"), name)
    return np.array([_dense(vector) for vector in array.to_pylist()], np.float64)


def _dense(vector: dict[str, Any]) -> Any:
    if vector["type"] == _DENSE:
        return vector["values"]
    row = np.zeros(vector["size"])
    row[vector["indices"]] = vector["values"]
    return row


def vectors(values: Any) -> Any:
    """An array of shape (rows, length) as an Arrow array of Spark's dense vectors."""
    rows, length = values.shape
    flat = pa.array(np.ascontiguousarray(values, np.float64).reshape(-1))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * length)
    kinds = pa.array(np.full(rows, _DENSE, np.int8))
    nothing = pa.nulls(rows, pa.int32())
    no_indices = pa.nulls(rows, pa.list_(pa.int32()))
    content = [kinds, nothing, no_indices, pa.ListArray.from_arrays(offsets, flat)]
    return pa.StructArray.from_arrays(content, names=["type", "size", "indices", "values"])
