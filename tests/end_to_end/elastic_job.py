"""An elastic job for the tests: counts steps, and does to its processes what its arguments say.

    elastic_job.py STEPS [PROCESS@STEP=WHAT ...]

Each process prints a line per finished step. WHAT: kill, exit, raise, raise_slowly (its end takes 4 s), exit_0, stop,
kill_parent (it leaves a child), preempt (somebody else sends it SIGTERM), enough; or at step 0, before init: never,
late; and after it: prepare, for 2 s. A process does it at the first such step that it finishes, which is a later one if
it has taken the state of another.

The job also ends before its last step once the file is there that the variable ENOUGH names; `enough` makes it.
"""

import atexit
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

PROCESS = int(os.environ.get("HVD_PROCESS", "-1"))
STEPS = int(sys.argv[1])
ENOUGH = os.environ.get("ENOUGH")
# This process's own: by step, what it does then.
DEEDS = {
    int(step): what
    for process, step, what in (re.split("[@=]", argument) for argument in sys.argv[2:])
    if int(process) == PROCESS
}

at_first = DEEDS.get(0)
if at_first == "never":
    sys.exit(5)
if at_first == "late":
    time.sleep(2)

from hvd import basics, checkpoint, elastic, objects  # noqa: E402


def do(what):
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "exit":
        sys.exit(7)
    elif what == "exit_0":
        os._exit(0)
    elif what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "kill_parent":
        child = subprocess.Popen(["sleep", "1000"])
        print(f"child {child.pid}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "preempt":
        subprocess.run(["sh", "-c", f"kill -TERM {os.getpid()}"], check=True)
    elif what == "enough":
        pathlib.Path(ENOUGH).touch()
    elif what == "raise":
        raise ValueError("bad data")
    elif what == "raise_slowly":
        atexit.register(time.sleep, 4)
        raise ValueError("bad data")


def train(state):
    while state.step < STEPS:
        assert (os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]) == (str(basics.rank()), str(basics.size()))
        processes = objects.allgather_object((PROCESS, state.step, ENOUGH is not None and os.path.exists(ENOUGH)))
        assert [step for _, step, _ in processes] == [state.step] * basics.size(), processes
        if any(is_enough for _, _, is_enough in processes):
            return
        state.step += 1
        state.seen.append([process for process, _, _ in processes])
        print(f"process {PROCESS} step {state.step} rank {basics.rank()} of {basics.size()}", flush=True)
        for step in [step for step in DEEDS if 0 < step <= state.step]:
            do(DEEDS.pop(step))
        time.sleep(float(os.environ.get("PAUSE", "0.02")))
        state.commit()


basics.init()
if at_first == "prepare":
    for name, value in (("RANK", basics.rank()), ("SIZE", basics.size()), ("LOCAL_RANK", basics.local_rank())):
        assert os.environ[f"HOROVOD_{name}"] == os.environ[name.replace("SIZE", "WORLD_SIZE")] == str(value)
    print(f"process {PROCESS} expects {basics.rank()} of {basics.size()}, {basics.local_rank()} here", flush=True)
    time.sleep(2)
    print(f"process {PROCESS} is prepared", flush=True)
state = elastic.ObjectState(elastic.from_source(objects.broadcast_object), basics.rank, step=0, seen=[])
checkpoint.keep(state)  # of hvdrun --resume
elastic.run_fn(train, elastic.join_anew)(state)
assert len(state.seen) == (state.step if ENOUGH else STEPS)
counted = basics.metrics()
assert counted["elastic_epochs"] >= 1 and counted["elastic_failures"] < counted["elastic_epochs"], counted
assert (counted["elastic_pause_seconds"] > 0) == (counted["elastic_epochs"] > 1), counted
assert (counted["elastic_state_bytes"] > 0) or basics.size() == 1, counted
print(f"process {PROCESS} done {state.seen}", flush=True)
