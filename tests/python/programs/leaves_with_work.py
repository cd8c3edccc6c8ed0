"""Ends, without a word, while operations are under way: no rank may crash or hang at exit."""

import torch

import hvd.torch as hvd

hvd.init()
hvd.barrier()
tensors = [torch.ones(1000) for _ in range(50)]
try:
    handles = [hvd.allreduce_async_(tensor, name=f"left.{number}") for number, tensor in enumerate(tensors)]
    if hvd.rank() == 0:
        hvd.synchronize(handles[0])
except hvd.HorovodInternalError as error:  # another rank has left already
    assert "has shut hvd down" in str(error), error
print(f"rank {hvd.rank()} is fine")
