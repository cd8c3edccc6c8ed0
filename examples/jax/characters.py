"""A character model with Flax, trained by several processes on text that every Python brings: its documentation.

    hvdrun -np 2 python examples/jax/characters.py

A recurrent network learns to guess the next character. `hvd.data_parallel` makes its loss that of all ranks' sequences:
what a script of one process needs besides is marked with numbers.
"""

import argparse
import sys
from pydoc_data.topics import topics

import jax
import numpy as np
import optax
from flax import linen as nn

import hvd.jax as hvd

LENGTH = 32  # characters of a sequence
BATCH = 16  # sequences per rank and step


class CharacterModel(nn.Module):
    characters: int
    width: int = 64

    @nn.compact
    def __call__(self, text):
        embedded = nn.Embed(self.characters, self.width)(text)
        hidden = nn.RNN(nn.GRUCell(self.width))(embedded)
        return nn.Dense(self.characters)(hidden)


def load_text():
    characters, numbers = np.unique(list("\n".join(topics.values())), return_inverse=True)
    return len(characters), numbers.astype(np.int32)


def batches(text, steps, rank, size, count):
    """This rank's `count` sequences in each step. All ranks' sequences are those that one process would read."""
    for step in range(steps):
        starts = np.random.default_rng(step).integers(len(text) - LENGTH, size=size * count)[rank::size]
        yield text[starts[:, None] + np.arange(LENGTH + 1)]


def train(params, loss_of, data):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.005))

    @hvd.jit
    def step(params, state, sequences):
        loss, gradients = jax.value_and_grad(loss_of)(params, sequences)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, losses = optimizer.init(params), []
    for sequences in data:
        params, state, loss = step(params, state, sequences)
        losses.append(loss)
    return np.array(losses)


def main():
    parser = argparse.ArgumentParser(description="Trains a character model on Python's documentation.")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--reference", action="store_true", help="compare with a run of one process")
    options = parser.parse_args()

    # 1. Join the job.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    # 2. Begin with the same parameters on all ranks, whatever each has drawn.
    characters, text = load_text()
    model = CharacterModel(characters)
    params = hvd.broadcast_tree(jax.jit(model.init)(jax.random.key(rank), text[None, :LENGTH]))

    def loss_of(params, sequences):
        guesses = model.apply(params, sequences[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(guesses, sequences[:, 1:]).mean()

    # 3. The loss of all ranks' sequences, of which each rank reads its own.
    losses = train(params, hvd.data_parallel(loss_of), batches(text, options.steps, rank, size, BATCH))
    if rank == 0:
        print(f"loss {losses[0]:.2f} at first, {losses[-10:].mean():.2f} in the last steps, on {size} ranks")

    if options.reference and rank == 0:
        own = train(params, loss_of, batches(text, options.steps, 0, 1, BATCH * size))
        apart = np.abs(own - losses).max()
        print(f"losses differ from those of one process by at most {apart:.1e}")
        if apart > 1e-2:
            sys.exit("the run does not agree with one process on the same sequences")


if __name__ == "__main__":
    main()
