"""`model.fit` that goes on when a process is lost, and with one that takes its place: hvd.keras.elastic.

    hvdrun -np 3 --min-np 2 python examples/tensorflow/keras_elastic.py

Kill one of the processes while they train: `kill -9` and one of the process IDs that they print. The others go on with
the batch after the last one that was committed, and hvdrun starts a new process, which joins them. The global batch has
the same size for any number of ranks: each rank computes its share of it, and the learning rate stays as it is. The
numbers mark what makes a script for a fixed number of ranks elastic. The data are points, to be classified by which of
three random directions each is closest to.
"""

import argparse
import os
import time

import keras
import numpy as np

import hvd.keras as hvd

BATCH = 60  # points per step, of all ranks together; 1 to 6 ranks have equal parts of them


def make_data():
    random = np.random.default_rng(0)
    points = random.standard_normal([3000, 16], dtype="float32")
    return points, (points @ random.standard_normal([16, 3])).argmax(axis=1)


def make_model():
    layers = keras.layers
    return keras.Sequential([layers.Input([16]), layers.Dense(64, "relu"), layers.Dense(3, "softmax")])


def same_on_all_ranks(weights):
    rows = hvd.allgather(np.concatenate([weight.ravel() for weight in weights])[np.newaxis])
    return (rows == rows[0]).all()


def main():
    parser = argparse.ArgumentParser(description="Trains a small network, also when processes are lost.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between batches (default: %(default)s)")
    options = parser.parse_args()

    hvd.init()
    points, labels = make_data()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
    model.compile(optimizer, loss="sparse_categorical_crossentropy")

    # 1. Everything that a new process needs to join in the middle of an epoch. It replaces
    # BroadcastGlobalVariablesCallback.
    state = hvd.elastic.KerasState(model, epoch=0, batch=0, losses=[])

    # 2. Called again with the last committed state whenever ranks were lost or added. So it continues from the state,
    # and reads rank and size itself.
    @hvd.elastic.run
    def train(state):
        rank, size = hvd.rank(), hvd.size()
        print(f"epoch {state.epoch}, batch {state.batch}: process {os.getpid()} is rank {rank} of {size}", flush=True)

        def report(epoch, logs):
            state.losses.append(logs["loss"])
            if rank == 0:
                print(f"epoch {epoch + 1}: loss {logs['loss']:.3f}, {size} ranks", flush=True)

        callbacks = [
            hvd.callbacks.MetricAverageCallback(),
            keras.callbacks.LambdaCallback(
                on_epoch_end=report, on_train_batch_begin=lambda batch, logs: time.sleep(options.pause)
            ),
            # 3. These update the state and commit it. They come last, in this order.
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state),
        ]
        # 4. The rest of an epoch, then the next epoch.
        while state.epoch < options.epochs:
            if state.batch == len(points) // BATCH:  # interrupted between the last batch of an epoch and its end
                state.epoch, state.batch = state.epoch + 1, 0
                continue
            order = np.random.default_rng(state.epoch).permutation(len(points))
            mine = order[state.batch * BATCH :][rank::size]
            model.fit(
                points[mine],
                labels[mine],
                batch_size=BATCH // size,
                shuffle=False,
                initial_epoch=state.epoch,
                epochs=state.epoch + 1,
                callbacks=callbacks,
                verbose=0,
            )
        # 5. Communicate in this function only: outside of it the loss of a rank is an error.
        assert same_on_all_ranks(model.get_weights()), "the ranks' models have come apart"
        assert state.losses[-1] < state.losses[0] / 2, "the loss has not fallen"

    train(state)
    print(f"process {os.getpid()} is done: {state.epoch} epochs, loss {state.losses[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
