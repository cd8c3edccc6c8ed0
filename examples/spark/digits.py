"""Recognises handwritten digits on Spark: a DataFrame is fed to the ranks, which are tasks of the same application.

    python examples/spark/digits.py --ranks 2
    spark-submit --master yarn --num-executors 5 examples/spark/digits.py --ranks 4

Without spark-submit it starts Spark on this machine. One slot more than there are ranks makes the rows.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession

import hvd.spark


def read_digits(session: SparkSession, partitions: int) -> tuple[DataFrame, DataFrame]:
    """Images and labels: 1,500 for training, and 297 to look at afterwards."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = [(number, (image / 16).tolist(), int(label)) for number, (image, label) in enumerate(zip(images, labels))]
    frame = session.createDataFrame(rows, "number int, image array<float>, label int")
    training, rest = frame.filter("number < 1500"), frame.filter("number >= 1500")
    return training.repartition(partitions).cache(), rest.repartition(partitions).cache()


def train(training: hvd.spark.RankFeed, rest: hvd.spark.RankFeed, epochs: int) -> float:
    """On each rank. Returns the accuracy on the rest."""
    import torch

    import hvd.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(epochs):
        for batch in training.torch(batch_size=32):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"].long())
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    right = total = 0
    for batch in rest.torch(batch_size=64, uneven="stop"):
        right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
        total += len(batch["label"])
    counts = hvd.allreduce(torch.tensor([right, total]), op=hvd.Sum)
    return counts[0].item() / counts[1].item()


def run(session: SparkSession, ranks: int, epochs: int) -> float:
    training, rest = read_digits(session, partitions=2 * ranks)
    feeds = hvd.spark.feed(training), hvd.spark.feed(rest)
    accuracies = hvd.spark.run(train, (*feeds, epochs), num_proc=ranks)
    return accuracies[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    builder = SparkSession.builder.appName("digits")
    if "SPARK_ENV_LOADED" not in os.environ:  # not by spark-submit
        builder = builder.master(f"local[{options.ranks + 1}]")
    session = builder.getOrCreate()
    print(f"accuracy {run(session, options.ranks, options.epochs):.3f}")
    session.stop()


if __name__ == "__main__":
    main()
