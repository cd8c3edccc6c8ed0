"""Installs and builds what is missing. Runs before .venv exists, so it needs Python's own library only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv/bin/python"
HVD_PROGRAM = ROOT / "build/release/tests/bench/bench_collectives"
BENCH_PROGRAM = ROOT / "build/release/tools/bench/hvd-bench"
MPI_PLUGIN = "hvd_mpi_openmpi"  # which no program is linked with
MPI_SOURCE = ROOT / "tests/bench/mpi_collectives.c"
MPI_PROGRAM = ROOT / "build/bench/mpi_collectives"


def prepare() -> None:
    run(".ci/setup.sh", "build", "check")
    run("cmake", "--preset", "release", quiet=True)
    targets = (HVD_PROGRAM.name, BENCH_PROGRAM.name, MPI_PLUGIN)
    run("cmake", "--build", "--preset", "release", "--target", *targets, quiet=True)
    if not MPI_PROGRAM.exists() or MPI_PROGRAM.stat().st_mtime < MPI_SOURCE.stat().st_mtime:
        MPI_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        run("mpicc", "-O3", "-march=native", str(MPI_SOURCE), "-o", str(MPI_PROGRAM), "-lm")


def run(*command: str, quiet: bool = False) -> None:
    done = subprocess.run(command, cwd=ROOT, text=True, **({"stdout": subprocess.PIPE} if quiet else {}))
    if done.returncode != 0:
        sys.exit(f"{done.stdout or ''}\nthis failed: {' '.join(command)}")


def continue_in_environment() -> None:
    """Goes on in .venv, which has PyTorch, hvd and matplotlib."""
    if Path(sys.prefix) != PYTHON.parents[1]:
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
