"""A rank's reader of its share of a data set."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from hvd import _native, basics
from hvd.data.division import UNEVEN, Division, Group, Interval, Order, Piece
from hvd.data.files import Files
from hvd.data.prefetch import ahead

if TYPE_CHECKING:
    from hvd.data.torch_dataset import Batches

Columns = dict[str, Any]
T = TypeVar("T")


class Format(Protocol):
    """What the files of a data set are."""

    files: Files

    def groups(self, file: int) -> list[Group]:
        """Of one file, in order; counted, not read."""

    def read(self, groups: Iterable[Group], rows: Any) -> Columns:
        """These rows of the groups taken together, in this order; None: all."""


class Reader:
    """Iterates over this rank's share of an epoch, in batches that are dictionaries of NumPy arrays (views: do not
    write to them), and then begins the next epoch. Made by `hvd.data.parquet` and `hvd.data.tfrecord`.

    All ranks of the job must iterate. In the first iteration, or the first `len()`, of a job or of an epoch of an
    elastic job, they count the rows together, in one collective: each rank reads the metadata of some of the files.
    After that no rank waits for another.

    A batch counts as processed when it is given out. After a loop that was left in the middle, the next iteration goes
    on behind the last batch of the loop; `set_epoch` begins anew. As a value of a state of `hvd.elastic`, the reader is
    restored with the state: rows of steps that are lost are read again, and no others. After ranks have come or gone,
    the next iteration divides what remains among the ranks that there are. `TorchState` does so automatically; with
    other states, keep `state_dict()` in an attribute of the state, and load it where the training function begins.

    Args:
        batch_size: rows of one rank.
        shuffle: whether each epoch has its own order of row groups, and of rows in them, which does not depend on the
            number of ranks.
        seed: of those orders; the same on every rank.
        mix: number of row groups that are read together, and whose rows are mixed, if `shuffle`. A rank holds up to
            three times as many in memory: those that it is in, and two such blocks ahead.
        uneven: what happens to rows that cannot be divided evenly. "repeat": all ranks have equally large batches, the
            last one smaller than the others; ranks with one row less repeat a row. "drop": only whole batches, equally
            many on all ranks. "join": each row once, so that a rank may have one batch, or one row of the last batch,
            less than others. Ranks call `hvd.join()` after the loop, and then broadcast the parameters from the rank
            that it returns.
        prefetch: batches that are ready ahead of the training.
        timeout_s: seconds after which a file system that does not answer is an error.

    Attributes:
        epoch: the number of the one that is going on, or of the next.

    Raises:
        ValueError: an argument is out of its range. In an iteration or `len()`: the ranks' readers differ, there are no
            rows, or a file is damaged; what one rank finds while it counts is raised on all.
        TimeoutError: in an iteration: a file system has not answered for `timeout_s` seconds.
        HorovodInternalError: in an iteration or `len()`: a rank was lost while the rows were counted.
    """

    def __init__(
        self,
        format: Format,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        mix: int = 4,
        uneven: str = "repeat",
        prefetch: int = 4,
        timeout_s: float = 300,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("mix", mix), ("prefetch", prefetch)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if uneven not in UNEVEN:
            raise ValueError(f"uneven is {uneven!r}: expected one of {', '.join(UNEVEN)}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, and is {seed}")
        self.batch_size, self.shuffle, self.seed, self.mix, self.uneven = batch_size, shuffle, seed, mix, uneven
        self.prefetch, self.timeout_s = prefetch, timeout_s
        self.epoch = 0
        self._format = format
        self._groups: list[Group] = []
        self._agreed_in: tuple[int, ...] | None = None  # the job, or the epoch of an elastic job
        self._remaining: list[Interval] | None = None  # of this epoch, when `_division` began; None: all
        self._division: Division | None = None  # in the iteration that is going on
        self._steps = 0  # done in it

    @property
    def rows(self) -> int:
        """Of the whole data set, once counted."""
        return sum(group.rows for group in self._groups)

    def __len__(self) -> int:
        """Batches of this rank in the iteration that is going on, or else in the next one. All ranks must call it if
        there was no iteration yet."""
        self._agree()
        return (self._division or self._divided()).steps(_place()[0])

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which nothing is processed yet. On all ranks alike."""
        self.load_state_dict({"epoch": epoch, "remaining": None})

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the intervals of its sequence of rows that no rank has processed."""
        remaining = self._left()
        return {"epoch": self.epoch, "remaining": None if remaining is None else [list(each) for each in remaining]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next iteration goes on there. The data set, seed, shuffle and mix must be those of the reader that the
        state is of; the number of ranks and batch_size need not be."""
        remaining = state_dict["remaining"]
        self.epoch = state_dict["epoch"]
        self._remaining = None if remaining is None else [(start, stop) for start, stop in remaining]
        self._division, self._steps = None, 0

    def __iter__(self) -> Iterator[Columns]:
        return self.batches(lambda columns: columns)

    def batches(self, convert: Callable[[Columns], T]) -> Iterator[T]:
        """Iterates, over what `convert` makes of each batch; it is called in another thread."""
        self._agree()
        if self._is_over():  # and its loop still holds the iterator
            self.set_epoch(self.epoch + 1)
        self._leave_iteration()
        division, order = self._divided(), self._order()
        self._division = division
        if self._is_over():  # a loop that knows that there is nothing does not ask for it
            self.set_epoch(self.epoch + 1)
        return self._batches(division, order, convert)

    def _batches(self, division: Division, order: Order, convert: Callable[[Columns], T]) -> Iterator[T]:
        pieces = order.pieces(division.intervals(_place()[0]))
        blocks = ahead(self._read(order, pieces), 1, self.timeout_s)
        converted = _converted(_cut(blocks, self.batch_size), convert)
        with contextlib.closing(ahead(converted, self.prefetch, self.timeout_s)) as ready:
            try:
                for batch in ready:
                    if self._division is not division:
                        return  # another state was loaded, or another iteration has begun
                    self._steps += 1
                    yield batch
            finally:  # a loop that knows how many there are does not ask for more, but closes this
                if self._division is division and self._is_over():
                    self.set_epoch(self.epoch + 1)

    def _is_over(self) -> bool:
        """Whether this rank has had the last batch of the iteration that is going on."""
        return self._division is not None and self._steps == self._division.steps(_place()[0])

    def torch(self) -> Batches:
        """The reader for PyTorch: an IterableDataset of dictionaries of tensors, for a loop, or for a DataLoader with
        `batch_size=None`."""
        from hvd.data.torch_dataset import Batches

        return Batches(self)

    def tensorflow(self, *labels: str) -> Any:
        """The reader as a `tf.data.Dataset` of dictionaries of tensors; each iteration of it is one of the reader. All
        ranks must call it if there was no iteration yet. Do not let it prefetch: what it has taken counts as processed.
        In Keras, give what remains of an epoch a `fit` of its own: all epochs of a `fit` are as long as its first one.

        Args:
            labels: columns that go apart: the elements are then pairs of features and labels, as Keras takes them. Of
                one label it is the tensor, and so of one feature.
        """
        from hvd.data.tensorflow_dataset import dataset

        return dataset(self, labels)

    def example(self) -> Columns:
        """The first row of the data set, as a batch."""
        self._agree()
        group = next(group for group in self._groups if group.rows)
        return {name: values[:1] for name, values in self._format.read([group], None).items()}

    def _leave_iteration(self) -> None:
        self._remaining, self._division, self._steps = self._left(), None, 0

    def _left(self) -> list[Interval] | None:
        return self._remaining if self._division is None else self._division.after(self._steps)

    def _divided(self) -> Division:
        remaining = [(0, self.rows)] if self._remaining is None else self._remaining
        return Division(remaining, _place()[1], self.batch_size, self.uneven)

    def _order(self) -> Order:
        return Order(self._groups, self.mix, self.shuffle, self.seed, self.epoch)

    def _read(self, order: Order, pieces: Iterable[Piece]) -> Generator[Columns, None, None]:
        for piece in pieces:
            groups = order.blocks[piece.block]
            rows = None
            if self.shuffle:
                generator = np.random.default_rng(order.block_seed(piece.block))
                rows = generator.permutation(sum(group.rows for group in groups))[piece.start : piece.stop]
            columns = self._format.read(groups, rows)
            yield columns if self.shuffle else {name: all[piece.start : piece.stop] for name, all in columns.items()}

    # ---- what the ranks agree on

    def _agree(self) -> None:
        job = (*_place(), _native.epoch()[0] if basics.is_initialized() else 0)
        if self._agreed_in == job:
            return
        self._leave_iteration()  # which was of other ranks
        rank, size = job[:2]
        own: tuple[int, Any] = (self._fingerprint(), self._counted(range(rank, len(self._format.files.paths), size)))
        everywhere = [own] if size == 1 else _allgather_object(own)
        for other, (fingerprint, counted) in enumerate(everywhere):
            if isinstance(counted, Exception):
                raise counted
            if fingerprint != everywhere[0][0]:
                raise ValueError(
                    f"the readers of ranks 0 and {other} differ (this rank reads {self._what()}): give all ranks the "
                    "same files, batch_size, shuffle, seed, mix, uneven, epoch and state"
                )
        groups = sorted(group for _, counted in everywhere for group in counted)
        if not any(group.rows for group in groups):
            raise ValueError(f"there are no rows in {self._what()}")
        self._groups, self._agreed_in = groups, job

    def _what(self) -> str:
        paths = self._format.files.paths
        return paths[0] + (f" and {len(paths) - 1} others" if len(paths) > 1 else "")

    def _fingerprint(self) -> int:
        settings = (self.batch_size, self.shuffle, self.seed, self.mix, self.uneven, self.state_dict())
        return zlib.crc32(repr((self._format.files.names, settings)).encode())

    def _counted(self, files: Sequence[int]) -> list[Group] | Exception:
        if self._groups:
            mine = set(files)
            return [group for group in self._groups if group.file in mine]
        try:
            return [group for file in files for group in self._format.groups(file)]
        except Exception as error:
            return error


