"""Starts jobs as a user would: with hvdrun, or with the launcher that the variable TEST_LAUNCHER names (LAUNCHERS)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
PYTHON_WITH_MXNET = Path(sys.prefix) / "mxnet" / "bin" / "python"  # which .ci/setup.sh makes


def hvdrun() -> str:
    """The hvdrun of this Python's environment, or else the one on the PATH."""
    path = shutil.which("hvdrun", path=str(Path(sys.executable).parent)) or shutil.which("hvdrun")
    if path is None:
        raise FileNotFoundError("hvdrun is not installed: run pip install .")
    return path


# What stands before the number of ranks.
LAUNCHERS = {
    "hvdrun": [],
    "mpirun": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpiexec": ["mpiexec.mpich"],
}


def launcher() -> list[str]:
    return LAUNCHERS[os.environ.get("TEST_LAUNCHER", "hvdrun")] or [hvdrun()]


@dataclass
class Job:
    returncode: int
    output: str  # standard output and standard error of all ranks, as they came


def run_job(
    ranks: int,
    arguments: list[str],
    environment: dict[str, str] | None = None,
    limit_s: float = 600,
    cwd: Path | None = None,
) -> Job:
    """Runs `python <arguments>` on that many ranks. A job that takes longer than the limit is killed."""
    return run_command([*launcher(), "-np", str(ranks), sys.executable, *arguments], environment, limit_s, cwd)


def in_turn(*programs: str) -> list[str]:
    """What `python` is given to run programs of PROGRAMS, each with its arguments, one after the other."""
    words = " -- ".join(programs).split()
    return [str(PROGRAMS / "in_turn.py"), *words]


def run_command(
    command: list[str], environment: dict[str, str] | None = None, limit_s: float = 600, cwd: Path | None = None
) -> Job:
    """Runs a job as it would be typed, with these variables besides this process's own."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # Asked first, hvdrun ends its ranks.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        output += f"\nkilled after {limit_s} s"
    return Job(process.returncode, output)
