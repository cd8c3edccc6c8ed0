"""Sparse gradients: of an embedding, only the rows that a batch has used travel between the processes.

    hvdrun -np 2 python examples/tensorflow/embedding.py
    hvdrun -np 2 python examples/tensorflow/embedding.py --as-dense

A handwritten digit is read as a text of 49 words. A word is a patch of 2 x 2 pixels, in 4 levels of brightness, and its
place. There are 12,544 words, each with a vector, and the sum of its words' vectors says which digit an image shows. A
batch uses a few hundred of them: its gradient is a tf.IndexedSlices, which has the rows of these and says which they
are. hvd gathers the rows of all ranks; with `sparse_as_dense` it reduces the whole table instead. The digits come with
scikit-learn.
"""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd.tensorflow as hvd

LEVELS = 4
PATTERNS = LEVELS**4
PLACES = 7 * 7
BATCH = 16  # images per process and step
LEARNING_RATE = 0.5  # for one process


def words(images):
    """The numbers of the words of images of 8 x 8 pixels: [images, PLACES]."""
    levels = (images * LEVELS // 17).astype("int64")
    pattern = sum(
        levels[:, row : row + 7, column : column + 7] * LEVELS ** (2 * row + column)
        for row in range(2)
        for column in range(2)
    )
    return pattern.reshape(-1, PLACES) + PATTERNS * tf.range(PLACES, dtype=tf.int64).numpy()


def load_texts():
    digits = load_digits()
    return train_test_split(words(digits.images), digits.target, test_size=0.2, random_state=0)


def same_on_all_ranks(table):
    return bool(tf.reduce_all(hvd.allreduce(table, op=hvd.Min) == hvd.allreduce(table, op=hvd.Max)))


def main():
    parser = argparse.ArgumentParser(description="Trains an embedding on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--as-dense", action="store_true", help="send the whole table's gradient in each step")
    options = parser.parse_args()

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    train_texts, test_texts, train_labels, test_labels = load_texts()
    steps = len(train_texts) // (BATCH * size)
    dataset = tf.data.Dataset.from_tensor_slices((train_texts, train_labels)).shard(size, rank)
    dataset = dataset.shuffle(len(train_texts)).batch(BATCH).take(steps)

    vectors = tf.Variable(tf.zeros([PATTERNS * PLACES, 10]))  # the same everywhere; else hvd.broadcast_variables
    learning_rate = LEARNING_RATE * size

    def logits_of(texts):
        return tf.reduce_sum(tf.gather(vectors, texts), axis=1)

    @tf.function
    def train_step(texts, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits_of(texts))
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=options.as_dense)
        gradient = tape.gradient(loss, vectors)
        if isinstance(gradient, tf.IndexedSlices):
            vectors.scatter_sub(tf.IndexedSlices(learning_rate * gradient.values, gradient.indices))
        else:
            vectors.assign_sub(learning_rate * gradient)

    before = hvd.metrics()
    for _ in range(options.epochs):
        for texts, labels in dataset:
            train_step(texts, labels)
    sent_bytes = hvd.metrics(since=before)["bytes"] / (options.epochs * steps)

    guesses = tf.argmax(logits_of(test_texts), axis=1).numpy()
    accuracy = (guesses == test_labels).mean()
    assert same_on_all_ranks(vectors), "the ranks' tables have come apart"
    if rank == 0:
        table_bytes = vectors.shape.num_elements() * 4
        print(f"{sent_bytes / 1e3:.0f} kB for a step, of a table with {table_bytes / 1e3:.0f} kB,", end=" ")
        print(f"test accuracy {accuracy:.1%}, {size} ranks", flush=True)


if __name__ == "__main__":
    main()
