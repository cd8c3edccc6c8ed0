"""Several processes learn with MXNet's gluon which of three spirals a point belongs to: an introduction to hvd.mxnet.

    hvdrun -np 2 python examples/mxnet/spirals.py

Every process runs this script. Each sees its own part of the points, and hvd sums the gradients, so that all take the
same steps. What a script of one process needs to become this one is marked with numbers.
"""

import argparse
import sys
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import hvd.mxnet as hvd

ARMS, POINTS = 3, 3072
BATCH = 32  # points per process and step
LEARNING_RATE = 0.01


def make_points(seed):
    random = np.random.RandomState(seed)
    arm, along = random.randint(0, ARMS, POINTS), random.uniform(0.1, 1, POINTS)
    angle = 2 * np.pi * (arm / ARMS + 0.8 * along) + random.normal(scale=0.05, size=POINTS)
    points = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points.astype(np.float32), arm.astype(np.float32)


def make_network(seed):
    mx.random.seed(seed)
    network = gluon.nn.HybridSequential()
    network.add(gluon.nn.Dense(64, activation="tanh"), gluon.nn.Dense(64, activation="tanh"), gluon.nn.Dense(ARMS))
    network.initialize(mx.init.Xavier())
    network.hybridize()
    return network


def batches(count, epochs, batch, rank, size):
    """This rank's batches. All ranks' batches of a step together are one of `batch * size` points."""
    for epoch in range(epochs):
        mine = np.random.RandomState(epoch).permutation(count)[rank::size]
        for step in range(count // (batch * size)):
            yield mine[step * batch : (step + 1) * batch]


def train(network, trainer, data, chosen):
    points, labels = data
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for each in chosen:
        with autograd.record():
            loss = loss_of(network(mx.nd.array(points[each])), mx.nd.array(labels[each]))
        loss.backward()
        trainer.step(len(each))
    mx.nd.waitall()


def parameters_of(network):
    return np.concatenate([each.data().asnumpy().ravel() for each in network.collect_params().values()])


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on points of spirals.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--reference", action="store_true", help="compare with a run of one process")
    options = parser.parse_args()

    # 1. Join the job.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    # 2. Begin with the same parameters on all ranks, whatever each has drawn. Their shapes are known once the network
    # has seen a batch, and they are broadcast then.
    network = make_network(seed=rank)
    hvd.broadcast_parameters(network.collect_params())

    # 3. Sum gradients over the ranks. A step's batch is `size` times as large.
    settings = {"learning_rate": LEARNING_RATE}
    trainer = hvd.DistributedTrainer(network.collect_params(), "adam", settings)

    # 4. A part of the points for each rank.
    data = make_points(seed=0)
    start = time.perf_counter()
    train(network, trainer, data, batches(POINTS, options.epochs, BATCH, rank, size))
    points_per_second = options.epochs * POINTS / (time.perf_counter() - start)

    # 5. Each rank tests a part, too.
    points, labels = make_points(seed=1)
    found = network(mx.nd.array(points[rank::size])).argmax(axis=1).asnumpy()
    right = hvd.allreduce(mx.nd.array([np.sum(found == labels[rank::size])]), op=hvd.Sum)
    own = parameters_of(network)
    all_ranks = hvd.allgather(mx.nd.array(own[None])).asnumpy()
    if rank == 0:
        print(f"accuracy {right.asscalar() / POINTS:.2%}, {points_per_second:.0f} points per second on {size} ranks")
    if (all_ranks != own).any():
        sys.exit("the ranks have different parameters")

    if options.reference and rank == 0:
        # One process, from the same parameters on, whose batches are those of all ranks.
        alone = make_network(seed=0)
        trainer = gluon.Trainer(alone.collect_params(), "adam", settings, kvstore=None)
        train(alone, trainer, data, batches(POINTS, options.epochs, BATCH * size, 0, 1))
        apart = np.abs(parameters_of(alone) - own).max()
        print(f"parameters differ from those of one process by at most {apart:.1e}")
        if apart > 1e-2:
            sys.exit("the run does not agree with one process on the same batches")


if __name__ == "__main__":
    main()
