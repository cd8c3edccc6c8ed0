"""Rank r has r + 1 batches; argument: what an average is divided by while some have joined."""

import sys

import torch

import hvd.torch as hvd

hvd.init()
size, rank = hvd.size(), hvd.rank()
for _ in range(3):
    for batch in range(rank + 1):
        contributing = size - batch
        factor = 1.0 if sys.argv[1] == "contributing" else contributing / size
        # The same name each time: what is remembered of it must not decide by what is divided.
        mean = hvd.allreduce(torch.full((3,), 12.0), name="mean", op=hvd.Average)
        torch.testing.assert_close(mean, torch.full((3,), 12.0 * factor))
        part = hvd.reducescatter(torch.full((size, 2), 12.0), name="part", op=hvd.Average)
        torch.testing.assert_close(part, torch.full((1, 2), 12.0 * factor))
        assert hvd.allreduce(torch.ones(3), name="sum", op=hvd.Sum).tolist() == [contributing] * 3
    assert hvd.join() == size - 1
hvd.shutdown()
print(f"rank {rank} is fine", flush=True)
