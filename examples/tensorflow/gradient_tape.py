"""Handwritten digits in a training loop of one's own, by several processes: hvd.tensorflow and a gradient tape.

    hvdrun -np 2 python examples/tensorflow/gradient_tape.py

Every process runs this script. Each sees its own part of the images, and hvd averages the gradients, so that all take
the same steps. What a script of one process needs to become this one is marked with numbers. The digits, 1,797 images
of 8 x 8 pixels, come with scikit-learn.
"""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd.tensorflow as hvd

BATCH = 32  # images per process and step
LEARNING_RATE = 0.02  # for one process


def load_images():
    digits = load_digits()
    return train_test_split(digits.data.astype("float32") / 16, digits.target, test_size=0.2, random_state=0)


def make_model():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [layers.Input([64]), layers.Dense(128, "relu"), layers.Dense(64, "relu"), layers.Dense(10)]
    )


def same_on_all_ranks(variables):
    values = tf.concat([tf.reshape(variable, [-1]) for variable in variables], axis=0)
    return bool(tf.reduce_all(hvd.allreduce(values, op=hvd.Min) == hvd.allreduce(values, op=hvd.Max)))


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoint", help="file for the trained weights, NAME.weights.h5")
    options = parser.parse_args()

    # 1. Join the job, and use one GPU, if there are any.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.keras.utils.set_random_seed(rank)  # of the weights, too, whose initializers are those of Keras

    # 2. A part of the images for each rank. All take equally many steps: a rank with one more would wait.
    train_images, test_images, train_labels, test_labels = load_images()
    steps = len(train_images) // (BATCH * size)
    dataset = tf.data.Dataset.from_tensor_slices((train_images, train_labels)).shard(size, rank)
    dataset = dataset.shuffle(len(train_images)).batch(BATCH).take(steps)

    # 3. A learning rate for batches that are `size` times as large.
    model = make_model()
    optimizer = tf.keras.optimizers.SGD(LEARNING_RATE * size, momentum=0.9)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    # 4. Begin with the same weights and optimizer state everywhere.
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)

    # 5. Average the gradients over the ranks.
    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    # 6. Average what is measured, and report it on one rank.
    for epoch in range(options.epochs):
        losses = [train_step(images, labels) for images, labels in dataset]
        loss = hvd.allreduce(tf.reduce_mean(losses))
        if rank == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {loss.numpy():.4f}", flush=True)

    guesses = tf.argmax(model(test_images[rank::size]), axis=1).numpy()
    right = hvd.allreduce(tf.constant((guesses == test_labels[rank::size]).sum()), op=hvd.Sum)
    assert same_on_all_ranks(model.trainable_variables), "the ranks' models have come apart"

    # 7. Write files on one rank only.
    if rank == 0:
        print(f"test accuracy {right.numpy() / len(test_labels):.1%}, {size} ranks", flush=True)
        if options.checkpoint:
            model.save_weights(options.checkpoint)


if __name__ == "__main__":
    main()
