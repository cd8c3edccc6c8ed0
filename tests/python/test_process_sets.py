"""Process sets: some of the ranks among themselves."""

from __future__ import annotations

import numpy as np
import pytest

import hvd
from hvd import process_set
from launching import PROGRAMS, run_job


@pytest.mark.ranks(2, 4)
def test_members_reduce_among_themselves():
    size, me = hvd.size(), hvd.rank()
    half = [rank for rank in range(size) if rank % 2 == me % 2]
    sets = [hvd.add_process_set(range(first, size, 2)) for first in (0, 1)]
    own, other = sets[me % 2], sets[1 - me % 2]
    assert [s.process_set_id for s in sets] == [1, 2]
    assert own.included() and not other.included()
    assert (own.ranks, own.size(), own.rank(), other.rank()) == (half, len(half), half.index(me), None)
    assert str(own) == f"ProcessSet(process_set_id={own.process_set_id}, ranks={half}, mpi_comm=None)"
    for step in range(30):
        value = np.full(3, float(me + step))
        assert hvd.allreduce(value, op=hvd.Sum, process_set=own).tolist() == [sum(half) + step * len(half)] * 3
        assert hvd.allreduce(value, name="mean", process_set=own)[0] == pytest.approx(sum(half) / len(half) + step)
        assert hvd.broadcast(value, half[-1], process_set=own)[0] == half[-1] + step
        assert hvd.allgather(value[:1], process_set=own).tolist() == [rank + step for rank in half]
        assert hvd.allreduce(value, op=hvd.Sum)[0] == sum(range(size)) + step * size
    with pytest.raises(ValueError, match="not in process set"):
        hvd.allreduce(value, process_set=other)
    hvd.barrier(process_set=own)
    for some in sets:
        assert hvd.remove_process_set(some)
        assert some.process_set_id is None
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(value, process_set=own)


@pytest.mark.ranks(2)
def test_what_makes_no_sense():
    assert hvd.global_process_set.process_set_id == 0
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert not hvd.remove_process_set(hvd.ProcessSet([0]))
    process_set = hvd.add_process_set([1])
    for wrong in ([1], [0, 1], [2], [], [0, 0], process_set):
        with pytest.raises(ValueError):
            hvd.add_process_set(wrong)
    assert hvd.remove_process_set(process_set)
    with pytest.raises(hvd.HorovodInternalError, match="alike"):
        hvd.add_process_set([hvd.rank()])
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).item() == 2


@pytest.mark.ranks(2)
def test_sets_that_have_the_same_ranks_in_an_epoch_are_one():
    """As after the loss of ranks: [0, 1] of four, and all of two."""
    own = hvd.add_process_set([1])
    shared = {number: hvd.ProcessSet(ranks) for number, ranks in ((0, [0, 1]), (own.process_set_id, [1]))}
    process_set._defined.extend(shared.values())
    process_set.register_defined()
    assert [one.process_set_id for one in shared.values()] == list(shared)
    everything = [hvd.global_process_set, own, *shared.values()]
    assert len({process_set.numbered_name(one, "optimizer") for one in everything}) == len(everything)
    for one in (own, shared[0]):
        assert hvd.remove_process_set(one) and one.process_set_id is None
    last = shared[max(shared)]
    if last.included():
        assert hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=last).item() == 1
    assert hvd.remove_process_set(last) and list(process_set.registered()) == [0]
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).item() == 2


def test_sets_that_are_given_to_init():
    job = run_job(4, [str(PROGRAMS / "static_sets.py")])
    assert job.returncode == 0, job.output
    assert job.output.count("sets are right") == 4
