"""Variables in the host's memory, computation on its GPUs: instead of CentralStorageStrategy.

    hvdrun -np 2 python examples/tensorflow/instead_of_central_storage.py

The strategy keeps one copy of the variables in the host's memory, from where all GPUs read them. Here each rank keeps
its own copy there, and copies to its GPU what it computes with, at that time; gradients come back and are averaged in
the memory that the ranks share. So the GPUs need no lasting room for variables and the optimizer's state, as with the
strategy; the host needs it once for each rank, and not once for all. The digits come with scikit-learn.
"""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits

import hvd.tensorflow as hvd

GLOBAL_BATCH = 32  # images of all ranks together
RATE, MOMENTUM = 0.05, 0.9


def load_images():
    """Images and labels for training, and for testing: a fifth of them."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype("float32"), digits.target
    return images[360:], labels[360:], images[:360], labels[:360]


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits with variables in the host's memory.")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    compute = "/GPU:0" if gpus else "/CPU:0"
    train_images, train_labels, test_images, test_labels = load_images()
    data = tf.data.Dataset.from_tensor_slices((train_images, train_labels)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(train_images), seed=1).batch(GLOBAL_BATCH // hvd.size(), drop_remainder=True)

    with tf.device("/CPU:0"):
        shapes = [(64, 128), (128,), (128, 10), (10,)]
        initial = [tf.random.normal(shape, stddev=0.1) if len(shape) > 1 else tf.zeros(shape) for shape in shapes]
        variables = [tf.Variable(value) for value in initial]
        velocities = [tf.Variable(tf.zeros_like(value)) for value in initial]
    hvd.broadcast_variables(variables, root_rank=0)

    def classify(images):
        with tf.device(compute):
            weights, bias, last_weights, last_bias = variables
            return tf.nn.relu(images @ weights + bias) @ last_weights + last_bias

    @tf.function
    def step(images, labels):
        with tf.device(compute), tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, classify(images)))
        with tf.device("/CPU:0"):  # gradients are averaged, and the step is made, where the variables are
            gradients = [tf.identity(gradient) for gradient in tape.gradient(loss, variables)]
            gradients = hvd.grouped_allreduce(gradients)
            for variable, velocity, gradient in zip(variables, velocities, gradients):
                velocity.assign(MOMENTUM * velocity + gradient)
                variable.assign_sub(RATE * velocity)

    for _ in range(options.epochs):
        for images, labels in data:
            step(images, labels)

    mine = slice(hvd.rank(), None, hvd.size())
    right = tf.reduce_sum(tf.cast(tf.argmax(classify(test_images[mine]), 1) == test_labels[mine], tf.int32))
    accuracy = int(hvd.allreduce(right, op=hvd.Sum)) / len(test_labels)
    weights = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    same = bool(tf.reduce_all(hvd.allreduce(weights, op=hvd.Min) == hvd.allreduce(weights, op=hvd.Max)))
    assert same, "the ranks' models have come apart"
    if hvd.rank() == 0:
        print(f"variables on {variables[0].device[-5:]}, test accuracy {accuracy:.1%}, {hvd.size()} ranks")


if __name__ == "__main__":
    main()
