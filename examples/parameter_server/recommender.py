"""A recommender in one script: embeddings of users and items on parameter servers, the layers above them by allreduce.

    hvdrun -np 2 --servers 2 python examples/parameter_server/recommender.py

Data are made on the spot: users and items have hidden tastes, and users like items if theirs agree. Every worker has
events of its own. A row travels once for each batch in which it comes, however often it comes there, and those of the
next batch travel while this one is computed. The dense layers are the same on all workers at every step.
"""

# ruff: noqa: E402
import hvd

hvd.init()  # a server stays here until the workers are done, and imports no more

import argparse

import torch
from torch import nn

import hvd.torch as hvd

USERS, ITEMS, TASTES = 4_000, 1_000, 4
WIDTH = 16
BATCH = 512
ITEM_KEYS = 1 << 32  # users and items share a table: keys are any 64 bits


class Recommender(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.embedding = hvd.ps.Embedding(table)
        self.dense = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, keys):
        """keys: (n, 2), of users and items. Returns (n,)"""
        user, item = self.embedding(keys).unbind(dim=1)
        return self.dense(user * item).squeeze(1)


def make_events(count, seed):
    """Keys, (count, 2), and whether the user likes the item. Some users and items are far more active than others."""
    generator = torch.Generator().manual_seed(0)
    tastes = torch.randn(USERS, TASTES, generator=generator), torch.randn(ITEMS, TASTES, generator=generator)
    generator.manual_seed(seed)
    user = (USERS * torch.rand(count, generator=generator) ** 3).long()
    item = (ITEMS * torch.rand(count, generator=generator) ** 2).long()
    agreement = (tastes[0][user] * tastes[1][item]).sum(dim=1)
    return torch.stack([user, ITEM_KEYS + item], dim=1), (agreement > 0).float()


def train(model, optimizer, servers, keys, likes):
    batches = list(zip(keys.split(BATCH), likes.split(BATCH)))
    model.embedding.prefetch(batches[0][0])
    for number, (batch, labels) in enumerate(batches):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), labels)
        if number + 1 < len(batches):
            model.embedding.prefetch(batches[number + 1][0])
        loss.backward()  # pushes the gradients of rows, and averages the others
        optimizer.step()
        servers.clock()
    servers.flush()


@torch.no_grad()
def accuracy_of(model, keys, likes):
    return ((model(keys) > 0).float() == likes).float().mean()


def main():
    parser = argparse.ArgumentParser(description="Trains a recommender on parameter servers and by allreduce.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--events", type=int, default=60_000, help="of each worker (default: %(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with hvd.ps.connect() as servers:
        # Each worker's push is a step: with N workers, N of them are made.
        rows = hvd.ps.Normal(0, 0.3, seed=1)
        table = servers.table("users and items", WIDTH, hvd.ps.Adagrad(0.2, row_wise=True), rows, consistency=4)
        model = Recommender(table)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)  # the embedding has no parameters
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        keys, likes = make_events(options.events, seed=1 + hvd.rank())
        test = make_events(20_000, seed=1_000_000)
        before = accuracy_of(model, *test)
        for _ in range(options.epochs):
            train(model, optimizer, servers, keys, likes)
        hvd.barrier()
        after = accuracy_of(model, *test)
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        assert torch.equal(hvd.allreduce(weights, op=hvd.Min), weights), "the dense layers have come apart"
        if hvd.rank() == 0:
            rows = [tables["users and items"]["rows"] for tables in servers.stats()]
            print(f"accuracy {after:.1%}, {before:.1%} before training; {rows} rows on the servers")


if __name__ == "__main__":
    main()
