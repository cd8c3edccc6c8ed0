"""Handwritten digits with JAX and optax, by several processes: an introduction to hvd.jax.

    hvdrun -np 2 python examples/jax/digits.py

Every process runs this script. Each sees its own part of the images, and hvd averages the gradients, so that all take
the same steps. What a script of one process needs to become this one is marked with numbers. The digits, 1,797 images
of 8 x 8 pixels, come with scikit-learn.
"""

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd.jax as hvd

BATCH = 32  # images per process and step
LEARNING_RATE = 0.001  # for one process
WIDTHS = (64, 128, 64, 10)


def load_images():
    digits = load_digits()
    return train_test_split(digits.data.astype(np.float32) / 16, digits.target, test_size=0.2, random_state=0)


def make_params(key):
    keys = jax.random.split(key, len(WIDTHS) - 1)
    shapes = zip(keys, WIDTHS, WIDTHS[1:])
    return [{"w": jax.random.normal(key, (m, n)) * (2 / m) ** 0.5, "b": jnp.zeros(n)} for key, m, n in shapes]


def predict(params, images):
    for layer in params[:-1]:
        images = jax.nn.relu(images @ layer["w"] + layer["b"])
    return images @ params[-1]["w"] + params[-1]["b"]


def loss_of(params, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, images), labels).mean()


def batches(count, epochs, batch, rank, size):
    """This rank's batches. All ranks' batches of a step together are one of `batch * size` images."""
    for epoch in range(epochs):
        mine = np.random.default_rng(epoch).permutation(count)[rank::size]
        for step in range(count // (batch * size)):
            yield mine[step * batch : (step + 1) * batch]


def train(params, optimizer, data, chosen, average=lambda loss: loss):
    images, labels = map(jnp.asarray, data)

    @hvd.jit
    def step(params, state, chosen):
        loss, gradients = jax.value_and_grad(loss_of)(params, images[chosen], labels[chosen])
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, average(loss)

    state, losses = optimizer.init(params), []
    for each in chosen:
        params, state, loss = step(params, state, each)
        losses.append(loss)
    return params, np.array(losses)


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--reference", action="store_true", help="compare with a run of one process")
    options = parser.parse_args()

    # 1. Join the job.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    # 2. Begin with the same parameters on all ranks, whatever each has drawn.
    params = hvd.broadcast_tree(make_params(jax.random.key(rank)))

    # 3. Average gradients over the ranks, within the compiled step. A step's batch is `size` times as large.
    plain = optax.adam(LEARNING_RATE * size**0.5)
    optimizer = hvd.DistributedGradientTransformation(plain)

    # 4. A part of the images for each rank.
    train_images, test_images, train_labels, test_labels = load_images()
    data, count = (train_images, train_labels), len(train_images)
    start = time.perf_counter()
    trained, losses = train(params, optimizer, data, batches(count, options.epochs, BATCH, rank, size), hvd.allreduce)
    images_per_second = len(losses) * BATCH * size / (time.perf_counter() - start)

    # 5. Each rank tests a part, too.
    right = (predict(trained, test_images[rank::size]).argmax(1) == test_labels[rank::size]).sum()
    accuracy = int(hvd.allreduce(right, op=hvd.Sum)) / len(test_images)
    apart = sum(jax.tree.leaves(jax.tree.map(lambda leaf: jnp.abs(leaf - hvd.broadcast(leaf, 0)).sum(), trained)))
    if rank == 0:
        print(f"test accuracy {accuracy:.2%}, {images_per_second:.0f} images per second on {size} ranks")
    if hvd.allreduce(apart, op=hvd.Max) != 0:
        sys.exit("the ranks have different parameters")

    if options.reference and rank == 0:
        _, own = train(params, plain, data, batches(count, options.epochs, BATCH * size, 0, 1))
        apart = np.abs(own[:100] - losses[:100]).max()
        print(f"losses of the first 100 steps differ from those of one process by at most {apart:.1e}")
        if apart > 1e-3:
            sys.exit("the run does not agree with one process on the same batches")


if __name__ == "__main__":
    main()
