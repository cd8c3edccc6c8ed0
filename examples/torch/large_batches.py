"""Accuracy against global batch size, with and without linear learning-rate scaling and gradual warm-up.

    hvdrun -np 2 python examples/torch/large_batches.py

A batch is divided among the ranks, so more ranks, or larger batches on each, make fewer steps of an epoch. A small
network learns the digits that come with scikit-learn in the same number of epochs with batches of 8 images and of up to
128 times as many, the learning rate staying what is right for 8, or being multiplied by as much as the batch, from the
start or after a warm-up (Goyal et al., 2017, arXiv:1706.02677). docs/large-batches.md shows what came out.
"""

import argparse
import statistics

import torch
from sklearn.datasets import load_digits
from torch import nn

import hvd.torch as hvd

REFERENCE_BATCH = 8  # images of all ranks together, for which the learning rate is right
MOMENTUM = 0.9
COLUMNS = ("rate as it is", "scaled", "scaled, warm-up")


def load_images(seed):
    """Images and labels for training, and for testing: a fifth of them, another one for each seed."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    train, test = order[len(order) // 5 :], order[: len(order) // 5]
    return images[train], labels[train], images[test], labels[test]


def make_model():
    # LayerNorm and not BatchNorm, whose statistics would change with the batch, too.
    return nn.Sequential(
        *(nn.Linear(64, 128), nn.LayerNorm(128), nn.ReLU()),
        *(nn.Linear(128, 128), nn.LayerNorm(128), nn.ReLU()),
        nn.Linear(128, 10),
    )


def accuracy_after_training(seed, options, factor, column):
    """Percentage of the test images that are told apart after training with `factor` reference batches a step."""
    train_images, train_labels, test_images, test_labels = load_images(seed)
    batch = REFERENCE_BATCH * factor
    steps_per_epoch = len(train_images) // batch
    steps = options.epochs * steps_per_epoch

    torch.manual_seed(seed)
    model = make_model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=MOMENTUM)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    scheduler = hvd.LinearScalingLR(
        optimizer,
        warmup_steps=options.warmup_epochs * steps_per_epoch if column == "scaled, warm-up" else 0,
        decay=lambda step: 0.1 ** sum(step >= steps * part for part in (1 / 3, 2 / 3, 8 / 9)),  # as in the paper
        factor=1 if column == "rate as it is" else factor,
    )
    for epoch in range(options.epochs):
        order = torch.randperm(len(train_images), generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for step in range(steps_per_epoch):
            mine = order[step * batch : (step + 1) * batch][hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train_images[mine]), train_labels[mine]).backward()
            optimizer.step()
            scheduler.step()

    bits = nn.utils.parameters_to_vector(model.parameters()).detach().view(torch.int32)  # NaN equals nothing
    same = torch.equal(hvd.allreduce(bits, op=hvd.Min), hvd.allreduce(bits, op=hvd.Max))
    assert same, "the ranks' models have come apart"
    mine = slice(hvd.rank(), None, hvd.size())
    right = (model(test_images[mine]).argmax(dim=1) == test_labels[mine]).sum()
    return 100 * hvd.allreduce(right, op=hvd.Sum).item() / len(test_images)


def main():
    parser = argparse.ArgumentParser(description="Prints accuracy against global batch size.")
    parser.add_argument("--factors", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64, 128], help="of the batch of 8")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--warmup-epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.005, help="for batches of 8 (default: %(default)s)")
    options = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    if REFERENCE_BATCH % hvd.size() != 0:
        parser.error(f"{hvd.size()} ranks cannot have equal parts of a batch of {REFERENCE_BATCH}")

    def say(*cells):
        if hvd.rank() == 0:
            print("|", " | ".join(f"{cell:>15}" for cell in cells), "|", flush=True)

    say("global batch", *COLUMNS)
    say(*["--:"] * 4)
    for factor in options.factors:
        cells = []
        for column in COLUMNS[:1] if factor == 1 else COLUMNS:
            accuracies = [accuracy_after_training(seed, options, factor, column) for seed in range(options.seeds)]
            spread = statistics.stdev(accuracies) if options.seeds > 1 else 0.0
            cells.append(f"{statistics.mean(accuracies):.1f} ± {spread:.1f}")
        say(REFERENCE_BATCH * factor, *cells, *["the same"] * (len(COLUMNS) - len(cells)))


if __name__ == "__main__":
    main()