def _place() -> tuple[int, int]:
    """This process's rank, and their number."""
    return (basics.rank(), basics.size()) if basics.is_initialized() else (0, 1)


def _allgather_object(obj: Any) -> list[Any]:
    from hvd.objects import allgather_object

    return allgather_object(obj, name="hvd.data")


def _converted(batches: Generator[Columns, None, None], convert: Callable[[Columns], T]) -> Generator[T, None, None]:
    with contextlib.closing(batches):
        for batch in batches:
            yield convert(batch)


def _cut(blocks: Generator[Columns, None, None], batch_size: int) -> Generator[Columns, None, None]:
    """Blocks as batches of equal size; the last one has what is left."""
    parts: list[Columns] = []
    have = 0
    with contextlib.closing(blocks):
        for block in blocks:
            count, used = len(next(iter(block.values()))), 0
            while count - used >= batch_size - have:
                end = used + batch_size - have
                parts.append({name: values[used:end] for name, values in block.items()})
                yield _together(parts)
                parts, have, used = [], 0, end
            if used < count:
                parts.append({name: values[used:] for name, values in block.items()})
                have += count - used
        if parts:
            yield _together(parts)


def _together(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    return {name: _concatenated([part[name] for part in parts]) for name in parts[0]}


def _concatenated(values: list[Any]) -> Any:
    """Lists that are equally long within each block, but not over all blocks, become objects, as others do."""
    if all(part.shape[1:] == values[0].shape[1:] for part in values):
        return np.concatenate(values)
    ragged = np.empty(sum(map(len, values)), object)
    for number, row in enumerate(itertools.chain(*values)):
        ragged[number] = row
    return ragged
