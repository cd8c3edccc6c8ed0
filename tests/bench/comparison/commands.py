"""The command that starts each contender for a case, on this host or in a lab."""

from __future__ import annotations

import os
import shlex
import sys
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
    HVD_DIRECT,
    MPI,
    MPI_IN_PLACE,
    MPI_NO_CMA,
    MPI_NO_CMA_IN_PLACE,
    Case,
    Place,
    format_size,
)
from .limits import LINK_GIGABITS
from .preparation import BENCH_PROGRAM, HVD_PROGRAM, MPI_PROGRAM, ROOT

BENCH = ROOT / "tests/bench"
NETLAB = ROOT / "tests/support/netlab.sh"
HVDRUN = Path(sys.executable).parent / "hvdrun"


@dataclass(frozen=True)
class Launch:
    """What a command is made of."""

    case: Case
    seconds: float  # for each size
    directory: Path  # for the files of this launch

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

    def collective(self) -> list[str]:
        """Those that bench_collectives and mpi_collectives have."""
        case = self.case
        options = ["--collective", case.collective, "--tensors", str(case.tensors)]
        return [*self.work(), *options, *(["--pin"] if case.place.pinned else [])]


# ---- labs


def address(host: int) -> str:
    return f"10.9.0.{host + 1}"


def in_lab(place: Place, script: str, rate: str = f"{LINK_GIGABITS:g}gbit") -> list[str]:
    return [str(NETLAB), str(place.hosts), rate, "bash", "-c", script]


def on_hosts(place: Place, commands: list[tuple[int, list[str]]]) -> list[str]:
    """Commands by host, all at once. The first that fails ends the lab and with it the others."""
    lines = [f"$NETLAB_RSH {address(host)} {shlex.quote(shlex.join(command))}" for host, command in commands]
    return in_lab(place, "\n".join([*(f"{{ {line} || kill $$; }} &" for line in lines), "wait"]))


# ---- the data plane, called directly


def hvd(launch: Launch) -> list[str]:
    case, place = launch.case, launch.case.place
    if case.from_python:
        return [str(HVDRUN), "-np", str(place.size), *torch_program("hvd", launch)]
    if case.from_cpp:
        return hvd_bench(launch)
    program = [str(HVD_PROGRAM), *launch.collective(), "--ranks-per-host", str(place.ranks)]
    program += ["--arena"] if case.arena else []
    if place.hosts == 1:
        return program
    program += ["--hosts", str(place.hosts), "--store", str(launch.store), "--address", address(0)]
    return on_hosts(place, [(host, [*program, "--host", str(host)]) for host in range(place.hosts)])


def hvd_bench(launch: Launch) -> list[str]:
    case, place = launch.case, launch.case.place
    program = [str(BENCH_PROGRAM), case.collective, *launch.work(), *(["--in-place"] if case.in_place else [])]
    program = pinned(program) if place.pinned else program
    if case.backend:
        return ["mpirun", *mpi_options(place), "-x", f"HVD_CPU_BACKEND={case.backend}", *program]
    return [str(HVDRUN), "-np", str(place.size), *program]


def pinned(program: list[str]) -> list[str]:
    """A rank's program on one of the CPUs that this process may use, whether hvdrun starts it or mpirun."""
    cpus = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    number = "${HVD_LOCAL_RANK:-$OMPI_COMM_WORLD_LOCAL_RANK}"
    script = f'cpus=({cpus}); exec taskset -c "${{cpus[{number} % ${{#cpus[@]}}]}}" {shlex.join(program)}'
    return ["bash", "-c", script]


def hvd_direct(launch: Launch) -> list[str]:
    return hvd(replace(launch, case=replace(launch.case, from_cpp=False)))


def copy(launch: Launch) -> list[str]:
    return hvd(replace(launch, case=replace(launch.case, collective="copy")))


def mpi_options(place: Place) -> list[str]:
    """Of Open MPI's mpirun."""
    options = ["-np", str(place.size), "--bind-to", "none"]
    options += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if place.size > len(os.sched_getaffinity(0)):
        options += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    return options


def open_mpi(*settings: str, in_place: bool = False) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        place = launch.case.place
        options = [*mpi_options(place), *settings]
        program = [str(MPI_PROGRAM), *launch.collective(), *(["--in-place"] if in_place else [])]
        if place.hosts == 1:
            return ["mpirun", *options, *program]
        options += ["-H", ",".join(f"{address(host)}:{place.ranks}" for host in range(place.hosts))]
        for name in ("btl_tcp_if_include", "oob_tcp_if_include"):
            options += ["--mca", name, "10.9.0.0/24"]
        return in_lab(place, f'exec mpirun --mca plm_rsh_agent "$NETLAB_RSH" {shlex.join([*options, *program])}')

    return command


# ---- from Python


def torch_program(library: str, launch: Launch) -> list[str]:
    return [sys.executable, str(BENCH / "torch_allreduce.py"), library, *launch.work()]


def gloo(host_of: Callable[[int, Place], int]) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        place = launch.case.place
        environment = ["env", f"WORLD_SIZE={place.size}", "GLOO_SOCKET_IFNAME=eth0"]
        program = [*torch_program("gloo", launch), "--store", str(launch.store)]
        ranks = range(place.size)
        return on_hosts(place, [(host_of(rank, place), [*environment, f"RANK={rank}", *program]) for rank in ranks])

    return command


def hvd_and_gloo(launch: Launch) -> list[str]:
    place = launch.case.place
    title = launch.case.title or f"{format_size(launch.case.sizes[0])}, synchronous"
    program = [sys.executable, str(BENCH / "torch_vs_gloo.py"), "--only", title, "--json", str(launch.results)]
    rounds = max(5, round(50 * launch.seconds))
    program += ["--rounds", str(rounds), *(["--pin"] if place.pinned else [])]
    return [str(HVDRUN), "-np", str(place.size), *program]


def horovod(launch: Launch) -> list[str]:
    ranks = str(launch.case.place.size)
    return ["horovodrun", "-np", ranks, "-H", f"localhost:{ranks}", *torch_program("horovod", launch)]


WITHOUT_CMA = ("--mca", "btl_vader_single_copy_mechanism", "none")

COMMANDS: dict[str, Callable[[Launch], list[str]]] = {
    HVD: hvd,
    HVD_DIRECT: hvd_direct,
    COPY: copy,
    MPI: open_mpi(),
    MPI_IN_PLACE: open_mpi(in_place=True),
    MPI_NO_CMA: open_mpi(*WITHOUT_CMA),
    MPI_NO_CMA_IN_PLACE: open_mpi(*WITHOUT_CMA, in_place=True),
    GLOO: gloo(lambda rank, place: rank // place.ranks),
    GLOO_ROUND_ROBIN: gloo(lambda rank, place: rank % place.hosts),
    HVD_AND_GLOO: hvd_and_gloo,
    HOROVOD: horovod,
}
