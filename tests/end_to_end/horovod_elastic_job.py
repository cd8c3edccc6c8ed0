"""An elastic program as those written for Horovod are: it knows when hosts change, and waits for that on rank 0.

    horovod_elastic_job.py LOG EPOCH...

After each of 3 epochs rank 0 appends a line to LOG: epoch, host, the rank with which this process was started, size,
and how often the training has begun. After the given epochs it waits until the state is told about hosts.
"""

import os
import sys
import time

from horovod.common.basics import HorovodBasics
from horovod.common.elastic import ObjectState, run_fn
from hvd import elastic, objects

hvd = HorovodBasics()
LOG, WAITS = sys.argv[1], set(map(int, sys.argv[2:]))


def await_messages(state):
    deadline = time.monotonic() + 120
    while state._host_messages.empty():
        assert time.monotonic() < deadline, "nothing was heard of hosts"
        time.sleep(0.1)


def train(state):
    state.begun += 1
    while state.epoch < 3:
        for _ in range(5):
            assert len(objects.allgather_object(state.epoch)) == hvd.size()
            state.commit()
        if hvd.rank() == 0:
            with open(LOG, "a") as log:
                log.write(f"{state.epoch} {HOST} {START_RANK} {hvd.size()} {state.begun}\n")
            if state.epoch in WAITS:
                await_messages(state)
        state.epoch += 1
        state.commit()


hvd.init()
HOST, START_RANK = os.environ["HOROVOD_HOSTNAME"], int(os.environ["HOROVOD_RANK"])
assert hvd.rank() == START_RANK and int(os.environ["HOROVOD_SIZE"]) == hvd.size()
time.sleep(1)  # a model is built
run_fn(train, elastic.join_anew)(ObjectState(elastic.from_source(objects.broadcast_object), hvd.rank, epoch=0, begun=0))
