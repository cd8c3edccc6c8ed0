"""The report as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from .cases import format_size
from .gates import MACHINE, PEERS, WIRE
from .rows import Row
from .samples import Samples

HEADLINE = ("case", "size", "beside", "hvd", "other", "medians", "minima", "gate", "")


def table(rows: Iterable[Row]) -> str:
    return aligned([HEADLINE, *(cells(row) for row in rows)], left={0, 2, 8})


def aligned(lines: list[tuple[str, ...]], left: set[int]) -> str:
    """A table; columns of words go to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def markdown(rows: Iterable[Row]) -> str:
    """A line for each case and size, with a column for each peer: ratios by medians, and what a gate asks for.

    Bold is what misses its gate.
    """
    rows = list(rows)
    peers = [peer for peer in (*PEERS, MACHINE, WIRE) if any(row.peer == peer for row in rows)]
    lines: dict[tuple[str, int | None], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault((row.case, row.size), {})[row.peer] = row
    text = [["case", "size", "hvd", *peers], ["---"] * (3 + len(peers))]
    for (case, size), by_peer in lines.items():
        hvd = next(iter(by_peer.values())).hvd
        ratios = [markdown_ratio(by_peer[peer]) if peer in by_peer else "" for peer in peers]
        text.append([case, format_size(size) if size else "", format_time(hvd.median) if hvd else "", *ratios])
    return "\n".join(f"| {' | '.join(line)} |" for line in text)


def markdown_ratio(row: Row) -> str:
    share = row.peer in (MACHINE, WIRE)
    ratio = format_ratio(row.by_medians, share)
    if row.gate is None:
        return ratio
    return f"{ratio if row.verdict == 'met' else f'**{ratio}**'} (≥ {format_ratio(row.gate, share)})"


def cells(row: Row) -> tuple[str, ...]:
    share = row.peer in (MACHINE, WIRE)
    return (
        row.case,
        format_size(row.size) if row.size else "",
        row.peer,
        format_time(row.hvd.median) if row.hvd else "",
        format_time(row.other.median) if row.other else "",
        format_ratio(row.by_medians, share),
        format_ratio(row.by_minima, share),
        format_ratio(row.gate, share) if row.gate is not None else "",
        row.verdict,
    )


def format_ratio(ratio: float, share: bool) -> str:
    return f"{ratio:.0%}" if share else f"{ratio:.2f}x"


def format_time(microseconds: float) -> str:
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= factor:
            return f"{microseconds / factor:.2f} {unit}"
    return f"{microseconds:.2f} us"


def summary(rows: Iterable[Row], missing: Iterable[tuple[str, str, int]]) -> str:
    verdicts = [row.verdict for row in rows if row.verdict]
    counts = {verdict: verdicts.count(verdict) for verdict in ("met", "by minima", "missed")}
    return ", ".join(
        [
            f"gates: {counts['met']} met",
            f"{counts['by minima']} met by minima only",
            f"{counts['missed']} missed",
            f"{len(list(missing))} not measured",
        ]
    )


def explain(conditions: dict, machine: str | None) -> str:
    return "\n".join(
        [
            *describe(conditions, machine or "memory not measured"),
            "Times are medians per call on rank 0. Ratios are the other's time by hvd's: by medians of the launches' "
            "medians, and by the",
            "shortest times of all launches. Beside a limit: the share of it that hvd reaches.",
        ]
    )


def describe(conditions: dict, *more: str) -> list[str]:
    """Where and with what was measured, in two lines."""
    versions = ", ".join(f"{name} {version}" for name, version in conditions["versions"].items() if version)
    cores = f"cores {' and '.join(map(str, conditions['used_cores']))} of {conditions['cores']}"
    machine = [
        f"{conditions['cpu']}{', virtual' if conditions['hypervisor'] else ''}",
        *[cores, f"{conditions['memory_gib']} GiB", *more],
    ]
    return [
        f"{conditions['date']}: {', '.join(machine)}; Linux {conditions['kernel']}, load "
        f"{conditions['load_average']:.1f} at the start",
        f"{versions}; {conditions['launches']} launches of each, by turns",
    ]


def as_json(conditions: dict, samples: Samples, rows: Iterable[Row], absent: dict[str, str]) -> dict:
    return {
        "conditions": conditions,
        "rows": [{**asdict(row), "verdict": row.verdict} for row in rows],
        "samples": samples.as_json(),
        "not_measured": absent,
    }
