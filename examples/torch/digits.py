"""Handwritten digits, trained by several processes: an introduction to hvd.torch.

    hvdrun -np 4 python examples/torch/digits.py

A small convolutional network learns the 1,797 images of 8 x 8 pixels that come with scikit-learn. Every process runs
this script. Each sees its own part of the images, and hvd averages the gradients, so that all take the same steps. What
a script of one process needs to become this one is marked with numbers.
"""

import argparse
import copy
import hashlib
import json
import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

import hvd.torch as hvd

EPOCHS = 30
BATCH = 32  # images per process and step
LEARNING_RATE = 0.005  # for one process
WARMUP_EPOCHS = 3
MOMENTUM = 0.9


def load_images():
    """Images and labels for training, and images and labels for testing: a fifth of them."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float64).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[len(order) // 5 :], order[: len(order) // 5]
    return images[train], labels[train], images[test], labels[test]


def make_model():
    # In double precision, for --reference: a difference in the last bit of float32 grows to 0.01 within 60 steps.
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
    ).double()


def batches(images, labels, epoch, batch, rank, size):
    """This rank's batches of an epoch. All ranks' batches of a step together are one of `batch * size` images."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    mine = order[rank::size]
    for step in range(len(images) // (batch * size)):
        chosen = mine[step * batch : (step + 1) * batch]
        yield images[chosen], labels[chosen]


def train(model, optimizer, schedule, epochs, average):
    """Trains on an iterable of epochs, each an iterable of batches. Returns the loss of each step."""
    losses = []
    for epoch in epochs:
        for images, labels in epoch:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(average(loss.detach()))
    return torch.stack(losses).tolist()


@torch.no_grad()
def count_right(model, images, labels):
    return (model(images).argmax(dim=1) == labels).sum()


def draw(losses, path):
    import matplotlib  # slow to import, and needed on one rank only

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss, averaged over the ranks", yscale="log", title=f"digits, {hvd.size()} ranks")
    figure.savefig(path)


def fingerprint(model):
    digest = hashlib.sha256()
    for parameter in model.state_dict().values():
        digest.update(parameter.numpy().tobytes())
    return digest.hexdigest()


def agrees_with_one_process(model, losses, accuracy, data, say):
    """Repeats the same steps on the same batches with this process alone."""
    train_images, train_labels, test_images, test_labels = data
    size = hvd.size()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    schedule = hvd.LinearScalingLR(optimizer, WARMUP_EPOCHS * (len(train_images) // (BATCH * size)))
    epochs = (batches(train_images, train_labels, epoch, BATCH * size, 0, 1) for epoch in range(EPOCHS))
    own_losses = train(model, optimizer, schedule, epochs, average=lambda loss: loss)
    own_accuracy = count_right(model, test_images, test_labels).item() / len(test_images)
    apart = max(abs(a - b) for a, b in zip(losses[:100], own_losses[:100]))
    say(f"alone: accuracy {own_accuracy:.2%}; losses of the first 100 steps differ by at most {apart:.1e}")
    return len(losses) == len(own_losses) and apart <= 1e-4 and abs(accuracy - own_accuracy) <= 0.01


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--reference", action="store_true", help="compare with a run of one process")
    parser.add_argument("--checkpoint", default="digits.pt", help="file for the trained model (default: %(default)s)")
    options = parser.parse_args()

    # 1. Join the job. As many processes as CPUs need one thread each.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    torch.set_num_threads(1)
    torch.manual_seed(rank)

    def say(text):
        if rank == 0:
            print(text, file=sys.stderr if options.json else sys.stdout, flush=True)

    # 2. A part of the images for each rank.
    data = train_images, train_labels, test_images, test_labels = load_images()
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    # 3. Average gradients over the ranks while the backward pass still runs. A step's batch is `size` times as large as
    # that of one process, and the learning rate rises, over a few epochs, to `size` times as much.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    schedule = hvd.LinearScalingLR(optimizer, WARMUP_EPOCHS * (len(train_images) // (BATCH * size)))

    # 4. Begin with the same parameters and state everywhere.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    initial_model = copy.deepcopy(model)

    # 5. Show progress on one rank only, and average what is measured.
    epochs = tqdm(range(EPOCHS), desc="epochs", disable=rank != 0)
    epochs = (batches(train_images, train_labels, epoch, BATCH, rank, size) for epoch in epochs)
    start = time.perf_counter()
    losses = train(model, optimizer, schedule, epochs, average=lambda loss: hvd.allreduce(loss, name="loss"))
    images_per_second = len(losses) * BATCH * size / (time.perf_counter() - start)

    right = count_right(model, test_images[rank::size], test_labels[rank::size])
    accuracy = hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(test_images)

    # 6. Write files on one rank only.
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, options.checkpoint)
        draw(losses, "loss.png")

    identical = len(set(hvd.allgather_object(fingerprint(model)))) == 1
    if options.json and rank == 0:
        result = {"accuracy": accuracy, "images_per_second": images_per_second, "ranks": size, "identical": identical}
        print(json.dumps(result), flush=True)
    say(f"test accuracy {accuracy:.2%}, {images_per_second:.0f} images per second on {size} ranks")
    say(f"parameters are {'' if identical else 'NOT '}the same on all ranks, bit by bit")

    agrees = True
    if options.reference and rank == 0:
        agrees = agrees_with_one_process(initial_model, losses, accuracy, data, say)
        say(f"the run {'agrees' if agrees else 'DOES NOT AGREE'} with one process on the same batches")
    return 0 if identical and agrees else 1


if __name__ == "__main__":
    sys.exit(main())
