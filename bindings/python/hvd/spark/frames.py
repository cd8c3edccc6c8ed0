"""Writes rows of Spark's DataFrames into files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
