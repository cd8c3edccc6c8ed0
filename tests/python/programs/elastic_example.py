"""Runs an example of elastic training, and writes a line for each commit, with a number that grows from step to step.

    elastic_example.py PROGRAM [ARGUMENTS]

If fewer than RANKS ranks are left, they wait after GROW_AT commits until a new process asks to join.
"""

import os
import runpy
import sys
import time

from hvd import _native, elastic

RANKS, GROW_AT = int(os.environ["RANKS"]), int(os.environ["GROW_AT"])
PROCESS = os.environ["HVD_PROCESS"]

check_host_updates = elastic.State.check_host_updates


def tell_and_check(state):
    step = state.step if hasattr(state, "step") else 1000 * state.epoch + state.batch
    rank, size = _native.rank(), _native.size()
    sys.stdout.write(f"process {PROCESS} (pid {os.getpid()}) has committed {step} as rank {rank} of {size}\n")
    sys.stdout.flush()
    if state._finished_steps >= GROW_AT and size < RANKS and rank == 0:
        while _native.epoch()[2] == 0:
            time.sleep(0.01)
    check_host_updates(state)


elastic.State.check_host_updates = tell_and_check
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
