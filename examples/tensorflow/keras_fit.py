"""Handwritten digits with `model.fit`, by several processes: an introduction to hvd.keras.

    hvdrun -np 2 python examples/tensorflow/keras_fit.py

A small convolutional network learns the 1,797 images of 8 x 8 pixels that come with scikit-learn. Every process runs
this script. Each sees its own part of the images, and hvd averages the gradients, so that all take the same steps. What
a script of one process needs to become this one is marked with numbers.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd.keras as hvd

BATCH = 32  # images per process and step
LEARNING_RATE = 0.001  # for one process
WARMUP_EPOCHS = 3


def load_images():
    digits = load_digits()
    images = digits.images[..., np.newaxis].astype("float32") / 16
    return train_test_split(images, digits.target, test_size=0.2, random_state=0)


def make_model():
    layers = keras.layers
    return keras.Sequential(
        [
            *(layers.Input([8, 8, 1]), layers.Conv2D(16, 3, padding="same", activation="relu")),
            *(layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPooling2D()),
            *(layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax")),
        ]
    )


def same_on_all_ranks(weights):
    rows = hvd.allgather(np.concatenate([weight.ravel() for weight in weights])[np.newaxis])
    return (rows == rows[0]).all()


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--checkpoint", help="file for the model with the best validation, NAME.keras")
    options = parser.parse_args()

    # 1. Join the job, and use one GPU, if there are any.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    keras.utils.set_random_seed(rank)

    # 2. A part of the images for each rank. All take equally many steps: a rank with one more would wait.
    train_images, test_images, train_labels, test_labels = load_images()
    steps = len(train_images) // (BATCH * size)
    own_images = train_images[rank::size][: steps * BATCH]
    own_labels = train_labels[rank::size][: steps * BATCH]

    # 3. A learning rate for batches that are `size` times as large, and gradients averaged over the ranks.
    learning_rate = LEARNING_RATE * size
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(learning_rate))
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    callbacks = [
        # 4. Begin with the same weights and optimizer state everywhere.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # 5. Average what is measured. What follows in this list sees the averages.
        hvd.callbacks.MetricAverageCallback(),
        # 6. Increase the learning rate gradually over the first epochs.
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=learning_rate, warmup_epochs=WARMUP_EPOCHS),
    ]
    # 7. Write files on one rank only.
    if rank == 0 and options.checkpoint:
        callbacks.append(
            keras.callbacks.ModelCheckpoint(options.checkpoint, monitor="val_accuracy", save_best_only=True)
        )

    history = model.fit(
        own_images,
        own_labels,
        batch_size=BATCH,
        epochs=options.epochs,
        validation_data=(test_images[rank::size], test_labels[rank::size]),
        callbacks=callbacks,
        verbose=2 if rank == 0 else 0,
    )
    assert same_on_all_ranks(model.get_weights()), "the ranks' models have come apart"
    if rank == 0:
        print(f"test accuracy {history.history['val_accuracy'][-1]:.1%}, {size} ranks", flush=True)


if __name__ == "__main__":
    main()
