"""What scripts use of Horovod's module of this name: a frame written for `fit_on_parquet`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from hvd.spark import frames
from hvd.spark.store import Store

__all__ = ["is_databricks", "prepare_data", "to_list"]


def is_databricks() -> bool:
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def to_list(var: Any, length: int) -> list[Any] | None:
    """A list of that length, with one value for each column: `var` as often, if it is not a list."""
    if var is None:
        return None
    found = list(var) if isinstance(var, (list, tuple)) else [var] * length
    if len(found) == 1:
        found *= length
    if len(found) != length:
        raise ValueError(f"expected one value, or {length} (one for each column), not {len(found)}: {found}")
    return found


@contextlib.contextmanager
def prepare_data(
    num_processes: int,
    store: Store,
    df: Any,
    label_columns: Sequence[str],
    feature_columns: Sequence[str],
    validation: float | str | None = None,
    sample_weight_col: str | None = None,
    compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
) -> Iterator[int]:
    """Writes the columns to the store, and gives the number for `fit_on_parquet(dataset_idx=...)`. No other fit of this
    process uses it while the body runs.

    Args:
        compress_sparse, verbose: without effect.
    """
    columns = [*feature_columns, *label_columns, *([sample_weight_col] if sample_weight_col else [])]
    with store.data_index() as index:
        frames.write(df, columns, validation, store, index, max(num_processes * partitions_per_process, 1), 0)
        yield index
