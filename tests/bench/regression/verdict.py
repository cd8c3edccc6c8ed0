"""Whether the new version is as good as the old one. Pure.

A ratio is the new version's number by the old one's. A row is within its limit if the ratio of the medians is; "by
minima" says that only the ratio of the smallest numbers is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from comparison.cases import MB, format_size
from comparison.report import aligned, format_time
from comparison.samples import Samples, Time

from .cases import INSTRUCTIONS, NEW, OLD, SYSTEM_CALLS, Case

WITHIN, BY_MINIMA, MISSED = "within", "by minima", "missed"
HEADLINE = ("case", "size", "old min", "old median", "new min", "new median", "medians", "minima", "limit", "")


@dataclass(frozen=True)
class Limit:
    ratio: float
    noise: float = 0.0  # a difference that says nothing, whatever its ratio

    def holds(self, old: float, new: float) -> bool:
        return new <= max(old * self.ratio, old + self.noise)


LIMITS = {
    "time": Limit(1.03),
    INSTRUCTIONS: Limit(1.02),
    SYSTEM_CALLS: Limit(1.03, noise=0.1),  # of a locked step there are next to none
}


@dataclass(frozen=True)
class Row:
    case: str
    size: int  # bytes; 0: it has none
    unit: str
    old: Time
    new: Time

    @property
    def limit(self) -> Limit:
        return LIMITS[self.unit]

    @property
    def by_medians(self) -> float:
        return ratio(self.old.median, self.new.median)

    @property
    def by_minima(self) -> float:
        return ratio(self.old.min, self.new.min)

    @property
    def verdict(self) -> str:
        if self.limit.holds(self.old.median, self.new.median):
            return WITHIN
        return BY_MINIMA if self.limit.holds(self.old.min, self.new.min) else MISSED


def ratio(old: float, new: float) -> float:
    if old == 0:
        return 1.0 if new == 0 else math.inf
    return new / old


def rows(samples: Samples, cases: Iterable[Case]) -> list[Row]:
    found = []
    for case in cases:
        for size in samples.sizes(case.name):
            old, new = samples.time(case.name, (OLD,), size), samples.time(case.name, (NEW,), size)
            if old and new:
                found.append(Row(case.name, size, case.unit, old, new))
    return found


def table(rows: Iterable[Row]) -> str:
    return aligned([HEADLINE, *(cells(row) for row in rows)], left={0, 9})


def cells(row: Row) -> tuple[str, ...]:
    numbers = (row.old.min, row.old.median, row.new.min, row.new.median)
    return (
        row.case,
        size_text(row.size),
        *(format_time(number) if row.unit == "time" else f"{number:.2f}" for number in numbers),
        f"{row.by_medians:.3f}",
        f"{row.by_minima:.3f}",
        f"{row.limit.ratio:g}",
        row.verdict,
    )


def as_json(conditions: dict, samples: Samples, rows: Iterable[Row], absent: dict[str, str]) -> dict:
    return {
        "conditions": conditions,
        "rows": [{**asdict(row), **judgement(row)} for row in rows],
        "samples": samples.as_json(),
        "not_measured": absent,
    }


def judgement(row: Row) -> dict:
    return {
        "by_medians": row.by_medians,
        "by_minima": row.by_minima,
        "limit": row.limit.ratio,
        "verdict": row.verdict,
    }


def size_text(size: int) -> str:
    """Of several tensors together it is a round number only in part."""
    if size == 0:
        return ""
    return format_size(size if size < MB else round(size / MB) * MB)


def summary(rows: Iterable[Row], absent: int, failed: int) -> str:
    verdicts = [row.verdict for row in rows]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in (WITHIN, BY_MINIMA, MISSED)]
    return ", ".join([*counts, f"cases not measured: {absent}, failed: {failed}"])
