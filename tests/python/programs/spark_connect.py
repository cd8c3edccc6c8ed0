"""What hvd.spark does in a session of Spark Connect, whose server this process starts. Prints a line for each call."""

from __future__ import annotations

import os
import sys
import time

os.environ["PYSPARK_PYTHON"] = sys.executable  # of the executors' processes

import numpy as np
from pyspark.sql import SparkSession

import hvd
import hvd.spark


def sum_of_ranks(weight: float) -> tuple[int, list[float]]:
    hvd.init()
    return hvd.rank(), hvd.allreduce(np.full(3, hvd.rank() + weight), op=hvd.Sum).tolist()


def fail_on_rank_1() -> None:
    hvd.init()
    if hvd.rank() == 1:
        raise KeyError("what rank 1 did")
    hvd.barrier()


def trial(weight: float) -> float:
    return sum_of_ranks(weight)[1][0]


def main() -> None:
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    print(hvd.spark.run(sum_of_ranks, (5.0,), num_proc=2))
    begin = time.monotonic()
    try:
        hvd.spark.run(fail_on_rank_1, num_proc=2)
    except KeyError as error:
        print(error, "by rank", error.__cause__.rank, "at once" if time.monotonic() - begin < 60 else "late")
    best, *_ = hvd.spark.experiments(trial, {"weight": [3.0, 1.0]}, parallel=1, num_proc=2).collect()
    print(best["weight"], best["value"])
    for call in (
        lambda: hvd.spark.feed(session.range(3)),
        lambda: hvd.spark.run_elastic(sum_of_ranks, (5.0,), num_proc=2),
        lambda: hvd.spark.cluster(sum_of_ranks, num_ps=0),
    ):
        try:
            call()
        except RuntimeError as error:
            print(str(error).partition(":")[0])
    session.stop()


if __name__ == "__main__":
    main()
