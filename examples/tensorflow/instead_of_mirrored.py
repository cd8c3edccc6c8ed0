"""Keras's `fit` on all GPUs of a host: instead of MirroredStrategy.

    hvdrun -np 2 python examples/tensorflow/instead_of_mirrored.py

The strategy is one process with a copy of the model for each GPU. Here each GPU has a process, which is a rank and
makes its model without a scope. On several hosts the program is the same. The digits come with scikit-learn.
"""

import argparse

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import hvd.keras as hvd
from hvd.keras.schedules import LinearScaling

BATCH = 16  # images of a rank


def load_images():
    """Images and labels for training, and for testing: a fifth of them."""
    digits = load_digits()
    images, labels = (digits.images[..., None] / 16).astype("float32"), digits.target
    return images[360:], labels[360:], images[:360], labels[:360]


def make_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()

    hvd.init()  # instead of strategy = tf.distribute.MirroredStrategy()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    # With a strategy fit() divides batches of BATCH * strategy.num_replicas_in_sync itself. Here each rank reads its
    # part, and drop_remainder has all ranks make equally many steps.
    train_images, train_labels, test_images, test_labels = load_images()
    data = tf.data.Dataset.from_tensor_slices((train_images, train_labels)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(train_images), seed=1).batch(BATCH, drop_remainder=True)

    model = make_model()  # not in a strategy.scope()
    rate = LinearScaling(0.02, warmup_steps=len(data))
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    history = model.fit(data, epochs=options.epochs, callbacks=callbacks, shuffle=False, verbose=0)

    mine = slice(hvd.rank(), None, hvd.size())
    right = (model.predict(test_images[mine], verbose=0).argmax(axis=1) == test_labels[mine]).sum()
    accuracy = int(hvd.allreduce(right, op=hvd.Sum)) / len(test_labels)
    for weights in model.get_weights():
        same = (hvd.allreduce(weights, op=hvd.Min) == hvd.allreduce(weights, op=hvd.Max)).all()
        assert same, "the ranks' models have come apart"
    if hvd.rank() == 0:
        loss = history.history["loss"][-1]
        print(f"loss {loss:.3f}, test accuracy {accuracy:.1%}, {hvd.size()} ranks")


if __name__ == "__main__":
    main()
