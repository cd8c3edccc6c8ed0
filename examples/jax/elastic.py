"""Training that goes on when a process is lost, and with one that takes its place: hvd.jax.elastic.

    hvdrun -np 3 --min-np 2 python examples/jax/elastic.py

Kill one of the processes while they train: `kill -9` and one of the process IDs that they print. The others go on with
the step after the last one that was finished, and hvdrun starts a new process, which joins them. The numbers mark what
makes a script for a fixed number of ranks elastic. The data are points, to be classified by which of three random
directions each is closest to.
"""

import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import hvd.jax as hvd

BATCH = 32  # points per rank and step
LEARNING_RATE = 0.05


def make_data():
    random = np.random.default_rng(0)
    points = random.normal(size=(3000, 16)).astype(np.float32)
    return points, (points @ random.normal(size=(16, 3))).argmax(1)


def loss_of(params, points, labels):
    logits = jax.nn.relu(points @ params["hidden"]) @ params["output"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main():
    parser = argparse.ArgumentParser(description="Trains a small network, also when processes are lost.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between steps (default: %(default)s)")
    options = parser.parse_args()

    hvd.init()
    points, labels = make_data()
    optimizer = hvd.DistributedGradientTransformation(optax.sgd(LEARNING_RATE, momentum=0.9))

    @hvd.jit
    def step(params, opt_state, points, labels):
        loss, gradients = jax.value_and_grad(loss_of)(params, points, labels)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, hvd.allreduce(loss)

    # 1. Everything that a new process needs to join in the middle of the training. It replaces broadcast_tree().
    keys = jax.random.split(jax.random.key(0))
    params = {"hidden": jax.random.normal(keys[0], (16, 64)) / 4, "output": jax.random.normal(keys[1], (64, 3)) / 8}
    state = hvd.elastic.JaxState(params=params, opt_state=optimizer.init(params), step=0, loss=None)

    # 2. Called again whenever ranks were lost or added, with the last step that was finished. So it continues from the
    # state, and reads rank and size itself.
    @hvd.elastic.run
    def train(state):
        rank, size = hvd.rank(), hvd.size()
        print(f"step {state.step}: process {os.getpid()} is rank {rank} of {size}", flush=True)
        while state.step < options.steps:
            mine = np.random.default_rng(state.step).permutation(len(points))[rank * BATCH : (rank + 1) * BATCH]
            state.params, state.opt_state, state.loss = step(state.params, state.opt_state, points[mine], labels[mine])
            state.step += 1
            # 3. When a rank is lost, the others go back to here. It copies no arrays.
            state.finish_step()
            time.sleep(options.pause)
        # 4. Communicate in this function only: outside of it the loss of a rank is an error.
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state.params)])
        same = hvd.allreduce(flat, op=hvd.Min) == hvd.allreduce(flat, op=hvd.Max)
        assert same.all(), "the ranks' parameters have come apart"
        assert state.loss < 0.5, "the loss has not fallen"

    train(state)
    print(f"process {os.getpid()} is done: {state.step} steps, loss {state.loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
