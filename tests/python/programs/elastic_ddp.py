"""DistributedDataParallel over hvd in an elastic job: process 1 is lost in a backward pass."""

import os
import signal

import torch
import torch.distributed as dist

import hvd.torch as hvd

STEPS = 40
PROCESS = int(os.environ["HVD_PROCESS"])

torch.set_num_threads(1)
hvd.init()
model = torch.nn.Linear(8, 1)
state = hvd.elastic.TorchState(model, torch.optim.SGD(model.parameters(), lr=0.01), step=0)


def be_lost(_):
    if PROCESS == 1 and state.step >= 10:
        os.kill(os.getpid(), signal.SIGKILL)


model.bias.register_hook(be_lost)


@hvd.elastic.run
def train(state):
    dist.init_process_group("hvd")
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(state.model)
        while state.step < STEPS:
            assert dist.get_world_size() == hvd.size() and dist.get_rank() == hvd.rank()
            state.optimizer.zero_grad()
            wrapped(torch.ones(4, 8) * (1 + hvd.rank())).sum().backward()
            state.optimizer.step()
            state.step += 1
            state.commit()
    finally:
        dist.destroy_process_group()


train(state)
weights = hvd.allgather(model.weight.detach(), name="weights")
assert all(torch.equal(one, model.weight.detach()[0]) for one in weights)
print(f"process {PROCESS} has finished {state.step} steps with {hvd.size()} ranks", flush=True)
