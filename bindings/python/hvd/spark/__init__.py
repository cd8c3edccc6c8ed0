"""hvd on Spark: ranks are tasks of a Spark application.

>>> import hvd.spark
>>> hvd.spark.run(train, args=(path,), num_proc=4)
"""

from __future__ import annotations

from hvd.spark.elastic import run_elastic
from hvd.spark.feeding import FeedError
from hvd.spark.feeds import Feed, RankFeed, feed
from hvd.spark.roles import Cluster, Context, DataFeed
from hvd.spark.roles import start_cluster as cluster
from hvd.spark.run_function import run
from hvd.spark.sweep import experiments

__all__ = [
    "Cluster",
    "Context",
    "DataFeed",
    "Feed",
    "FeedError",
    "RankFeed",
    "cluster",
    "experiments",
    "feed",
    "run",
    "run_elastic",
]
