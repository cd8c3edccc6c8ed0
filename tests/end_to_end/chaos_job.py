"""An elastic job whose sums and parameters can be checked, whatever happens to its processes.

    chaos_job.py LOGS

A wrong result is told in LOGS/wrong. Each process appends a line per finished step to LOGS/PROCESS: time, host, pid,
epoch, step, a checksum of the parameters, and the processes that have taken part. SIGUSR1 makes it raise an exception.
It ends once LOGS/stop is there.
"""

import os
import signal
import sys
import time
import zlib

import numpy as np

from hvd import _native, basics, elastic, objects, reduce_op

PROCESS = int(os.environ.get("HVD_PROCESS", "-1"))
SIZE = 4000
SUM = _native.OperationSpec(_native.ALLREDUCE, "sum", 0, [((SIZE,), _native.FLOAT64)], op=reduce_op.Sum)


def contribution(process, step):
    """Multiples of 1/8, whose sums are exact in any order."""
    return ((process * 31 + step * 17 + np.arange(SIZE) * 7) % 1000) / 8


def updated(parameters, total, size):
    return parameters * 0.75 + total / size


def sum_over_ranks(values):
    result = np.empty_like(values)
    _native.run(SUM, (values.ctypes.data,), (result.ctypes.data,), (values, result))
    return result


failure = None


def ask_to_fail(*_):
    global failure
    failure = ValueError("this process was asked to fail")


def fail_if_asked():
    """Not from the signal's handler: what it raises while an object is pickled is an error of all ranks."""
    if failure:
        raise failure


def complain(logs, text):
    """An exception would only look like one more fault."""
    with open(os.path.join(logs, "wrong"), "a") as wrong:
        wrong.write(text + "\n")


def main():
    logs = sys.argv[1]
    signal.signal(signal.SIGUSR1, ask_to_fail)
    basics.init()
    state = elastic.ObjectState(
        elastic.from_source(objects.broadcast_object), basics.rank, step=0, parameters=np.zeros(SIZE)
    )

    def train(state, log):
        while True:
            fail_if_asked()
            step = state.step + 1
            said = objects.allgather_object((PROCESS, step, os.path.exists(os.path.join(logs, "stop"))))
            members = [process for process, _, _ in said]
            fail_if_asked()
            total = sum_over_ranks(contribution(PROCESS, step))
            expected = sum(contribution(process, step) for process in members)
            if any(at != step for _, at, _ in said) or not np.array_equal(total, expected):
                complain(logs, f"process {PROCESS} at step {step}: {said}")
            state.parameters = updated(state.parameters, total, len(members))
            state.step = step
            place = (os.uname().nodename, os.getpid(), _native.epoch()[0])
            line = (time.monotonic(), *place, step, zlib.crc32(state.parameters), *members)
            log.write(" ".join(map(str, line)) + "\n")
            if any(is_last for _, _, is_last in said):
                return
            time.sleep(0.01)
            fail_if_asked()
            state.commit()

    with open(os.path.join(logs, str(PROCESS)), "a", buffering=1) as log:
        elastic.run_fn(train, elastic.join_anew)(state, log)


if __name__ == "__main__":
    main()
