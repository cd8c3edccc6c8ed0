"""Which learning rate? Each trial of Ray Tune is a job of its own, of several ranks.

    python examples/ray/sweep.py --ranks 2 --rates 0.01 0.3

A trial's placement group has a bundle for each rank, and an empty one for the trial itself, which only waits;
RayExecutor finds the group and starts the ranks there. They train a softmax regression on the digits that come with
scikit-learn, each on its own part of the images.
"""

import argparse

import numpy as np
import ray
from ray import tune
from sklearn.datasets import load_digits

import hvd
from hvd.ray import RayExecutor

EPOCHS = 20
BATCH = 32  # images per rank and step


def train(learning_rate: float) -> float:
    """On every rank. Returns the share of the images for testing that are recognised at the end."""
    hvd.init()
    digits = load_digits()
    images, labels = digits.data / 16, np.eye(10)[digits.target]
    order = np.random.default_rng(0).permutation(len(images))
    test, rest = np.split(order, [len(order) // 5])
    weights = np.zeros((images.shape[1], 10))
    for epoch in range(EPOCHS):
        shuffled = np.random.default_rng(epoch).permutation(rest)[: len(rest) // hvd.size() * hvd.size()]
        mine = shuffled[hvd.rank() :: hvd.size()]
        for chosen in np.array_split(mine, len(mine) // BATCH):
            scores = np.exp(images[chosen] @ weights)
            error = scores / scores.sum(axis=1, keepdims=True) - labels[chosen]
            weights -= learning_rate * hvd.allreduce(images[chosen].T @ error / len(chosen), name="gradient")
    return float(((images[test] @ weights).argmax(axis=1) == digits.target[test]).mean())


def trial(config: dict) -> dict:
    executor = RayExecutor(num_workers=config["ranks"])
    executor.start()
    try:
        accuracies = executor.run(train, [config["rate"]])
    finally:
        executor.shutdown()
    assert len(set(accuracies)) == 1, "ranks differ"
    return {"accuracy": accuracies[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares learning rates, each in a job of several ranks.")
    parser.add_argument("--ranks", type=int, default=2, help="of a trial (default: %(default)s)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.03, 1.0])
    options = parser.parse_args()
    ray.init()  # a new instance on this machine, or the cluster that RAY_ADDRESS names
    bundles = tune.PlacementGroupFactory([{}, *[{"CPU": 1}] * options.ranks])
    space = {"rate": tune.grid_search(options.rates), "ranks": options.ranks}
    results = tune.Tuner(tune.with_resources(trial, bundles), param_space=space).fit()
    for result in results:
        print(f"rate {result.config['rate']:g}: accuracy {result.metrics['accuracy']:.2%}")
    best = results.get_best_result("accuracy", "max")
    print(f"best: {best.config['rate']:g}")


if __name__ == "__main__":
    main()
