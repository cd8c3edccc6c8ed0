"""hvd on Spark: ranks are tasks of a Spark application.

>>> import hvd.spark
>>> hvd.spark.run(train, args=(path,), num_proc=4)
"""

from __future__ import annotations

from hvd.spark.feeding import FeedError
from hvd.spark.feeds import Feed, RankFeed, feed
from hvd.spark.roles import Cluster, Context, DataFeed
from hvd.spark.roles import start_cluster as cluster
from hvd.spark.run_function import run

__all__ = ["Cluster", "Context", "DataFeed", "Feed", "FeedError", "RankFeed", "cluster", "feed", "run"]
