#!/usr/bin/env python3
"""What `hvd.spark.run` of an empty function costs beyond Spark's own stage with one allGather: medians of runs in turn.

    python tests/bench/spark_start.py --runs 9

Needs PySpark and Java. The limit is 0.3 s for 4 ranks on two executors of two slots.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark import BarrierTaskContext, SparkConf, SparkContext

import hvd.spark


def empty_function() -> None:
    pass


def gather(_):
    BarrierTaskContext.get().allGather("")
    yield 0


def timed(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--master", default="local-cluster[2,2,1024]")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--limit", type=float, default=0.3, help="seconds")
    options = parser.parse_args()
    configuration = SparkConf().setMaster(options.master).setAppName("spark_start")
    configuration.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    configuration.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    with SparkContext(conf=configuration) as context:
        context.setLogLevel("ERROR")

        def stage() -> None:
            context.parallelize(range(options.ranks), options.ranks).barrier().mapPartitions(gather).collect()

        def job() -> None:
            hvd.spark.run(empty_function, num_proc=options.ranks)

        job()  # starts the executors' processes, which import hvd
        stage()
        times = [(timed(stage), timed(job)) for _ in range(options.runs)]
    stages, jobs = zip(*times)
    extra = statistics.median(jobs) - statistics.median(stages)
    print(f"stage with allGather {statistics.median(stages):.3f} s, hvd.spark.run {statistics.median(jobs):.3f} s")
    print(f"{extra:.3f} s more; pairs: {' '.join(f'{job - stage:.2f}' for stage, job in times)}")
    return int(extra > options.limit)


if __name__ == "__main__":
    sys.exit(main())
