"""How each contender is started, and how its results are read: one process launch at a time."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from .cases import (
    COPY,
    GLOO,
    GLOO_ROUND_ROBIN,
    HOROVOD,
    HVD,
    HVD_AND_GLOO,
    MPI,
    MPI_IN_PLACE,
    MPI_NO_CMA,
    MPI_NO_CMA_IN_PLACE,
    Case,
    format_size,
)
from .limits import LINK_GIGABITS
from .samples import Sample

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "tests/bench"
HVD_PROGRAM = ROOT / "build/release/tests/bench/bench_collectives"
MPI_PROGRAM = ROOT / "build/bench/mpi_collectives"
NETLAB = ROOT / "tests/support/netlab.sh"
HVDRUN = Path(sys.executable).parent / "hvdrun"

LAUNCH_SECONDS = 600  # that a launch may take before it counts as hung
CANNOT = 69  # netlab.sh: it is this machine that cannot


class Impossible(Exception):
    """This machine cannot do it; the text says why."""


class Failed(Exception):
    """A launch ended badly: the text has what it wrote."""


@dataclass(frozen=True)
class Launch:
    """What a contender's command is made of."""

    case: Case
    seconds: float  # for each size
    directory: Path  # for files of this launch

    @property
    def results(self) -> Path:
        return self.directory / "results.json"

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def work(self) -> list[str]:
        """The options that all programs have."""
        sizes = ",".join(map(str, self.case.sizes))
        return ["--sizes", sizes, "--seconds", str(self.seconds), "--json", str(self.results)]

    def collective(self, pinned: bool = False) -> list[str]:
        """Those of bench_collectives and mpi_collectives besides."""
        options = ["--collective", self.case.collective, "--tensors", str(self.case.tensors)]
        return [*self.work(), *options, *(["--pin"] if pinned else [])]


def measure(case: Case, contender: str, launch: int, seconds: float) -> list[Sample]:
    """One launch of one contender. Raises Impossible or Failed."""
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        plan = Launch(case, seconds, Path(directory))
        command = COMMANDS[contender](plan)
        if case.place.hosts > 1:
            command = [str(NETLAB), str(case.place.hosts), f"{LINK_GIGABITS:g}gbit", "bash", "-c", command[0]]
        run(command)
        results = json.loads(plan.results.read_text())["results"]
    names = (HVD, GLOO) if contender == HVD_AND_GLOO else (contender,)
    return [sample(case.name, name, launch, result) for result in results for name in names]


def sample(case: str, contender: str, launch: int, result: dict) -> Sample:
    """Results of two contenders have their names before each number."""
    prefix = "" if "min_us" in result else f"{contender}_"
    times = (result[f"{prefix}{name}_us"] for name in ("min", "median", "p99"))
    return Sample(case, contender, launch, result["bytes"], *times)


def run(command: list[str]) -> None:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
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


# ---- one command for a host; in a lab one line of bash


def address(host: int) -> str:
    return f"10.9.0.{host + 1}"


def on_hosts(commands: list[tuple[int, list[str]]]) -> list[str]:
    """All of them at once; the first that fails ends the lab and with it the others."""
    lines = [f"$NETLAB_RSH {address(host)} {shlex.quote(shlex.join(command))}" for host, command in commands]
    return ["\n".join([*(f"{{ {line} || kill $$; }} &" for line in lines), "wait"])]


def hvd(launch: Launch) -> list[str]:
    if launch.case.from_python:
        return hvd_from_python(launch)
    place = launch.case.place
    program = [str(HVD_PROGRAM), *launch.collective(place.pinned), "--ranks-per-host", str(place.ranks)]
    if place.hosts == 1:
        return program
    program += ["--hosts", str(place.hosts), "--store", str(launch.store), "--address", address(0)]
    return on_hosts([(host, [*program, "--host", str(host)]) for host in range(place.hosts)])


def copy(launch: Launch) -> list[str]:
    return hvd(replace(launch, case=replace(launch.case, collective="copy")))


def open_mpi(*settings: str, in_place: bool = False) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        place = launch.case.place
        words = ["mpirun", "-np", str(place.size), "--bind-to", "none", *settings]
        words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        if place.size > len(os.sched_getaffinity(0)):
            words += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        if place.hosts > 1:
            words += ["-H", ",".join(f"{address(host)}:{place.ranks}" for host in range(place.hosts))]
            for name in ("btl_tcp_if_include", "oob_tcp_if_include"):
                words += ["--mca", name, "10.9.0.0/24"]
        words += [str(MPI_PROGRAM), *launch.collective(place.pinned)]
        words += ["--in-place"] if in_place else []
        if place.hosts == 1:
            return words
        return [f'exec mpirun --mca plm_rsh_agent "$NETLAB_RSH" {shlex.join(words[1:])}']

    return command


# ---- from Python


def torch_program(library: str, launch: Launch) -> list[str]:
    return [sys.executable, str(BENCH / "torch_allreduce.py"), library, *launch.work()]


def hvd_from_python(launch: Launch) -> list[str]:
    return [str(HVDRUN), "-np", str(launch.case.place.size), *torch_program("hvd", launch)]


def hvd_and_gloo(launch: Launch) -> list[str]:
    """In the same processes, by turns."""
    place = launch.case.place
    title = f"{format_size(launch.case.sizes[0])}, synchronous"
    program = [sys.executable, str(BENCH / "torch_vs_gloo.py"), "--only", title, "--json", str(launch.results)]
    rounds = max(5, round(50 * launch.seconds))
    program += ["--rounds", str(rounds), *(["--pin"] if place.pinned else [])]
    return [str(HVDRUN), "-np", str(place.size), *program]


def horovod(launch: Launch) -> list[str]:
    ranks = str(launch.case.place.size)
    return ["horovodrun", "-np", ranks, "-H", f"localhost:{ranks}", *torch_program("horovod", launch)]


def gloo(host_of: Callable[[int, Launch], int]) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        place = launch.case.place
        program = [*torch_program("gloo", launch), "--store", str(launch.store)]
        environment = ["env", f"WORLD_SIZE={place.size}", "GLOO_SOCKET_IFNAME=eth0"]
        return on_hosts(
            [(host_of(rank, launch), [*environment, f"RANK={rank}", *program]) for rank in range(place.size)]
        )

    return command


COMMANDS: dict[str, Callable[[Launch], list[str]]] = {
    HVD: hvd,
    COPY: copy,
    MPI: open_mpi(),
    MPI_IN_PLACE: open_mpi(in_place=True),
    MPI_NO_CMA: open_mpi("--mca", "btl_vader_single_copy_mechanism", "none"),
    MPI_NO_CMA_IN_PLACE: open_mpi("--mca", "btl_vader_single_copy_mechanism", "none", in_place=True),
    GLOO: gloo(lambda rank, launch: rank // launch.case.place.ranks),
    GLOO_ROUND_ROBIN: gloo(lambda rank, launch: rank % launch.case.place.hosts),
    HVD_AND_GLOO: hvd_and_gloo,
    HOROVOD: horovod,
}
