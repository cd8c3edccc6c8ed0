"""One process launch of one version, from the command to samples."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from comparison import launching
from comparison.commands import BENCH, address, in_lab, pinned
from comparison.launching import Impossible
from comparison.samples import Sample

from .cases import CPP, INSTRUCTIONS, PYTHON, SYSTEM_CALLS, TRAINING, Case
from .versions import Version

TRACEPOINT = Path("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id")  # where counted_steps looks
COUNTED_ROUNDS, STEPS_PER_ROUND = 40, 50
ROUNDS_PER_SECOND = 50  # of training.py


def measure(case: Case, version: Version, number: int, seconds: float) -> list[Sample]:
    """Each size of the case for about so many seconds. Raises Impossible or Failed."""
    check_machine(case)
    with tempfile.TemporaryDirectory(prefix="versions-") as folder:
        results = Path(folder, "results")
        launching.run(command(case, version, seconds, results))
        text = results.read_text()
    if case.program == INSTRUCTIONS:
        count = instructions(text) / (COUNTED_ROUNDS * STEPS_PER_ROUND)
        return [Sample(case.name, version.name, number, 8, count, count)]
    return [sample(case, version, number, result) for result in json.loads(text)["results"]]


def sample(case: Case, version: Version, number: int, result: dict) -> Sample:
    if case.program == SYSTEM_CALLS:
        return Sample(case.name, version.name, number, result["bytes"], result["min"], result["median"])
    if case.program == TRAINING:
        best, median = (1e6 / result[name] for name in ("hvd_best", "hvd_median"))  # which are steps a second
        return Sample(case.name, version.name, number, 0, best, median)
    return launching.sample(case.name, version.name, number, result)


def check_machine(case: Case) -> None:
    if case.program == SYSTEM_CALLS and not os.access(TRACEPOINT, os.R_OK):
        raise Impossible(f"counting system calls needs root and {TRACEPOINT}")
    if case.program == INSTRUCTIONS and shutil.which("valgrind") is None:
        raise Impossible("valgrind is missing (Debian: valgrind)")


def command(case: Case, version: Version, seconds: float, results: Path) -> list[str]:
    counted_steps = [version.measuring("counted_steps"), "--rounds", str(COUNTED_ROUNDS), *case.options]
    counted_steps += ["--steps", str(STEPS_PER_ROUND)]
    if case.program == INSTRUCTIONS:  # the same ones on every machine, whether its processor can count them or not
        options = [f"--callgrind-out-file={results}", "--toggle-collect=take_counted_steps"]
        return ["valgrind", "--tool=callgrind", *options, *counted_steps]
    timed = ["--seconds", str(seconds), "--json", str(results)]
    python = version.installed("python")
    programs = {
        CPP: [version.measuring("hvd-bench"), "allreduce", "--in-place", *case.options, *timed],
        PYTHON: [python, str(BENCH / "torch_allreduce.py"), "hvd", *case.options, *timed],
        TRAINING: [python, str(BENCH / "training.py"), *case.options, "--json", str(results)],
        SYSTEM_CALLS: [*counted_steps, "--json", str(results)],
    }
    programs[TRAINING] += ["--rounds", str(max(3, round(ROUNDS_PER_SECOND * seconds)))]
    return job(case, version, programs[case.program])


def job(case: Case, version: Version, program: list[str]) -> list[str]:
    """In a lab whose links have no limit: there all time is that of software."""
    place = case.place
    hvdrun = [version.installed("hvdrun"), "-np", str(place.size)]
    program = pinned(program) if place.pinned else program
    command = [*hvdrun, *([] if case.locked else ["-x", "HVD_SCHEDULE_LOCK=0"])]
    if place.hosts == 1:
        return [*command, *program]
    hosts = ",".join(f"{address(host)}:{place.ranks}" for host in range(place.hosts))
    script = f'exec {shlex.join(command)} --rsh "$NETLAB_RSH" -H {hosts} {shlex.join(program)}'
    return in_lab(place, script, rate="none")


def instructions(output: str) -> int:
    """Of the function that callgrind was told to collect."""
    found = re.search(r"^totals: (\d+)", output, re.MULTILINE)
    if not found:
        raise launching.Failed(f"callgrind wrote no total:\n{output[:1000]}")
    return int(found.group(1))
