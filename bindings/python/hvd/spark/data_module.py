"""Custom readers for estimators: the param `data_module`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvd.data import Reader
    from hvd.spark.training import Work

_READ_AHEAD_S = 30.0  # for a batch that is being read at a training's end


class DataModule:
    """Base of classes for the param data_module of an estimator, which read the Parquet files on the ranks in place of
    hvd.data. Any class or function will do that takes these keywords and returns a context manager whose value has
    the methods below.

    All ranks must make the same number of steps. An epoch takes steps_per_epoch_train or steps_per_epoch_val batches of
    a loader. For torch a loader that ends earlier begins again. For Lightning an epoch of a loader must end after as
    many batches; for Keras what is given must not end earlier (`repeat()`, or a generator without an end).

    Args:
        train_dir, val_dir: URLs of the files; val_dir is None without validation. storage_options: for fsspec.
        num_train_epochs: epochs of this fit.
        has_val: whether there is validation.
        train_batch_size, val_batch_size: rows of a batch of one rank.
        shuffle, transform_fn, inmemory_cache_all: the params shuffle, transformation_fn and inmemory_cache_all.
        cur_shard, shard_count: the rank, and the number of ranks.
        schema_fields: names of the columns: features, labels, and the weight if there is one.
        steps_per_epoch_train, steps_per_epoch_val: batches of an epoch, on each rank; 0 without validation.
        verbose: the param verbose.
        others: label_cols, continuous_cols, categorical_cols, random_seed and reader_pool_type, the params of these
            names; train_reader_worker_count and val_reader_worker_count, the params train_reader_num_workers and
            val_reader_num_workers.
    """

    short_name: str | None = None

    def __init__(
        self,
        train_dir: str,
        val_dir: str | None,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Any = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        steps_per_epoch_train: int = 1,
        steps_per_epoch_val: int = 1,
        verbose: int = 1,
        **others: Any,
    ) -> None:
        self.train_dir = train_dir
        self.val_dir = val_dir
        self.num_train_epochs = num_train_epochs
        self.has_val = has_val
        self.train_batch_size = train_batch_size
        self.val_batch_size = val_batch_size
        self.shuffle = shuffle
        self.transform_fn = transform_fn
        self.inmemory_cache_all = inmemory_cache_all
        self.cur_shard = cur_shard
        self.shard_count = shard_count
        self.schema_fields = schema_fields
        self.storage_options = storage_options
        self.steps_per_epoch_train = steps_per_epoch_train
        self.steps_per_epoch_val = steps_per_epoch_val
        self.verbose = verbose

    def __enter__(self) -> DataModule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def train_data(self) -> Any:
        """What the framework trains on: for torch an iterable of dictionaries of tensors by column, or of pairs of such
        a dictionary and the label; for Lightning a loader of what its steps take; for Keras what `fit` takes."""
        raise NotImplementedError

    def val_data(self) -> Any:
        """Likewise for validation."""
        raise NotImplementedError


@contextlib.contextmanager
def opened(work: Work, default_loader: Callable[[Reader, int], Any]) -> Iterator[tuple[list[Any], list[int]]]:
    """What this rank reads for training and, if there is any, for validation, and how many batches of each are an
    epoch. All ranks must call it.

    Args:
        default_loader: makes a loader of a reader of hvd.data and its batches in an epoch; used without data_module.
            A generator is closed at the end: a framework may keep it, and with it the reader's threads.
    """
    readers = [reader for reader in (work.train_reader(), work.val_reader()) if reader is not None]
    steps = [given or len(reader) for given, reader in zip((work.train_steps, work.val_steps), readers)]
    if work.data_module is None:
        loaders = [default_loader(reader, count) for reader, count in zip(readers, steps)]
        with contextlib.ExitStack() as generators:
            for loader in loaders:
                if isinstance(loader, Generator):
                    generators.callback(_close, loader)
            yield loaders, steps
        return
    with work.data_module(**_keywords(work, *steps)) as module:
        yield [module.train_data(), module.val_data()] if work.val_path else [module.train_data()], steps


def _close(generator: Generator[Any, None, None]) -> None:
    """Waits for a thread of the framework's that is in it, for a batch that it reads ahead of its use."""
    deadline = time.monotonic() + _READ_AHEAD_S
    while True:
        try:
            return generator.close()
        except ValueError:  # "generator already executing"
            if time.monotonic() > deadline:
                return  # the training is complete, and a file system that does not answer is no reason to fail it
            time.sleep(0.001)


def _keywords(work: Work, train_steps: int, val_steps: int = 0) -> dict[str, Any]:
    import hvd

    return {
        **work.data_module_options,
        "train_dir": work.store.readable(work.train_path),
        "val_dir": work.store.readable(work.val_path) if work.val_path else None,
        "storage_options": work.store.storage_options,
        "cur_shard": hvd.rank(),
        "shard_count": hvd.size(),
        "num_train_epochs": work.epochs,
        "has_val": work.val_path is not None,
        "train_batch_size": work.batch_size,
        "val_batch_size": work.val_batch_size,
        "steps_per_epoch_train": train_steps,
        "steps_per_epoch_val": val_steps,
        "shuffle": work.shuffle,
        "random_seed": work.seed,
        "schema_fields": work.columns,
        "label_cols": work.labels,
        "verbose": work.verbose,
    }
