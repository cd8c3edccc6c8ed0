"""Training that goes on when a process is lost, and with one that takes its place: hvd.tensorflow.elastic.

    hvdrun -np 3 --min-np 2 python examples/tensorflow/elastic.py

Kill one of the processes while they train: `kill -9` and one of the process IDs that they print. The others go on with
the step after the last one that was committed, and hvdrun starts a new process, which joins them. The numbers mark what
makes a script for a fixed number of ranks elastic. The data are points, to be classified by which of three random
directions each is closest to.
"""

import argparse
import os
import time

import numpy as np
import tensorflow as tf

import hvd.tensorflow as hvd

BATCH = 32  # points per rank and step
LEARNING_RATE = 0.02  # for one rank


def make_data():
    random = np.random.default_rng(0)
    points = random.standard_normal([3000, 16], dtype="float32")
    return points, (points @ random.standard_normal([16, 3])).argmax(axis=1)


def make_model():
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input([16]), layers.Dense(64, "relu"), layers.Dense(3)])


def same_on_all_ranks(variables):
    values = tf.concat([tf.reshape(variable, [-1]) for variable in variables], axis=0)
    return bool(tf.reduce_all(hvd.allreduce(values, op=hvd.Min) == hvd.allreduce(values, op=hvd.Max)))


def main():
    parser = argparse.ArgumentParser(description="Trains a small network, also when processes are lost.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between steps (default: %(default)s)")
    options = parser.parse_args()

    hvd.init()
    points, labels = make_data()
    model = make_model()
    optimizer = tf.keras.optimizers.SGD(LEARNING_RATE * hvd.size(), momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    # 1. One function for any number of ranks: TensorFlow traces it once, since a rank's batches keep their shapes.
    @tf.function
    def train_step(points, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(points, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return hvd.allreduce(loss)

    # 2. Everything that a new process needs to join in the middle of an epoch. It replaces broadcast_variables().
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, step=0, points_done=0, losses=[])

    # 3. Called after the number of ranks has changed, and the size of the global batch with it.
    state.register_reset_callbacks([lambda: optimizer.learning_rate.assign(LEARNING_RATE * hvd.size())])

    # 4. Called again with the last committed state whenever ranks were lost or added. So it continues from the state,
    # and reads rank and size itself.
    @hvd.elastic.run
    def train(state):
        rank, size = hvd.rank(), hvd.size()
        print(f"epoch {state.epoch}, step {state.step}: process {os.getpid()} is rank {rank} of {size}", flush=True)
        while state.epoch < options.epochs:
            order = np.random.default_rng(state.epoch).permutation(len(points))
            while state.points_done + BATCH * size <= len(points):
                mine = order[state.points_done :][: BATCH * size][rank::size]
                loss = train_step(points[mine], labels[mine])
                state.step += 1
                state.points_done += BATCH * size
                state.losses.append(float(loss))
                # 5. When a rank is lost, the others go back to here.
                state.commit()
                time.sleep(options.pause)
            state.epoch += 1
            state.points_done = 0
            if rank == 0:
                rate = float(optimizer.learning_rate)
                print(
                    f"epoch {state.epoch}, step {state.step}: loss {state.losses[-1]:.3f}, rate {rate:.2f}", flush=True
                )
        # 6. Communicate in this function only: outside of it the loss of a rank is an error.
        assert same_on_all_ranks(model.trainable_variables), "the ranks' models have come apart"
        assert sum(state.losses[-10:]) < sum(state.losses[:10]) / 2, "the loss has not fallen"

    train(state)
    traced = train_step.experimental_get_tracing_count()
    print(f"process {os.getpid()} is done: {state.step} steps, loss {state.losses[-1]:.3f}, traced {traced} times")


if __name__ == "__main__":
    main()
