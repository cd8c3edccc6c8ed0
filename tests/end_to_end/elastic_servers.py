"""An elastic job with parameter servers: process 1 is killed, and once another has taken its place, so is server 1.

With a file as its argument it goes on without that until the file is there. Rank 0 says how many copies shards have.

Each process prints a line for every push that is done, and at its end rank 0 the rows of all steps.
"""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "programs"))

import numpy as np
from servers_killed import servers_of_this_job

import hvd
from hvd import basics, elastic, objects

PROCESS = int(os.environ.get("HVD_PROCESS", "-1"))
STEPS_AFTER = 10
WIDTH = 4
END = Path(sys.argv[1]) if len(sys.argv) > 1 else None

hvd.init()
servers = hvd.ps.connect()
table = servers.table("sums", WIDTH, hvd.ps.Add(), consistency=2)


def deed_of(state, processes):
    """What rank 0 wants, for all."""
    if END is not None:
        if state.step % 20 == 0:
            print("copies", [one["-"]["copies"] for one in servers.stats()], flush=True)
        time.sleep(0.01)
        return "end" if END.exists() else None
    if state.killed_at is None and len(processes) == 3 and 1 not in processes:
        os.kill(servers_of_this_job()[1], signal.SIGKILL)
        return "killed"
    return "end" if state.killed_at is not None and state.step == state.killed_at + STEPS_AFTER else None


def train(state):
    while True:
        processes = [process for process, _ in objects.allgather_object((PROCESS, state.step))]
        deed = objects.broadcast_object(deed_of(state, processes) if basics.rank() == 0 else None, 0)
        if deed == "end":
            return
        if deed == "killed":
            state.killed_at = state.step
        rows = table.push_pull([state.step], np.ones((1, WIDTH), np.float32))
        assert rows[0, 0] >= 1
        print(f"pushed {state.step}", flush=True)
        servers.clock()
        state.step += 1
        if END is None and PROCESS == 1 and state.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()


state = elastic.ObjectState(elastic.from_source(objects.broadcast_object), basics.rank, step=0, killed_at=None)
elastic.run_fn(train, elastic.join_anew)(state)
if basics.rank() == 0:
    for step, row in enumerate(table.pull(np.arange(state.step))):
        assert (row == row[0]).all(), row
        print(f"row {step} {row[0]:.0f}", flush=True)
objects.allgather_object("read")
servers.close()
