"""Parquet files, read by pyarrow.dataset, as columns of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from hvd.data.division import Group
from hvd.data.files import Files

Columns = dict[str, Any]


class Parquet:
    """The row groups of Parquet files, of one schema. Folders named `column=value` become columns: those in the data
    set, not those that it lies in."""

    def __init__(self, files: Files, columns: Sequence[str] | None) -> None:
        self.files = files
        self._dataset = pyarrow.dataset.dataset(
            files.paths,
            format="parquet",
            filesystem=files.filesystem,
            partitioning="hive",
            partition_base_dir=files.root,
        )
        self._fragments = {fragment.path: fragment for fragment in self._dataset.get_fragments()}
        names = self._dataset.schema.names
        if isinstance(columns, str):
            columns = [columns]
        if columns is not None and len(columns) == 0:
            raise ValueError("columns is empty: name one at least, or leave it out to read all")
        self.columns = list(dict.fromkeys(columns)) if columns is not None else names
        if unknown := [name for name in self.columns if name not in names]:
            raise ValueError(f"no column {', '.join(unknown)} in {files.paths[0]}, which has {', '.join(names)}")

    def groups(self, file: int) -> list[Group]:
        fragment = self._fragments[self.files.paths[file]]
        return [Group(file, one.id, one.id + 1, one.num_rows) for one in fragment.row_groups]

    def read(self, groups: Iterable[Group], rows: Any) -> Columns:
        """These rows of the groups taken together, in this order; None: all."""
        tables = [self._table(group) for group in groups]
        table = pa.concat_tables(tables)
        if rows is not None:
            table = table.take(pa.array(rows))
        return {name: to_numpy(table.column(name).combine_chunks(), name) for name in self.columns}

    def _table(self, group: Group) -> Any:
        fragment = self._fragments[self.files.paths[group.file]].subset(row_group_ids=[group.start])
        return fragment.to_table(columns=self.columns, schema=self._dataset.schema)


def to_numpy(array: Any, column: str) -> Any:
    """An Arrow array as NumPy's. Lists of equal length add a dimension. Other lists, and strings, are objects. No copy
    is made where the memory is laid out alike.

    Raises:
        ValueError: integers, booleans or lists with nulls, for which NumPy has no value; structs and maps.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    if pa.types.is_dictionary(kind):
        return to_numpy(array.dictionary_decode(), column)
    if isinstance(kind, pa.BaseExtensionType):
        values = to_numpy(array.storage, column)  # which has no value for nulls either
        return array.to_numpy_ndarray() if isinstance(kind, pa.FixedShapeTensorType) else values
    if pa.types.is_decimal(kind):
        return to_numpy(array.cast(pa.float64()), column)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if array.null_count and (is_list or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"column {column!r}, of type {kind}, has nulls: fill them, or leave those rows out")
    if is_list:
        return _lists_to_numpy(array, column)
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        raise ValueError(f"column {column!r} is of type {kind}, which no array has: choose other columns")
    return array.to_numpy(zero_copy_only=False)


def _lists_to_numpy(array: Any, column: str) -> Any:
    lengths = pc.list_value_length(array)
    values = to_numpy(array.flatten(), column)
    extremes = pc.min_max(lengths).as_py()
    if extremes["min"] == extremes["max"]:
        return values.reshape(len(array), extremes["max"] or 0, *values.shape[1:])
    ragged = np.empty(len(array), object)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False))
    for row, part in enumerate(np.split(values, ends[:-1])):
        ragged[row] = part
    return ragged
