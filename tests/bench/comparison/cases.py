"""What is measured: a case is some sizes of one collective in one place, done by hvd and by others in turn."""

from __future__ import annotations

from dataclasses import dataclass

KB, MB = 1 << 10, 1 << 20

HVD = "hvd"
HVD_DIRECT = "hvd called directly"  # the data plane alone, where the other one is a program's own call
COPY = "copy"  # the machine's own limit
GLOO, GLOO_ROUND_ROBIN = "gloo", "gloo round-robin"  # its ranks in host order, or host by host
HVD_AND_GLOO = "hvd and gloo"  # in the same processes, by turns
HOROVOD = "Horovod"
MPI = "Open MPI"
MPI_IN_PLACE = "Open MPI in place"
MPI_NO_CMA = "Open MPI without CMA"
MPI_NO_CMA_IN_PLACE = "Open MPI without CMA in place"

ALL_MPI = (MPI, MPI_IN_PLACE, MPI_NO_CMA, MPI_NO_CMA_IN_PLACE)


@dataclass(frozen=True)
class Place:
    """Where ranks run: on this machine's first two cores, as one host or as several hosts of a lab."""

    ranks: int  # on each host
    hosts: int = 1
    pinned: bool = False  # rank r on core r

    @property
    def size(self) -> int:
        return self.hosts * self.ranks


@dataclass(frozen=True)
class Case:
    name: str
    place: Place
    sizes: tuple[int, ...]  # bytes
    contenders: tuple[str, ...]
    collective: str = "allreduce"
    tensors: int = 1
    arena: bool = False  # hvd's tensors lie in the memory that the ranks share, the others' where they always do
    from_cpp: bool = False  # hvd as a program calls it (hvd.hpp), and not its data plane alone
    backend: str = ""  # HVD_CPU_BACKEND of a job that mpirun starts; for from_cpp
    in_place: bool = False  # hvd's too
    from_python: bool = False
    title: str = ""  # that torch_vs_gloo.py has for it, if not the size and "synchronous"


PINNED_PAIR = Place(ranks=2, pinned=True)
SIZES = (8, KB, 4 * KB, 16 * KB, 64 * KB, 128 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB)
SIZES_OF_THE_ARENA = (256 * KB, MB, 4 * MB, 16 * MB, 64 * MB)
LAB_SIZES = (8, 64, KB, 64 * KB, 512 * KB, 4 * MB, 32 * MB)
OTHER_COLLECTIVES = ("allgather", "broadcast", "alltoall", "reducescatter")
OTHER_SIZES = (64 * KB, 256 * KB, MB, 4 * MB, 16 * MB)


def oversubscribed(ranks: int) -> Case:
    sizes = tuple(size for size in SIZES if size <= 16 * MB or ranks == 4)
    return Case(f"np={ranks}", Place(ranks), sizes, (HVD, *ALL_MPI))


def other_collective(collective: str, place: Place) -> Case:
    # Out of place: the rest of Open MPI's settings.
    return Case(f"np={place.ranks}, {collective}", place, OTHER_SIZES, (HVD, MPI, MPI_NO_CMA), collective)


CASES = (
    Case("np=2 pinned", PINNED_PAIR, SIZES, (HVD, COPY, *ALL_MPI)),
    Case("np=2 pinned, arena", PINNED_PAIR, SIZES_OF_THE_ARENA, (HVD, *ALL_MPI), arena=True),
    Case("np=2 pinned, 100 tensors", PINNED_PAIR, (64 * MB,), (HVD, *ALL_MPI), tensors=100),
    *(oversubscribed(ranks) for ranks in (4, 8, 16)),
    *(other_collective(name, place) for place in (PINNED_PAIR, Place(ranks=4)) for name in OTHER_COLLECTIVES),
    Case("np=2 pinned, from C++", PINNED_PAIR, (8, 64, KB, 4 * KB), (HVD, HVD_DIRECT, *ALL_MPI), from_cpp=True),
    Case(
        "np=2 pinned, MPI's allreduce beneath hvd",
        PINNED_PAIR,
        (4 * MB, 16 * MB, 64 * MB),
        (HVD, MPI_IN_PLACE),
        from_cpp=True,
        backend="mpi",
        in_place=True,
    ),
    Case(
        "np=2 pinned, MPI's messages beneath hvd",
        PINNED_PAIR,
        (256 * KB, MB, 4 * MB, 64 * MB),
        (HVD, *ALL_MPI),
        from_cpp=True,
        backend="mpi-messages",
    ),
    Case("np=2 pinned, small from Python", PINNED_PAIR, (8,), (HVD_AND_GLOO,)),
    Case("np=16, 160 tensors from Python", Place(ranks=16), (1280,), (HVD_AND_GLOO,), tensors=160, title="160 tensors"),
    Case("np=2 pinned, from Python", PINNED_PAIR, (16 * MB,), (HVD_AND_GLOO,)),
    Case("np=4, from Python", Place(ranks=4), (16 * MB,), (HVD_AND_GLOO,)),
    Case("np=2, beside Horovod", Place(ranks=2), (8, 64 * KB, 16 * MB), (HVD, HOROVOD), from_python=True),
    Case("np=4, beside Horovod", Place(ranks=4), (8, 64 * KB, 16 * MB), (HVD, HOROVOD), from_python=True),
    Case("4 hosts", Place(ranks=1, hosts=4), LAB_SIZES, (HVD, MPI, GLOO)),
    Case("8 hosts", Place(ranks=1, hosts=8), LAB_SIZES, (HVD, MPI, GLOO)),
    Case("4 hosts of 2", Place(ranks=2, hosts=4), (32 * MB,), (HVD, MPI, GLOO, GLOO_ROUND_ROBIN)),
)


def format_size(size: int) -> str:
    for unit, name in ((MB, "MB"), (KB, "KB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
