"""Trains a small network on handwritten digits in a Spark ML pipeline, and predicts with it.

    spark-submit --master "local[2]" examples/spark/estimators.py [--ranks 2] [--epochs 10] [--store FOLDER]

The store must be a folder that the driver and all executors reach: a path of a shared file system, hdfs:// or s3://.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from pyspark.ml import Pipeline
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

from hvd.spark.store import Store
from hvd.spark.torch import TorchEstimator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--store")
    arguments = parser.parse_args()
    with SparkSession.builder.getOrCreate() as spark, tempfile.TemporaryDirectory() as folder:
        accuracy = train(spark, arguments.ranks, arguments.epochs, arguments.store or folder)
        print(f"accuracy on digits that it was not trained on: {accuracy:.1%}")


def train(spark: SparkSession, ranks: int, epochs: int, store: str) -> float:
    pixels, digits = load_digits(return_X_y=True)
    names = [f"pixel{i}" for i in range(64)]
    rows = [(*map(float, image), int(digit)) for image, digit in zip(pixels / 16, digits)]
    training, test = spark.createDataFrame(rows, [*names, "digit"]).randomSplit([0.8, 0.2], seed=1)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    estimator = TorchEstimator(
        num_proc=ranks,
        store=Store.create(store),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=torch.nn.functional.cross_entropy,
        feature_cols=["pixels"],
        label_cols=["digit"],
        validation=0.1,
        batch_size=32,
        epochs=epochs,
    )
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=names, outputCol="pixels"), estimator])
    predictions = pipeline.fit(training).transform(test).select("digit", "digit__output").collect()
    return sum(row["digit"] == row["digit__output"].argmax() for row in predictions) / len(predictions)


if __name__ == "__main__":
    main()
