"""What the ranks of an estimator have in common, whatever the framework."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvd import data
from hvd.data import Reader
from hvd.spark.store import Store
from hvd.spark.task import get_available_devices

Columns = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """What every rank is told."""

    store: Store
    run_id: str
    train_path: str
    val_path: str | None
    features: Sequence[str]
    labels: Sequence[str]
    weight: str | None
    batch_size: int
    val_batch_size: int
    epochs: int
    shuffle: bool
    seed: int | None
    train_steps: int | None
    val_steps: int | None
    uneven: str
    verbose: int
    use_gpu: bool
    data_module: Any  # see `hvd.spark.data_module`; None: hvd.data reads
    data_module_options: Mapping[str, Any]  # further keyword arguments

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self.features, *self.labels, *([self.weight] if self.weight else [])]))

    def train_reader(self) -> Reader:
        return self._reader(self.train_path, self.batch_size, self.uneven, self.shuffle)

    def val_reader(self) -> Reader | None:
        """All rows, and as many steps on every rank."""
        return self._reader(self.val_path, self.val_batch_size, "repeat", False) if self.val_path else None

    def _reader(self, path: str, batch_size: int, uneven: str, shuffle: bool) -> Reader:
        options = self.store.storage_options
        url, seed = self.store.readable(path), self.seed or 0
        return data.parquet(
            url, batch_size, columns=self.columns, storage_options=options, uneven=uneven, shuffle=shuffle, seed=seed
        )

    def checkpoint(self) -> bytes | None:
        """That of an earlier fit of the same run, on all ranks."""
        import hvd
        from hvd.objects import broadcast_object

        is_saved = self.store.saving_runs()
        own = self.store.read_checkpoint(self.run_id) if hvd.rank() == 0 and is_saved else None
        found: bytes | None = broadcast_object(own, name="hvd.spark.checkpoint")
        return found

    def save(self, checkpoint: Callable[[], bytes]) -> None:
        """Called on rank 0."""
        if self.store.saving_runs():
            self.store.write(self.store.get_checkpoint_path(self.run_id), checkpoint())

    def save_logs(self, folder: str) -> None:
        """Called on rank 0: copies the files of its loggers to the store."""
        if self.store.saving_runs() and os.listdir(folder):
            self.store.upload(folder, self.store.get_logs_path(self.run_id))


def can_log(*modules: str) -> bool:
    """Whether one of these modules, which write files for TensorBoard, is installed."""
    return any(importlib.util.find_spec(module) is not None for module in modules)


def endless(batches: Callable[[], Iterator[Any]]) -> Generator[Any, None, None]:
    """One epoch after the other. ValueError: one has no batches."""
    while True:
        is_empty = True
        for batch in batches():
            is_empty = False
            yield batch
        if is_empty:
            raise ValueError(
                "this rank has no more batches of training or validation data: give more rows, a smaller batch_size or "
                "val_batch_size, or fewer ranks (num_proc)"
            )


def gpu_of_this_rank(wanted: bool, count: int) -> int | None:
    """The index of the GPU that this rank is to use; None: the CPU. All ranks must call it.

    Args:
        count: GPUs that the framework sees.

    Raises:
        ValueError: only some of the ranks have a GPU; on every rank.
    """
    import hvd
    from hvd.objects import allgather_object

    has_one = allgather_object(bool(wanted and count), name="hvd.spark.gpus")
    if not any(has_one):
        return None
    if not all(has_one):
        without = ", ".join(str(rank) for rank, has in enumerate(has_one) if not has)
        raise ValueError(f"ranks {without} have no GPU, and the others have: give every task one, or set use_gpu=False")
    addresses = get_available_devices()
    by_local_rank = os.environ.get("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX") == "1"
    return int(addresses[0]) % count if addresses and not by_local_rank else hvd.local_rank() % count


def reshaped(columns: Columns, names: Sequence[str], shapes: Sequence[Sequence[int]] | None) -> list[Any]:
    """The named arrays or tensors, with these shapes: -1, or None, is the number of rows."""
    found = [columns[name] for name in names]
    if not shapes:
        return found
    return [value.reshape(_shape(value, shape)) for value, shape in zip(found, shapes)]


def _shape(value: Any, shape: Sequence[int]) -> tuple[int, ...]:
    per_row = tuple(shape[1:] if shape and shape[0] in (-1, None) else shape)
    return (len(value), *per_row)


def stacked(columns: Columns, transform: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None) -> Columns:
    """What a function of one row makes of each row of a batch."""
    import numpy as np

    if transform is None:
        return columns
    count = len(next(iter(columns.values())))
    rows = [transform({name: values[row] for name, values in columns.items()}) for row in range(count)]
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
