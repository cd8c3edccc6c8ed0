"""Batch normalisation over the batches of all ranks, where each rank's own batch says too little.

    hvdrun -np 2 python examples/torch/sync_batch_norm.py

Points lie in eight heaps around a circle, and their heap is to be guessed. Each rank has some of the heaps only, as
when a large data set is stored in order and nobody has shuffled it. BatchNorm1d moves each rank's points to the middle,
where heaps of different ranks look alike. SyncBatchNorm moves them all by the same amount.
"""

import argparse
import math

import torch
from torch import nn

import hvd.torch as hvd

HEAPS = 8
BATCH = 32  # points per rank and step


def points(heaps, count):
    """Points of these heaps, and to which each belongs."""
    heap = heaps[torch.randint(len(heaps), (count,))]
    angle = 2 * math.pi * (heap + 0.5) / HEAPS
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.1 * torch.randn(count, 2), heap


def make_model():
    return nn.Sequential(
        *(nn.BatchNorm1d(2), nn.Linear(2, 32)),
        *(nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, HEAPS)),
    )


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # running statistics too
    own_heaps = torch.arange(HEAPS).tensor_split(hvd.size())[hvd.rank()]
    for _ in range(steps):
        inputs, heap = points(own_heaps, BATCH)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), heap).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model):
    """On points of all heaps, with the statistics that each rank has gathered; averaged over the ranks."""
    inputs, heap = points(torch.arange(HEAPS), 1000)
    right = model.eval()(inputs).argmax(dim=1) == heap
    return hvd.allreduce(right.float().mean()).item()


def same_on_all_ranks(tensors):
    values = torch.cat([tensor.detach().double().flatten() for tensor in tensors])
    return torch.equal(hvd.allreduce(values, op=hvd.Min), hvd.allreduce(values, op=hvd.Max))


def main():
    parser = argparse.ArgumentParser(description="Trains with BatchNorm1d, and with SyncBatchNorm instead.")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())
    local = make_model()
    synchronized = hvd.SyncBatchNorm.convert_sync_batchnorm(make_model())  # before the optimizer is made
    for model in (local, synchronized):
        train(model, options.steps)
        assert same_on_all_ranks(model.parameters()), "the ranks' models have come apart"
    assert same_on_all_ranks(synchronized.buffers()), "the ranks' running statistics differ"

    accuracies = [accuracy(model) for model in (local, synchronized)]
    if hvd.rank() == 0:
        print("accuracy {:.1%} with BatchNorm1d, {:.1%} with SyncBatchNorm,".format(*accuracies), end=" ")
        print(f"{hvd.size()} ranks", flush=True)


if __name__ == "__main__":
    main()
