"""What hvd must reach: a table.

A ratio is a peer's time by hvd's. Of a limit it is the share of it that hvd reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cases import ALL_MPI, GLOO, GLOO_ROUND_ROBIN, HOROVOD, HVD_DIRECT, KB, MB, MPI, OTHER_COLLECTIVES, OTHER_SIZES

BEST_MPI = "Open MPI at its best"
MACHINE = "the machine's limit"
WIRE = "the wire's limit"

# Who stands for a peer: the best of these contenders.
PEERS = {
    HVD_DIRECT: (HVD_DIRECT,),
    MPI: (MPI,),
    BEST_MPI: ALL_MPI,
    GLOO: (GLOO,),
    GLOO_ROUND_ROBIN: (GLOO_ROUND_ROBIN,),
    HOROVOD: (HOROVOD,),
}

SLOW_MEMORY, FAST_MEMORY = "bound by memory", "not bound by memory"


@dataclass(frozen=True)
class Gate:
    cases: tuple[str, ...]
    peers: tuple[str, ...]
    sizes: tuple[int, ...]
    ratio: float
    machine: str | None = None  # only on such a machine
    mean: bool = False  # the geometric mean over cases and sizes, instead of each

    def applies_to(self, case: str, peer: str, size: int, machine: str | None) -> bool:
        here = self.machine is None or self.machine == machine
        return here and not self.mean and case in self.cases and peer in self.peers and size in self.sizes


OTHERS = tuple(f"np={ranks}, {collective}" for ranks in (2, 4) for collective in OTHER_COLLECTIVES)
SMALL = (8, 64, KB)

GATES = (
    Gate(("np=2 pinned",), (MPI, BEST_MPI), (8, KB, 4 * KB), 1.5),
    Gate(("np=2 pinned",), (MPI, BEST_MPI), (16 * KB, 64 * KB), 1.3),
    Gate(("np=2 pinned",), (BEST_MPI,), (256 * KB, MB, 4 * MB), 0.95, machine=SLOW_MEMORY),
    Gate(("np=2 pinned",), (BEST_MPI,), (256 * KB, MB, 4 * MB), 1.2, machine=FAST_MEMORY),
    Gate(("np=2 pinned, arena",), (BEST_MPI,), (256 * KB, MB, 4 * MB), 1.2, machine=SLOW_MEMORY),
    Gate(("np=2 pinned, arena",), (BEST_MPI,), (256 * KB, MB, 4 * MB), 1.4, machine=FAST_MEMORY),
    Gate(("np=2 pinned",), (BEST_MPI,), (64 * MB,), 1.8),
    Gate(("np=2 pinned, arena",), (BEST_MPI,), (64 * MB,), 3.0),
    Gate(("np=2 pinned, 100 tensors",), (BEST_MPI,), (64 * MB,), 3.0),
    Gate(("np=4",), (MPI, BEST_MPI), (8,), 1.7),
    Gate(("np=4",), (MPI, BEST_MPI), (KB, 128 * KB), 2.5),
    Gate(("np=4",), (MPI, BEST_MPI), (16 * MB,), 1.6),
    Gate(("np=16",), (MPI, BEST_MPI), (8,), 3.0),
    Gate(("np=16",), (MPI, BEST_MPI), (KB,), 5.0),
    Gate(("np=16",), (MPI, BEST_MPI), (16 * MB,), 1.5),
    Gate(("np=2 pinned, from Python", "np=4, from Python"), (GLOO,), (16 * MB,), 2.5),
    Gate(("np=2 pinned, from C++",), (MPI, BEST_MPI), (8, 64, KB, 4 * KB), 1.3),
    Gate(("np=2 pinned, from C++",), (HVD_DIRECT,), (8,), 1 / 1.3),
    Gate(("np=2 pinned, MPI's allreduce beneath hvd",), (BEST_MPI,), (4 * MB, 16 * MB, 64 * MB), 1 / 1.05),
    Gate(("np=2 pinned, MPI's messages beneath hvd",), (BEST_MPI,), (256 * KB, MB, 4 * MB), 0.95, machine=SLOW_MEMORY),
    Gate(("np=2 pinned, MPI's messages beneath hvd",), (BEST_MPI,), (256 * KB, MB, 4 * MB), 1.2, machine=FAST_MEMORY),
    Gate(("np=2 pinned, MPI's messages beneath hvd",), (BEST_MPI,), (64 * MB,), 1.8),
    Gate(("np=2 pinned, small from Python",), (GLOO,), (8,), 15.0),
    Gate(("np=16, 160 tensors from Python",), (GLOO,), (1280,), 3.0),
    Gate(("np=2 pinned",), (MACHINE,), (4 * MB,), 0.70),
    Gate(("np=2 pinned",), (MACHINE,), (64 * MB,), 0.40),
    Gate(("4 hosts", "8 hosts"), (WIRE,), (32 * MB,), 0.93),
    Gate(("4 hosts", "8 hosts"), (MPI,), (32 * MB,), 1.8),
    Gate(("4 hosts", "8 hosts"), (GLOO,), (32 * MB,), 0.98),
    Gate(("4 hosts of 2",), (WIRE,), (32 * MB,), 0.90),
    Gate(("4 hosts of 2",), (GLOO,), (32 * MB,), 1.05),
    Gate(("4 hosts of 2",), (GLOO_ROUND_ROBIN,), (32 * MB,), 1.5),
    Gate(("4 hosts",), (MPI,), SMALL, 0.95),
    Gate(("4 hosts",), (GLOO,), SMALL, 6.0),
    Gate(("8 hosts",), (MPI,), SMALL, 0.75),
    Gate(("8 hosts",), (GLOO,), SMALL, 5.0),
    Gate(OTHERS, (MPI,), OTHER_SIZES, 1.0),
    Gate(OTHERS, (MPI,), OTHER_SIZES, 1.3, mean=True),
)
