"""While rank 1 has joined, rank 0 gets an error for all but allreduces, as scripts for Horovod expect."""

import torch

import horovod.torch as hvd

hvd.init()
tensor = torch.ones(2, 2)
if hvd.rank() == 0:
    assert hvd.allreduce(tensor, op=hvd.Sum, name="before").tolist() == [[1, 1], [1, 1]]
    for refused in (
        lambda: hvd.allgather(tensor),
        lambda: hvd.broadcast(tensor, 0),
        lambda: hvd.alltoall(tensor, torch.tensor([2, 0])),
        lambda: hvd.reducescatter(tensor),
        lambda: hvd.synchronize(hvd.grouped_allgather_async([tensor, tensor])),
    ):
        try:
            refused()
        except hvd.HorovodInternalError as error:
            assert "has joined" in str(error), error
        else:
            raise AssertionError("done without the rank that has joined")
assert hvd.join() in (0, 1)
print(f"rank {hvd.rank()} is done", flush=True)
