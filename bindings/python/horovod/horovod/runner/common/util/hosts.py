"""Hosts with their slots, and which rank gets which slot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_ENTRY = re.compile(r"[\w.-]+:[0-9]+")


@dataclass
class HostInfo:
    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Of "name:slots"; ValueError if it is not that."""
        entry = host_string.strip()
        if not _ENTRY.fullmatch(entry):
            raise ValueError(f"{entry!r} is not a host and its number of slots; write for instance localhost:4")
        hostname, slots = entry.rsplit(":", 1)
        return HostInfo(hostname, int(slots))


@dataclass
class SlotInfo:
    """A rank's place in a job."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int | None = None
    local_size: int | None = None
    cross_size: int | None = None

    def to_response_string(self) -> str:
        """Its numbers, separated by commas."""
        sizes = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(str(number) for number in sizes)


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Of "one:2,other:4"; ValueError if an entry is not a host with its slots."""
    return [HostInfo.from_string(entry) for entry in hosts_string.split(",")]


def parse_host_files(filename: str) -> str:
    """A file with lines "name slots=N", as one string "name:N,..."; lines that are empty or begin with # are not read.

    Raises:
        ValueError: a line is something else.
    """
    entries = []
    for number, line in enumerate(Path(filename).read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        slots = next((word[len("slots=") :] for word in words[1:] if word.startswith("slots=")), "")
        if not slots.isdigit():
            raise ValueError(f"{filename}, line {number}: {line.strip()!r}; write for instance node1 slots=4")
        entries.append(f"{words[0]}:{slots}")
    return ",".join(entries)


def get_host_assignments(
    hosts: Iterable[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Gives slots to ranks, host by host in the order given.

    Args:
        hosts: with their slots.
        min_num_proc: the fewest ranks that will do.
        max_num_proc: the most; None: one for each slot.

    Raises:
        ValueError: there are fewer slots than min_num_proc.
    """
    places = [(host.hostname, slot) for host in hosts for slot in range(host.slots)][:max_num_proc]
    if len(places) < min_num_proc:
        raise ValueError(f"{min_num_proc} processes are wanted, but there are only {len(places)} slots")
    by_slot = {local: [name for name, slot in places if slot == local] for _, local in places}
    return [
        SlotInfo(
            hostname=name,
            rank=rank,
            local_rank=local,
            cross_rank=by_slot[local].index(name),
            size=len(places),
            local_size=_count(name, places),
            cross_size=len(by_slot[local]),
        )
        for rank, (name, local) in enumerate(places)
    ]


def _count(hostname: str, places: Sequence[tuple[str, int]]) -> int:
    return sum(name == hostname for name, _ in places)
