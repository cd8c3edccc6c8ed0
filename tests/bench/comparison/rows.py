"""From what was measured to lines of the report. Pure.

A gate is met if the ratio of the medians reaches it; "by minima" says that only the ratio of the shortest times does.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .cases import CASES, COPY, HVD, MB, MPI, Case
from .gates import BEST_MPI, FAST_MEMORY, GATES, MACHINE, PEERS, SLOW_MEMORY, WIRE, Gate
from .limits import BYTES_MOVED, MEMORY_BOUND_GBPS, copied_gbps, copies_needed, wire_time
from .samples import Samples, Time


@dataclass(frozen=True)
class Row:
    """One line of the report. Of a mean there are no times."""

    case: str
    size: int | None
    peer: str
    hvd: Time | None
    other: Time | None
    by_medians: float
    by_minima: float
    gate: float | None

    @property
    def verdict(self) -> str:
        if self.gate is None:
            return ""
        if self.by_medians >= self.gate:
            return "met"
        return "by minima" if self.by_minima >= self.gate else "missed"


def peer_time(samples: Samples, case: Case, peer: str, size: int) -> Time | None:
    if peer == MACHINE:
        copy = samples.time(case.name, (COPY,), size) if size in BYTES_MOVED else None
        return copy.scaled(copies_needed(size)) if copy else None
    if peer == WIRE:
        bound = wire_time(case.place, size)
        return Time(bound, bound) if case.place.hosts > 1 and size >= MB else None
    if peer == BEST_MPI and set(PEERS[peer]) & set(case.contenders) == {MPI}:  # which has a row of its own
        return None
    return samples.time(case.name, PEERS[peer], size)


def machine_kind(samples: Samples, cases: Iterable[Case] = CASES) -> str | None:
    """By what a copy of the largest tensors reaches; None if that was not measured."""
    for case in cases:
        size = max(case.sizes)
        copy = samples.time(case.name, (COPY,), size)
        if copy:
            return SLOW_MEMORY if copied_gbps(size, copy.median) < MEMORY_BOUND_GBPS else FAST_MEMORY
    return None


def rows(samples: Samples, cases: Iterable[Case] = CASES, gates: Iterable[Gate] = GATES) -> list[Row]:
    cases, gates = list(cases), list(gates)
    machine = machine_kind(samples, cases)
    found = []
    for case in cases:
        for size in case.sizes:
            for peer in (*PEERS, MACHINE, WIRE):
                hvd, other = samples.time(case.name, (HVD,), size), peer_time(samples, case, peer, size)
                if not hvd or not other:
                    continue
                gate = next((g.ratio for g in gates if g.applies_to(case.name, peer, size, machine)), None)
                ratios = (other.median / hvd.median, other.min / hvd.min)
                found.append(Row(case.name, size, peer, hvd, other, *ratios, gate))
    return found + [mean for gate in gates if gate.mean for mean in mean_rows(gate, found)]


def mean_rows(gate: Gate, rows: list[Row]) -> list[Row]:
    means = []
    for peer in gate.peers:
        meant = [r for r in rows if r.case in gate.cases and r.size in gate.sizes and r.peer == peer]
        if len(meant) == len(gate.cases) * len(gate.sizes):  # of fewer it would be another mean
            by_medians = statistics.geometric_mean(row.by_medians for row in meant)
            by_minima = statistics.geometric_mean(row.by_minima for row in meant)
            title = f"geometric mean of {len(meant)}"
            means.append(Row(title, None, peer, None, None, by_medians, by_minima, gate.ratio))
    return means


def not_measured(gates: Iterable[Gate], rows: Iterable[Row], machine: str | None) -> list[tuple[str, str, int]]:
    """Case, peer and size of everything that a gate of this machine asks for and that has no row."""
    have = {(row.case, row.peer, row.size) for row in rows}
    asked = [
        (case, peer, size)
        for gate in gates
        if not gate.mean and gate.machine in (None, machine)
        for case in gate.cases
        for peer in gate.peers
        for size in gate.sizes
    ]
    return [wanted for wanted in asked if wanted not in have]
