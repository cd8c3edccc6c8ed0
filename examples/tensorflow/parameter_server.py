"""Variables and an embedding on parameter servers, with Keras: asynchronous workers, each at its own pace.

    hvdrun -np 2 --servers 2 python examples/tensorflow/parameter_server.py
    hvdrun -np 2 python examples/tensorflow/parameter_server.py

The second command starts no servers: then the workers serve, too. The digits, which come with scikit-learn, are a task
of categories here: for each pixel and each of its 17 shades there is a vector, and the mean of an image's 64 vectors
says what it shows. The vectors are rows of a table on the servers, of which a worker pulls those that its batch needs
and pushes their gradients; of the other variables it has a copy, which follows the servers. Nobody waits for others, so
that the result differs a little from run to run.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import hvd.tensorflow as hvd

BATCH = 16  # images of each worker
PIXELS, SHADES, WIDTH = 64, 17, 32


def load_categories():
    """The numbers of 64 categories for each image, and its label, for training and for testing: a fifth of them."""
    digits = load_digits()
    categories = digits.data.astype("int64") + SHADES * np.arange(PIXELS)
    return (categories[360:], digits.target[360:]), (categories[:360], digits.target[:360])


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits with parameter servers.")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()

    hvd.init()  # here servers serve until the workers are done
    (images, labels), test = load_categories()
    servers = hvd.ps.connect()
    table = servers.table(
        "shades", width=WIDTH, optimizer=hvd.ps.Adagrad(0.3), initializer=hvd.ps.Normal(0, 0.1, seed=1)
    )
    embedding = hvd.ps.Embedding(table)
    model = keras.Sequential(
        [
            keras.Input([PIXELS], dtype="int64"),
            embedding,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(10),
        ]
    )
    optimizer = hvd.ps.DenseOptimizer(servers, hvd.ps.SGD(0.5))
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    data = tf.data.Dataset.from_tensor_slices((images, labels)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(images), seed=hvd.rank()).batch(BATCH)
    data = data.map(lambda image, label: (embedding.prefetch(image), label)).prefetch(1)
    model.fit(data, epochs=options.epochs, verbose=0)

    hvd.barrier()  # all have trained
    if hvd.rank() == 0:
        optimizer.pull()
        accuracy = model.evaluate(*test, verbose=0)[1]
        rows = [server["shades"]["rows"] for server in servers.stats()]
        print(f"rows on the servers: {rows}, test accuracy {accuracy:.1%}, {hvd.size()} workers", flush=True)
    servers.close()


if __name__ == "__main__":
    main()
