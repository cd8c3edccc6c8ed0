"""Training that goes on when a process is lost, and with one that takes its place: hvd.torch.elastic.

    hvdrun -np 3 --min-np 2 python examples/torch/elastic.py

Kill one of the processes while they train: `kill -9` and one of the process IDs that they print. The others go on with
the step after the last one that was committed, and hvdrun starts a new process, which joins them. The numbers mark what
makes a script for a fixed number of ranks elastic. The data are points, to be classified by which of three random
directions each is closest to.
"""

import argparse
import os
import time

import torch
from torch import nn

import hvd.torch as hvd

BATCH = 32  # points per rank and step
LEARNING_RATE = 0.02  # for one rank


def make_data():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(3000, 16, generator=generator)
    labels = (points @ torch.randn(16, 3, generator=generator)).argmax(dim=1)
    return torch.utils.data.TensorDataset(points, labels)


def same_on_all_ranks(model):
    parameters = nn.utils.parameters_to_vector(model.parameters()).detach()
    return torch.equal(hvd.allreduce(parameters, op=hvd.Min), hvd.allreduce(parameters, op=hvd.Max))


def main():
    parser = argparse.ArgumentParser(description="Trains a small network, also when processes are lost.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between steps (default: %(default)s)")
    options = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)

    # 1. A sampler that records which points of the epoch are done, and divides the others among the current ranks.
    data = make_data()
    sampler = hvd.elastic.ElasticSampler(data)
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler)

    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # 2. Everything that a new process needs to join in the middle of an epoch. It replaces broadcast_parameters() and
    # broadcast_optimizer_state().
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0, losses=[])

    # 3. Called after the number of ranks has changed, and the size of the global batch with it.
    def scale_learning_rate():
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * hvd.size()

    state.register_reset_callbacks([scale_learning_rate])

    # 4. Called again with the last committed state whenever ranks were lost or added. So it continues from the state,
    # and reads rank and size itself.
    @hvd.elastic.run
    def train(state):
        rank, size = hvd.rank(), hvd.size()
        print(f"epoch {state.epoch}, step {state.step}: process {os.getpid()} is rank {rank} of {size}", flush=True)
        while state.epoch < options.epochs:
            for points, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                state.step += 1
                state.losses.append(hvd.allreduce(loss.detach()).item())
                sampler.record_batch(state.step, len(labels))
                # 5. When a rank is lost, the others go back to here.
                state.commit()
                time.sleep(options.pause)
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            if rank == 0:
                rate = optimizer.param_groups[0]["lr"]
                print(
                    f"epoch {state.epoch}, step {state.step}: loss {state.losses[-1]:.3f}, rate {rate:.2f}", flush=True
                )
        # 6. Communicate in this function only: outside of it the loss of a rank is an error.
        assert same_on_all_ranks(model), "the ranks' models have come apart"
        assert sum(state.losses[-10:]) < sum(state.losses[:10]) / 2, "the loss has not fallen"

    train(state)
    print(f"process {os.getpid()} is done: {state.step} steps, loss {state.losses[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
