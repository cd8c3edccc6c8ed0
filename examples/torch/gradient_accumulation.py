"""Gradients of several backward passes for one step, which travel once: two ways to say it, with the same result.

    hvdrun -np 2 python examples/torch/gradient_accumulation.py --passes 4

A batch that does not fit into memory is computed in parts. `backward_passes_per_step` says in advance how many parts
there are; `no_sync()` says at each pass whether more are to come. Gradients are added up over the passes, then averaged
over the ranks: whoever wants the average over the passes divides the loss. The digits come with scikit-learn.
"""

import argparse
import copy
from contextlib import nullcontext

import torch
from sklearn.datasets import load_digits
from torch import nn

import hvd.torch as hvd

PART = 16  # images per rank and backward pass


def train_by_number(model, optimizer, batch):
    """`optimizer` was made with backward_passes_per_step."""
    optimizer.zero_grad()
    for images, labels in batch:
        loss = nn.functional.cross_entropy(model(images), labels) / len(batch)
        loss.backward()  # the last of them averages the gradients over the ranks
    optimizer.step()


def train_by_context(model, optimizer, batch):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(batch, start=1):
        with optimizer.no_sync() if number < len(batch) else nullcontext():
            loss = nn.functional.cross_entropy(model(images), labels) / len(batch)
            loss.backward()
    optimizer.step()


def train(model, train_batch, batches, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
    before = hvd.metrics()
    for batch in batches:
        train_batch(model, optimizer, batch)
    return hvd.metrics(since=before)["operations"]


def main():
    parser = argparse.ArgumentParser(description="Adds up gradients of several backward passes, in two ways.")
    parser.add_argument("--passes", type=int, default=4, help="backward passes for a step (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    digits = load_digits()
    data = torch.utils.data.TensorDataset(torch.tensor(digits.data).float() / 16, torch.tensor(digits.target))
    train_data, test_data = torch.utils.data.random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))
    sampler = torch.utils.data.DistributedSampler(train_data, num_replicas=size, rank=rank)
    parts = list(torch.utils.data.DataLoader(train_data, PART, sampler=sampler, drop_last=True)) * options.epochs
    batches = [parts[i : i + options.passes] for i in range(0, len(parts) - options.passes + 1, options.passes)]

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    other = copy.deepcopy(model)
    reductions = train(model, train_by_number, batches, backward_passes_per_step=options.passes)
    train(other, train_by_context, batches)

    images, labels = test_data[rank::size]
    accuracy = hvd.allreduce((model(images).argmax(dim=1) == labels).sum(), op=hvd.Sum).item() / len(test_data)
    parameters = nn.utils.parameters_to_vector(model.parameters()).detach()
    assert torch.equal(parameters, nn.utils.parameters_to_vector(other.parameters())), "the two ways differ"
    same = torch.equal(hvd.allreduce(parameters, op=hvd.Min), hvd.allreduce(parameters, op=hvd.Max))
    assert same, "the ranks' models have come apart"
    if rank == 0:
        print(f"{len(batches)} steps of {options.passes} backward passes, {reductions} gradients sent,", end=" ")
        print(f"test accuracy {accuracy:.1%}, {size} ranks", flush=True)


if __name__ == "__main__":
    main()
