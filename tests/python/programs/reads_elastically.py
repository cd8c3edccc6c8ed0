"""Reads a Parquet folder, argv[1], for two epochs, in an elastic job whose rank 1 dies in the middle of the first one.
Prints how many rows were processed in committed steps, and how many of those twice."""

import os
import signal
import sys

import hvd
import hvd.data
from hvd import elastic

hvd.init()
ranks_at_start = int(sys.argv[2])
reader = hvd.data.parquet(sys.argv[1], 4)
state = elastic.ObjectState(
    elastic.from_source(hvd.broadcast_object), hvd.rank, position=reader.state_dict(), processed=[], sizes=set()
)


def train(state):
    reader.load_state_dict(state.position)
    while reader.epoch < 2:
        epoch = reader.epoch
        for number, batch in enumerate(reader):
            rows = hvd.allgather_object([int(row) for row in batch["id"]], name="rows")
            if number == 3 and epoch == 0 and hvd.rank() == 1 and not state.sizes - {ranks_at_start}:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.barrier()
            state.processed += [(epoch, row) for part in rows for row in part]
            state.sizes.add(hvd.size())
            state.position = reader.state_dict()
            state.commit()


elastic.run_fn(train, elastic.join_anew)(state)
if hvd.rank() == 0:
    rows = len(set(state.processed))
    print(f"{rows} rows, {len(state.processed) - rows} twice, with {sorted(state.sizes)} ranks", flush=True)
