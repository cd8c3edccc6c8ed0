"""A rank of a training that reads from two data services, one after the other, and prints what it got.

Arguments: the file of a service whose workers have the dispatcher, and of one for a dispatcher in the training.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import tensorflow as tf

import hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

ELEMENTS = 60


def numbers(first: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(first, first + ELEMENTS).map(lambda number: number * 10)


def read(dataset: tf.data.Dataset, seconds_each: float = 0) -> list[int]:
    got = []
    for number in dataset:
        got.append(int(number))
        time.sleep(seconds_each)
    return got


def from_a_dispatcher_there(config: TfDataServiceConfig, rank: int, size: int) -> dict[str, list[int]]:
    shared = numbers(0).send_to_data_service(config, rank, size, reuse_dataset=True)
    other = numbers(1000).send_to_data_service(config, rank, size, reuse_dataset=True)
    alone = numbers(0).send_to_data_service(config, rank)
    in_turns = numbers(0).repeat().send_to_data_service(config, rank, size, round_robin=True)
    return {
        "first epoch": read(shared),
        "second epoch": read(shared),
        "another dataset": read(other),
        "alone": read(alone),
        "in turns": read(in_turns.take(30)),
    }


def from_a_dispatcher_here(config: TfDataServiceConfig, rank: int) -> dict[str, list[int]]:
    with tf_data_service(config, rank) as dispatcher:
        dataset = numbers(0).apply(
            tf.data.experimental.service.distribute("distributed_epoch", dispatcher, job_name="shared")
        )
        # Rank 0, which has the dispatcher, comes to the end of its block long before rank 1.
        return {"dispatcher here": read(dataset, seconds_each=0.1 * rank)}


hvd.init()
there, here = map(Path, sys.argv[1:])
while there.exists() and there.read_text() == "of an earlier service":
    time.sleep(0.1)
config = TfDataServiceConfig.read(there, wait_for_file_creation=True)
got = from_a_dispatcher_there(config, hvd.rank(), hvd.size())
config.compute_client().agree_on_job(hvd.rank(), hvd.size(), timeout=60)  # all have read
if hvd.rank() == 0:
    config.compute_client().shutdown()
config = TfDataServiceConfig.read(here, wait_for_file_creation=True)
got |= from_a_dispatcher_here(config, hvd.rank())
print("READ " + json.dumps(got), flush=True)
