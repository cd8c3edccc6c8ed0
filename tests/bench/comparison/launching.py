"""Process launches of contenders, by turns; each from the command to samples."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .cases import GLOO, HVD, HVD_AND_GLOO, Case
from .commands import COMMANDS, Launch
from .samples import Sample, Samples

LAUNCH_SECONDS = 600  # that a launch may take before it counts as hung
CANNOT = 69  # netlab.sh: it is this machine that cannot


class Impossible(Exception):
    """This machine cannot do it; the text says why."""


class Failed(Exception):
    """A launch ended badly: the text has what it wrote."""


def by_turns(
    cases: Iterable[Any], launches: int, measure: Callable[[Any, str, int], list[Sample]]
) -> tuple[Samples, dict[str, str], list[str]]:
    """Samples, why cases were not measured, and what failed. `measure` launches one of a case's contenders."""
    samples, absent, failures = Samples(), {}, []
    for case in cases:
        began = time.monotonic()
        print(f"==> {case.name}", end="", flush=True)
        try:
            for launch in range(launches):
                for contender in case.contenders:
                    samples.add(measure(case, contender, launch))
                print(".", end="", flush=True)
            print(f" {time.monotonic() - began:.0f} s")
        except Impossible as reason:
            absent[case.name] = str(reason)
            print(f" not measured: {reason}")
        except Failed as failure:
            failures.append(f"{case.name}, {contender}: {failure}")
            print(f" FAILED\n{failures[-1]}")
    return samples, absent, failures


def measure(case: Case, contender: str, number: int, seconds: float) -> list[Sample]:
    """All sizes of the case, each for about so many seconds. Raises Impossible or Failed."""
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        launch = Launch(case, seconds, Path(directory))
        run(COMMANDS[contender](launch))
        results = json.loads(launch.results.read_text())["results"]
    names = (HVD, GLOO) if contender == HVD_AND_GLOO else (contender,)
    return [sample(case.name, name, number, result) for result in results for name in names]


def sample(case: str, contender: str, number: int, result: dict) -> Sample:
    """Results of two contenders have the contender's name before each time's."""
    prefix = "" if "min_us" in result else f"{contender}_"
    times = (result[f"{prefix}{name}_us"] for name in ("min", "median", "p99"))
    return Sample(case, contender, number, result["bytes"], *times)


def run(command: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environment, text=True, **streams) as started:
        try:
            output, _ = started.communicate(timeout=LAUNCH_SECONDS)
        except subprocess.TimeoutExpired:
            end(started)
            raise Failed(f"not done after {LAUNCH_SECONDS} s: {shlex.join(command)}") from None
        except BaseException:  # this script is to end
            end(started)
            raise
    if started.returncode == CANNOT:
        raise Impossible(output.strip())
    if started.returncode != 0:
        raise Failed(f"exit code {started.returncode}: {shlex.join(command)}\n{output.strip()}")


def end(process: subprocess.Popen) -> None:
    """Launchers that are asked take their ranks with them."""
    process.terminate()
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
