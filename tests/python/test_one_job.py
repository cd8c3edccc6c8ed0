"""A process that two launchers take for a rank of different jobs: an error with both numbers, and no silent split."""

from __future__ import annotations

import pytest

from hvd import _native, basics, rendezvous

pytestmark = pytest.mark.quick


class Communicator:
    """Of mpi4py, in a process that no MPI has started."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def bcast(self, value: object, root: int = 0) -> object:
        return value

    def allgather(self, value: object) -> list[object]:
        return [value]


@pytest.mark.parametrize("launcher", ["hvdrun", "torchrun", "slurm", "open_mpi"])
def test_a_communicator_of_one_in_a_job_of_several_is_refused(monkeypatch, launcher):
    monkeypatch.setattr(_native, "launch", lambda: (launcher, 2, 4, 4))
    with pytest.raises(ValueError, match=r"rank 2 of 4, but .*(rank 0 of 1|one process only)"):
        rendezvous.through_communicator(Communicator())


def test_init_says_so_if_it_is_to_be_another_job(monkeypatch):
    basics.init()
    try:
        basics.init()  # once more is nothing
        monkeypatch.setattr(_native, "launch", lambda: ("hvdrun", 2, 4, 4))
        with pytest.raises(ValueError, match="as rank 0 of 1, and cannot be again as rank 2 of 4"):
            basics.init()
        monkeypatch.undo()
        with pytest.raises(ValueError, match="as rank 0 of 1, and cannot be again as rank 1 of 2"):
            basics.init(comm=Communicator(1, 2))
    finally:
        basics.shutdown()
