"""What was measured, and its summary. Pure.

A sample is one process launch's measurement of one size: the shortest and the median time per call of its rounds, in
microseconds; or a number of something else that was counted. Of several launches the median of the medians counts, and
the shortest of all beside it. Where a peer has several settings the best one counts, for each size and each of the two
numbers by itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Sample:
    case: str
    contender: str
    launch: int
    bytes: int
    min: float
    median: float
    p99: float | None = None


@dataclass(frozen=True)
class Time:
    """Of a call: microseconds, or what else was counted."""

    median: float
    min: float

    def scaled(self, factor: float) -> Time:
        return Time(self.median * factor, self.min * factor)


class Samples:
    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._samples = list(samples)

    def add(self, samples: Iterable[Sample]) -> None:
        self._samples += samples

    def sizes(self, case: str) -> list[int]:
        return sorted({sample.bytes for sample in self._samples if sample.case == case})

    def time(self, case: str, contenders: Iterable[str], size: int) -> Time | None:
        """Of the best of the contenders; None where none was measured."""
        times = [self._of_one(case, contender, size) for contender in contenders]
        times = [time for time in times if time is not None]
        return Time(min(t.median for t in times), min(t.min for t in times)) if times else None

    def _of_one(self, case: str, contender: str, size: int) -> Time | None:
        wanted = (case, contender, size)
        found = [sample for sample in self._samples if (sample.case, sample.contender, sample.bytes) == wanted]
        if not found:
            return None
        return Time(statistics.median(sample.median for sample in found), min(sample.min for sample in found))

    def as_json(self) -> list[dict]:
        return [asdict(sample) for sample in self._samples]
