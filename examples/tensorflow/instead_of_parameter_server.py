"""An embedding table that is divided among the ranks: instead of ParameterServerStrategy.

    hvdrun -np 2 python examples/tensorflow/instead_of_parameter_server.py

Parameter servers hold a table that is too large for a worker, and hand out the rows that a batch needs. Here each rank
holds a part of the rows, and asks the others for theirs; what is small is on every rank, and its gradients are
averaged. All ranks take the same step at the same time: nobody computes with weights that are out of date, and all wait
for the slowest. Where the table does fit, an ordinary variable is enough: of its gradients only the rows that were used
travel.

The digits, which come with scikit-learn, as a task of categories: for each pixel and each of its 17 shades there is a
vector, and the mean of an image's 64 vectors says what it shows.
"""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits

import hvd.tensorflow as hvd

GLOBAL_BATCH = 32  # images of all ranks together
PIXELS, SHADES, WIDTH = 64, 17, 32
TABLE_RATE, RATE = 30.0, 0.5


def load_categories():
    """The numbers of 64 categories for each image, and its label, for training and for testing: a fifth of them."""
    digits = load_digits()
    categories = digits.data.astype("int32") + SHADES * tf.range(PIXELS)
    labels = tf.constant(digits.target)
    return categories[360:], labels[360:], categories[:360], labels[:360]


class DividedEmbedding:
    """Vectors by number; rank r has those whose number leaves r when divided by the number of ranks. All ranks must
    call it together, each with numbers of its own."""

    def __init__(self, rows, width):
        mine = len(range(hvd.rank(), rows, hvd.size()))
        self.table = tf.Variable(tf.random.normal([mine, width]))

    def __call__(self, numbers):
        wanted, position = tf.unique(tf.reshape(numbers, [-1]))
        owner = wanted % hvd.size()
        by_owner = tf.argsort(owner, stable=True)
        asked, counts = hvd.alltoall(tf.gather(wanted, by_owner), tf.math.bincount(owner, minlength=hvd.size()))
        rows, _ = hvd.alltoall(tf.gather(self.table, asked // hvd.size()), counts)  # gradients go the same way back
        rows = tf.gather(rows, tf.math.invert_permutation(by_owner))
        return tf.reshape(tf.gather(rows, position), [*numbers.shape, -1])


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits with a table that is divided.")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.random.set_seed(hvd.rank())
    train, train_labels, test, test_labels = load_categories()
    data = tf.data.Dataset.from_tensor_slices((train, train_labels)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(train), seed=1).batch(GLOBAL_BATCH // hvd.size(), drop_remainder=True)

    embedding = DividedEmbedding(PIXELS * SHADES, WIDTH)
    weights, bias = tf.Variable(tf.random.normal([WIDTH, 10])), tf.Variable(tf.zeros([10]))
    hvd.broadcast_variables([weights, bias], root_rank=0)
    variables = [embedding.table, weights, bias]

    def classify(categories):
        return tf.reduce_mean(embedding(categories), axis=1) @ weights + bias

    @tf.function
    def step(categories, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, classify(categories)))
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(embedding.table)  # all ranks' gradients of these rows are here already
        table_gradient, *gradients = tape.gradient(loss, variables)
        embedding.table.scatter_sub(tf.IndexedSlices(TABLE_RATE * table_gradient.values, table_gradient.indices))
        for variable, gradient in zip((weights, bias), gradients):
            variable.assign_sub(RATE * gradient)

    for _ in range(options.epochs):
        for categories, labels in data:
            step(categories, labels)

    mine = slice(hvd.rank(), None, hvd.size())
    right = tf.reduce_sum(tf.cast(tf.argmax(classify(test[mine]), 1) == test_labels[mine], tf.int32))
    accuracy = int(hvd.allreduce(right, op=hvd.Sum)) / len(test_labels)
    same = bool(tf.reduce_all(hvd.allreduce(weights, op=hvd.Min) == hvd.allreduce(weights, op=hvd.Max)))
    assert same, "the ranks' models have come apart"
    if hvd.rank() == 0:
        rows = embedding.table.shape[0]
        print(f"{rows} of {PIXELS * SHADES} rows on this rank, test accuracy {accuracy:.1%}, {hvd.size()} ranks")


if __name__ == "__main__":
    main()
