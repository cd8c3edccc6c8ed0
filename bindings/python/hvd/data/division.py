"""How the rows of an epoch are divided among ranks. All of it is arithmetic: every rank computes the same from the same
numbers.

An epoch is a sequence of rows, the same on all ranks (`Order`). A rank gets one run of what remains of the sequence,
as long as the others' to a row, and the ranks go through their runs in step. So what was processed is known from the
number of steps, and what remains is a few intervals, which other ranks, more or fewer, can divide anew.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Interval = tuple[int, int]

UNEVEN = ("repeat", "drop", "join")


class Group(NamedTuple):
    """Rows that are read together: a row group of a Parquet file, or consecutive records of a TFRecord file."""

    file: int  # its index in the list of files
    start: int  # the row group's number, or the first byte
    stop: int
    rows: int


class Piece(NamedTuple):
    """Consecutive rows of an epoch's sequence: rows `start` to `stop` of a block, in the block's order."""

    block: int
    start: int
    stop: int


@dataclass(frozen=True)
class Order:
    """The sequence of an epoch: blocks of `mix` groups, whose rows are mixed. The order of groups, and that of rows in
    a block, follow from seed and epoch. Without shuffling, a block is a group."""

    groups: Sequence[Group]
    mix: int
    shuffle: bool
    seed: int
    epoch: int
    blocks: list[list[Group]] = field(init=False)
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        groups = [group for group in self.groups if group.rows > 0]
        size = 1
        if self.shuffle:
            random.Random(f"{self.seed} {self.epoch}").shuffle(groups)
            size = self.mix
        blocks = [groups[first : first + size] for first in range(0, len(groups), size)]
        rows = (sum(group.rows for group in block) for block in blocks)
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "_starts", list(itertools.accumulate(rows, initial=0)))

    @property
    def rows(self) -> int:
        return self._starts[-1]

    def pieces(self, intervals: Sequence[Interval]) -> Iterator[Piece]:
        for start, stop in intervals:
            block = bisect_right(self._starts, start) - 1
            while start < stop:
                end = min(stop, self._starts[block + 1])
                yield Piece(block, start - self._starts[block], end - self._starts[block])
                start, block = end, block + 1

    def block_seed(self, block: int) -> list[int]:
        """Of the generator that permutes the rows of a block."""
        return [self.seed, self.epoch, block]


@dataclass(frozen=True)
class Division:
    """What remains of an epoch, divided among `size` ranks that process `batch_size` rows in each step.

    Attributes:
        uneven: where the rows cannot be divided evenly, "repeat": all ranks have as many rows as the longest run, and
            take what they lack from the beginning of the next one; "drop": all have as many whole batches as the
            shortest; "join": each has its own rows, and so may have one batch less than others.
    """

    remaining: Sequence[Interval]
    size: int
    batch_size: int
    uneven: str

    def rows_of(self, rank: int) -> int:
        rows = self._rows()
        if self.uneven == "repeat":
            return -(-rows // self.size)
        if self.uneven == "drop":
            return rows // self.size // self.batch_size * self.batch_size
        return self._start(rank + 1) - self._start(rank)

    def steps(self, rank: int) -> int:
        return -(-self.rows_of(rank) // self.batch_size)

    def intervals(self, rank: int) -> list[Interval]:
        """Of the epoch's sequence: what the rank reads, in this order."""
        rows, start, left = self._rows(), self._start(rank), self.rows_of(rank)
        runs: list[Interval] = []
        while left > 0:
            start %= rows
            stop = min(start + left, rows)
            runs.append((start, stop))
            left, start = left - (stop - start), stop
        return [part for run in runs for part in self._sliced(*run)]

    def after(self, steps: int) -> list[Interval]:
        """What remains once each rank has done that many steps."""
        left: list[Interval] = []
        for rank in range(self.size):
            stop = self._start(rank + 1)
            left += self._sliced(min(self._start(rank) + steps * self.batch_size, stop), stop)
        return joined(left)

    def _rows(self) -> int:
        return sum(stop - start for start, stop in self.remaining)

    def _start(self, rank: int) -> int:
        return rank * self._rows() // self.size

    def _sliced(self, start: int, stop: int) -> list[Interval]:
        """Rows `start` to `stop` of what remains."""
        found, before = [], 0
        for first, last in self.remaining:
            low, high = max(first, first + start - before), min(last, first + stop - before)
            if low < high:
                found.append((low, high))
            before += last - first
        return found


def joined(intervals: Sequence[Interval]) -> list[Interval]:
    """The same intervals, those that touch as one."""
    found: list[Interval] = []
    for start, stop in intervals:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
