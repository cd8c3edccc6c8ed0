"""Joining and leaving: again and again, before joining, and with an operation under way."""

import torch

import hvd.torch as hvd


def refused(call):
    try:
        call()
    except ValueError as error:
        return "init" in str(error)
    return False


places = (hvd.rank, hvd.size, hvd.local_rank, hvd.cross_size)
for call in (*places, hvd.algorithm_table, hvd.barrier, lambda: hvd.allreduce(torch.ones(1))):
    assert refused(call), call
assert not hvd.is_initialized()
assert hvd.global_process_set.size() is None and hvd.global_process_set.included() is None
hvd.shutdown()

for _ in range(20):
    hvd.init()
    hvd.init()
    assert hvd.is_initialized()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized() and refused(hvd.rank)

hvd.init(comm=range(hvd.size()) if hvd.is_initialized() else None)
hvd.init(comm=list(range(hvd.size())))
rank, size = hvd.rank(), hvd.size()
assert hvd.local_rank() == rank and hvd.local_size() == size
assert hvd.cross_rank() == 0 and hvd.cross_size() == 1 and hvd.is_homogeneous()
assert hvd.global_process_set.rank() == rank and hvd.global_process_set.included()
assert str(hvd.global_process_set) == f"ProcessSet(process_set_id=0, ranks={list(range(size))}, mpi_comm=None)"

# Rank 0 leaves while the others wait for it.
if rank != 0:
    try:  # refused at once if rank 0 has left already
        hvd.synchronize(hvd.allreduce_async(torch.ones(3), name="never"))
    except hvd.HorovodInternalError as error:
        assert "rank 0" in str(error), error
    else:
        raise AssertionError("an allreduce without rank 0")
hvd.shutdown()
print(f"rank {rank} is fine")
