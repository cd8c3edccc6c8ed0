"""Handwritten digits on parameter servers, where one worker is slower than the others.

    hvdrun -np 4 --servers 2 python examples/parameter_server/digits.py
    hvdrun -np 4 --servers 2 python examples/parameter_server/digits.py --slow 1 --stalls 0.05

A small network learns the 1,797 images of 8 x 8 pixels that come with scikit-learn three times: asynchronously, with
workers that may be a few clocks apart, and synchronously. Each time the workers make as many steps together, and who is
faster makes more of them. A step takes at least as long as is asked for, as if the network were larger; the last
worker's take --slow times as long, and of all workers' steps a part, chosen at random, takes four times as long
(--stalls).

It prints how many steps were made in a second, and how well the network does. With a worker that is always slow,
asynchronous training is faster and nothing else is; where workers stall now and then, a bound helps as well.
"""

# ruff: noqa: E402
import hvd

hvd.init()  # a server stays here until the workers are done, and imports no more

import argparse
import random
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import hvd.torch as hvd

BATCH = 32
LEARNING_RATE = 0.2  # of one step with all workers' gradients


def load_images():
    """Images and labels for training, and images and labels for testing: a fifth of them."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[len(order) // 5 :], order[: len(order) // 5]
    return images[train], labels[train], images[test], labels[test]


def take_time(began, options, dice):
    """Waits until the step has taken as long as it is to take on this worker."""
    milliseconds = options.milliseconds
    if hvd.rank() == hvd.size() - 1:
        milliseconds *= options.slow
    if dice.random() < options.stalls:
        milliseconds *= 4
    time.sleep(max(0.0, began + milliseconds / 1e3 - time.perf_counter()))


def train(servers, name, consistency, options, images, labels):
    """Returns the trained network and the steps of all workers in a second."""
    torch.manual_seed(0)
    dice = random.Random(hvd.rank())
    choice = torch.Generator().manual_seed(hvd.rank())
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    # A synchronous step has the average of all gradients. Otherwise each is a step of its own, and a smaller one.
    rate = LEARNING_RATE if consistency == "synchronous" else LEARNING_RATE / hvd.size()
    optimizer = hvd.ps.DenseOptimizer(model.named_parameters(), servers, hvd.ps.SGD(rate), consistency, name=name)
    # Nobody is told to stop: the servers count the steps, and each worker looks there how many have been made.
    counter = servers.table(f"steps of {name}", width=1, optimizer=hvd.ps.Add())
    one = np.ones((1, 1), dtype=np.float32)
    hvd.barrier()
    start = time.perf_counter()
    own = made = 0
    while made < options.steps:
        began = time.perf_counter()
        chosen = torch.randint(len(images), (BATCH,), generator=choice)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        take_time(began, options, dice)
        optimizer.step()
        own += 1
        made = int(counter.push_pull([0], one)[0, 0])
    # The others need not wait for this worker any longer, and all begin the next run with the same clock.
    for _ in range(options.steps + hvd.size() - own):
        servers.clock()
    servers.flush()
    hvd.barrier()
    return model, made / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on parameter servers, in three ways.")
    parser.add_argument("--steps", type=int, default=2000, help="of all workers together (default: %(default)s)")
    parser.add_argument("--milliseconds", type=float, default=4, help="that a step takes (default: %(default)s)")
    parser.add_argument("--slow", type=float, default=3, help="how much longer the last worker's take (%(default)s)")
    parser.add_argument("--stalls", type=float, default=0, help="part of steps that take 4 times as long (%(default)s)")
    parser.add_argument("--bound", type=int, default=3, help="clocks that workers may be apart (default: %(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(1)
    images, labels, test_images, test_labels = load_images()
    ways = {"asynchronous": "asynchronous", f"bound {options.bound}": options.bound, "synchronous": "synchronous"}
    with hvd.ps.connect() as servers:
        for name, consistency in ways.items():
            model, rate = train(servers, name, consistency, options, images, labels)
            if hvd.rank() != 0:
                continue
            right = (model(test_images).argmax(dim=1) == test_labels).float().mean().item()
            stale = [tables[name] for tables in servers.stats()]
            print(
                f"{name + ':':14} {rate:6.0f} steps/s, accuracy {right:.1%}, pushes stale by "
                f"{max(table['staleness_median'] for table in stale)} updates in the median, "
                f"{max(table['staleness_worst'] for table in stale)} at most",
                flush=True,
            )


if __name__ == "__main__":
    main()
