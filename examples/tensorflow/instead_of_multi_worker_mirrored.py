"""A training loop of one's own on several hosts, and its checkpoints: instead of MultiWorkerMirroredStrategy.

    hvdrun -np 2 python examples/tensorflow/instead_of_multi_worker_mirrored.py

Or as the strategy's jobs are started: on each host with its TF_CONFIG, and with the same HVD_JOB_KEY; `hvd.init()`
reads both. There is no scope to make variables in, and no `strategy.run`: the loop is that of one process. The digits
come with scikit-learn.
"""

import argparse

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import hvd.tensorflow as hvd

GLOBAL_BATCH = 32  # images of all ranks together


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
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits, and saves it.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--checkpoints", help="folder for a checkpoint after each epoch, and to go on from")
    options = parser.parse_args()

    hvd.init()  # instead of strategy = tf.distribute.MultiWorkerMirroredStrategy()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    train_images, train_labels, test_images, test_labels = load_images()

    # Instead of strategy.experimental_distribute_dataset(data.batch(GLOBAL_BATCH)).
    data = tf.data.Dataset.from_tensor_slices((train_images, train_labels)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(train_images), seed=1).batch(GLOBAL_BATCH // hvd.size(), drop_remainder=True)

    # Not in a strategy.scope().
    model, optimizer = make_model(), keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    epoch = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    checkpoints = options.checkpoints and tf.train.CheckpointManager(checkpoint, options.checkpoints, max_to_keep=2)
    if checkpoints and hvd.rank() == 0:  # a folder of this host: the others need not see it
        checkpoints.restore_or_initialize()
    hvd.broadcast_variables([*model.variables, *optimizer.variables, epoch], root_rank=0)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            # Averaged over this rank's images, not over GLOBAL_BATCH: hvd takes the mean of the ranks' gradients.
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True), True)
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    first = int(epoch)
    while int(epoch) < options.epochs:
        for images, labels in data:
            loss = step(images, labels)  # instead of strategy.run(step, ...)
        epoch.assign_add(1)
        if checkpoints and hvd.rank() == 0:  # the strategy has every worker save, most of them into folders to delete
            checkpoints.save()

    mine = slice(hvd.rank(), None, hvd.size())
    right = tf.reduce_sum(tf.cast(tf.argmax(model(test_images[mine]), 1) == test_labels[mine], tf.int32))
    accuracy = int(hvd.allreduce(right, op=hvd.Sum)) / len(test_labels)
    loss = float(hvd.allreduce(loss))  # instead of strategy.reduce("MEAN", loss, axis=None)
    weights = tf.concat([tf.reshape(weight, [-1]) for weight in model.get_weights()], 0)
    same = bool(tf.reduce_all(hvd.allreduce(weights, op=hvd.Min) == hvd.allreduce(weights, op=hvd.Max)))
    assert same, "the ranks' models have come apart"
    if hvd.rank() == 0:
        print(f"epochs {first + 1} to {int(epoch)}, loss {loss:.3f}, test accuracy {accuracy:.1%}, {hvd.size()} ranks")


if __name__ == "__main__":
    main()
