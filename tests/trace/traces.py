"""Runs random_program as a job and compares the traces of two jobs."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from launching import run_command

LIMIT_S = 600
UNEXPECTED = 4  # random_program: an outcome was not the expected one; it is marked in the trace

# What moves the data, and what tells a rank of it.
SHARED_MEMORY, TCP, TWO_HOSTS = "shared-memory", "tcp", "two-hosts"
PLACES = (SHARED_MEMORY, TCP, TWO_HOSTS)

# Limits beyond what a busy machine takes; a job that hangs ends with the operation's name.
TIMEOUT = {"HVD_STALL_CHECK_TIME_SECONDS": "40", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "60"}


@dataclass(frozen=True)
class Job:
    seed: int
    ranks: int
    place: str = SHARED_MEMORY
    lock: bool = True
    steps: int = 200

    def __str__(self) -> str:
        return f"--seed {self.seed} -np {self.ranks} {self.place} {'with' if self.lock else 'without'} locks"

    def settings(self) -> dict[str, str]:
        """The job's variables. Seeds differ in those that decide how buckets and chunks are cut and what is cached."""
        settings = {**TIMEOUT, "HVD_SCHEDULE_LOCK": str(int(self.lock))}
        if self.place == TCP:
            settings["HVD_SHARED_MEMORY"] = "0"
        settings |= [{}, {"HVD_FUSION_THRESHOLD": "0"}, {"HVD_FUSION_THRESHOLD": "4096"}][self.seed % 3]
        settings |= [{}, {"HVD_CHUNK_BYTES": "16384"}][self.seed // 3 % 2]
        settings |= [{}, {"HVD_CACHE_CAPACITY": "3"}][self.seed // 6 % 4 // 3]
        return settings

    def command(self, hvdrun: Path, program: Path, folder: Path) -> list[str]:
        started = [str(program), "--seed", str(self.seed), "--steps", str(self.steps), "--trace", str(folder)]
        settings = [word for name, value in self.settings().items() for word in ("-x", f"{name}={value}")]
        if self.place != TWO_HOSTS:
            return [str(hvdrun), "-np", str(self.ranks), *settings, *started]
        half = ["-np", str(self.ranks // 2), *settings]
        one, other = ([*half, "-x", f"HVD_HOST_ID={host}", *started] for host in ("one", "other"))
        return [str(hvdrun), *one, ":", *other]


@dataclass(frozen=True)
class Traces:
    """A job's traces by rank, each a list of lines. `failure`: what it said, if it did not come to its end."""

    by_rank: list[list[str]]
    failure: str = ""

    @property
    def late(self) -> bool:
        """A rank was so late that a schedule was given up: the decisions depend on that."""
        return any("late" in trace for trace in self.by_rank)

    @property
    def unexpected(self) -> list[str]:
        return [line for trace in self.by_rank for line in trace if "UNEXPECTED" in line]

    def without_decisions(self) -> Traces:
        def kept(line: str) -> bool:
            return not line.startswith("decisions") and line != "late"

        return Traces([list(filter(kept, trace)) for trace in self.by_rank], self.failure)


def run(job: Job, hvdrun: Path, program: Path) -> Traces:
    with tempfile.TemporaryDirectory() as folder:
        ended = run_command(job.command(hvdrun, program, Path(folder)), limit_s=LIMIT_S)
        files = [Path(folder, str(rank)) for rank in range(job.ranks)]
        by_rank = [file.read_text().splitlines() if file.exists() else [] for file in files]
    came_to_its_end = ended.returncode in (0, UNEXPECTED)
    return Traces(by_rank, "" if came_to_its_end else f"exit code {ended.returncode}: {ended.output.strip()}")


def difference(old: Traces, new: Traces) -> str:
    """The first lines in which the traces differ, of the lowest rank; empty if there is none."""
    if old.failure or new.failure:
        return f"old: {old.failure or 'ended well'}\nnew: {new.failure or 'ended well'}"
    if old.late or new.late:
        old, new = old.without_decisions(), new.without_decisions()
    for rank, (before, after) in enumerate(zip(old.by_rank, new.by_rank)):
        length = max(len(before), len(after))
        pairs = zip(padded(before, length), padded(after, length))
        for first, (was, now) in enumerate(pairs):
            if was != now:
                return f"rank {rank}, line {first + 1}\n- {was}\n+ {now}"
    return ""


def padded(trace: list[str], length: int) -> list[str]:
    return trace + ["(nothing)"] * (length - len(trace))
