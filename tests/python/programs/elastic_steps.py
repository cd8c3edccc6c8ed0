"""Steps of an elastic job that are finished without a commit: process 3 is lost in a backward pass, and process 2
between the optimizer's step and the end of the step, where the others can only go back to the last commit."""

import os
import signal

import torch

import hvd.torch as hvd

STEPS, COMMIT = 60, 10
PROCESS = int(os.environ["HVD_PROCESS"])

torch.set_num_threads(1)
hvd.init()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = hvd.elastic.TorchState(model, optimizer, steps=0, done=[])


def be_lost(process, steps):
    if process == PROCESS and state.steps >= steps:
        os.kill(os.getpid(), signal.SIGKILL)


model[0].bias.register_hook(lambda _: be_lost(3, 25))


@hvd.elastic.run
def train(state):
    while state.steps < STEPS:
        inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * state.steps + hvd.rank()))
        state.model(inputs).square().sum().backward()
        state.optimizer.step()
        be_lost(2, 47)
        hvd.allreduce(torch.tensor(1.0), name="metric")
        state.optimizer.zero_grad()
        state.steps += 1
        state.done.append((hvd.size(), int(state.model[1].num_batches_tracked)))
        if state.steps % COMMIT == 0:
            state.commit()
        else:
            state.finish_step()


train(state)
# The buffers have seen each step once, too.
assert [batches for _, batches in state.done] == list(range(1, STEPS + 1)), state.done
for name, value in state.model.state_dict().items():
    everywhere = hvd.allgather(value.reshape(1, -1).double(), name=name)
    if "running" not in name:
        assert all(torch.equal(one, everywhere[0]) for one in everywhere), name
sizes = [size for size, _ in state.done]
print(f"process {PROCESS}: {sizes.count(4)} steps of 4 ranks, {sizes.count(3)} of 3, {sizes.count(2)} of 2", flush=True)
