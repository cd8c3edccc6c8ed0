"""Under torchrun, whose first attempt fails: rank 1 is killed between two operations."""

import os
import signal

import torch

import hvd.torch as hvd

hvd.init()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(20):
    total = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1), op=hvd.Sum, name="total")
    assert total.tolist() == [3.0] * 3
    if attempt == 0 and hvd.rank() == 1 and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
print(f"attempt {attempt}: rank {hvd.rank()} has finished\n", end="", flush=True)
