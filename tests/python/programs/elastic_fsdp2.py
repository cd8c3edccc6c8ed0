"""FSDP2 over hvd in an elastic job: process 1 is lost, and another one takes its place. Each epoch shards the model
again, in the same processes, and resumes from the newest checkpoint: elastic_fsdp2.py FOLDER"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import hvd.torch as hvd
from hvd.exceptions import HostsUpdatedInterrupt

STEPS, LOST_AT = 40, 10
PROCESS = int(os.environ["HVD_PROCESS"])

torch.set_num_threads(1)


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    if dist.is_initialized():
        fully_shard(model[0])
        fully_shard(model)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    torch.manual_seed(step)
    optimizer.zero_grad()
    model(torch.randn(4, 5)).square().sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


progress = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, epochs=[])
left_at: int | None = None  # the step at which the last epoch ended, if nobody was lost


@hvd.elastic.run
def train(progress: hvd.elastic.ObjectState) -> tuple[dict[str, torch.Tensor], int]:
    global left_at
    dist.init_process_group("hvd")
    try:
        model, optimizer = made()
        state = hvd.elastic.TorchState(model, optimizer, step=0)
        hvd.checkpoint.keep(state, sys.argv[1], seconds=0 if hvd.size() == 3 else 1000)
        assert left_at in (None, state.step), f"{left_at - state.step} steps are lost"
        left_at = None
        progress.epochs = [*progress.epochs, (hvd.size(), state.step)]
        progress.save()
        while state.step < STEPS or len(progress.epochs) < 3:
            if PROCESS == 1 and state.step == LOST_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            take_step(model, optimizer, state.step)
            state.step += 1
            state.commit()
            if hvd.size() < 3:
                time.sleep(0.02)  # a newcomer is importing PyTorch
        return {name: value.full_tensor() for name, value in model.state_dict().items()}, state.step
    except HostsUpdatedInterrupt:
        left_at = state.step
        raise
    finally:
        dist.destroy_process_group()


hvd.init()
whole, steps = train(progress)
alone, optimizer = made()
for step in range(steps):
    take_step(alone, optimizer, step)
for name, value in alone.state_dict().items():
    torch.testing.assert_close(whole[name], value, rtol=1e-4, atol=1e-5)
sizes, begins = zip(*progress.epochs)
print(f"process {PROCESS} has finished with the weights of one process, sizes {sizes}, began at {begins}", flush=True)
