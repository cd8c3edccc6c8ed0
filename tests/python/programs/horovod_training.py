"""A training script as written for Horovod: nothing in it knows of hvd. Prints a line per rank when all agree."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--fp16-allreduce", action="store_true")
args = parser.parse_args()

hvd.init()
torch.manual_seed(hvd.rank())
torch.set_num_threads(1)
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())

generator = torch.Generator().manual_seed(42)
inputs = torch.randn(256, 8, generator=generator)
dataset = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(dataset, batch_size=16, sampler=sampler)

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=compression,
    op=hvd.Average,
    gradient_predivide_factor=1.0,
)


def train(epoch):
    model.train()
    sampler.set_epoch(epoch)
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


for epoch in range(1, 4):
    train(epoch)
model.eval()
with torch.no_grad():
    correct = sum((model(data).argmax(dim=1) == target).float().mean().item() for data, target in loader) / len(loader)
accuracy = metric_average(correct, "avg_accuracy")

weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
gathered = hvd.allgather(weights.unsqueeze(0), name="weights")
assert all(torch.equal(row, weights) for row in gathered), "ranks disagree"
assert accuracy > 0.8, accuracy
assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
hvd.join()
print(f"rank {hvd.rank()} of {hvd.size()} is fine", flush=True)
hvd.shutdown()
