#!/usr/bin/env python3
"""Rows of 4 KB from a cached RDD into a rank (`hvd.spark.feed`), against a `foreachPartition` that only counts them.

    python tests/bench/spark_feed.py --rows 100000

Prints rows per second of both, medians of alternating epochs, and the CPU time of the application's processes, which is
more telling when other programs run. Needs PySpark and Java. The target is 80 %.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark import SparkConf, SparkContext

import hvd.spark


def read(feed, epochs: int) -> list[tuple[int, float]]:
    """Rows and seconds of each epoch."""
    found = []
    for _ in range(epochs):
        start = time.perf_counter()
        found.append((sum(1 for _ in feed.rows()), time.perf_counter() - start))
    return found


def count(rows) -> None:
    for _ in rows:
        pass


def cpu_seconds() -> float:
    """Of this process and its descendants, including those that have ended."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks[pid] for pid in own) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.8, help="share of what counting reaches")
    options = parser.parse_args()
    configuration = SparkConf().setMaster(f"local[{options.partitions + 1}]").setAppName("spark_feed")
    configuration.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    configuration.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    configuration.set("spark.driver.memory", "3g")
    with SparkContext(conf=configuration) as context:
        context.setLogLevel("ERROR")
        rows = context.range(options.rows, numSlices=options.partitions).map(lambda number: os.urandom(4096)).cache()
        rows.count()
        feed = hvd.spark.feed(rows)
        fed, counted, cpu = [], [], []
        for _ in range(options.epochs):
            cpu_before, start = cpu_seconds(), time.perf_counter()
            rows.foreachPartition(count)
            counted.append(time.perf_counter() - start)
            cpu_between = cpu_seconds()
            ((number, seconds),) = hvd.spark.run(read, (feed, 1), num_proc=1)[0]
            assert number == options.rows, f"{number} of {options.rows} rows came"
            fed.append(seconds)
            cpu.append((cpu_between - cpu_before, cpu_seconds() - cpu_between))
            print(f"{counted[-1]:.2f} s, {cpu[-1][0]:.2f} of CPU; {seconds:.2f} s, {cpu[-1][1]:.2f} of CPU", flush=True)
        feed.close()
    rates = [options.rows / statistics.median(times) for times in (counted[1:], fed[1:])]
    print(f"counted {rates[0]:.0f} rows/s, fed {rates[1]:.0f} rows/s: {rates[1] / rates[0]:.0%}")
    counting, feeding = (min(times) for times in zip(*cpu))
    print(f"CPU: counted {counting:.2f} s, fed {feeding:.2f} s (with the job of the rank): {counting / feeding:.0%}")
    return int(rates[1] < options.limit * rates[0])


if __name__ == "__main__":
    sys.exit(main())
