"""Processes forked from a rank: they may ask who their parent is, nothing else, and their end is not the job's."""

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

import hvd.torch as hvd


class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        calls = (hvd.barrier, hvd.init, hvd.algorithm_table, hvd.metrics)
        for call in (*calls, lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.synchronize(pending)):
            try:
                call()
            except ValueError as error:
                assert "forked" in str(error)
            else:
                raise AssertionError("a collective in a forked process")
        return torch.tensor([index, hvd.rank(), hvd.size()])


hvd.init()
rank, size = hvd.rank(), hvd.size()
pending = hvd.allreduce_async(torch.ones(3), name="pending", op=hvd.Sum)

for batch in DataLoader(Images(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
    assert batch[:, 1].tolist() == [rank] * 2 and batch[:, 2].tolist() == [size] * 2

# A child that leaves through Python's own exit, with everything that is registered for it.
child = os.fork()
if child == 0:
    assert hvd.is_initialized()
    hvd.shutdown()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

assert hvd.synchronize(pending).tolist() == [size] * 3
hvd.barrier()
print(f"rank {rank} is fine")
