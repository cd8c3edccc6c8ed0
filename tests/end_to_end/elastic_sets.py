"""An elastic job with process sets: process 1 is lost, and another takes its place."""

import os
import signal
import time

from hvd import basics, elastic, objects, process_set

PROCESS = int(os.environ["HVD_PROCESS"])
LAST_STEP = 10  # of four ranks, after the change

basics.init()
pair = process_set.add_process_set([0, 3])
even = process_set.add_process_set(lambda size: range(0, size, 2))
first = process_set.add_process_set([0, 1, 2])  # all ranks, after the loss
state = elastic.ObjectState(elastic.from_source(objects.broadcast_object), basics.rank, step=0, after=0)


def check(sets, ranks):
    assert sets.ranks == ranks and sets.process_set_id is not None, sets
    if sets.included():
        assert objects.allgather_object(basics.rank(), name=f"in {ranks}", process_set=sets) == ranks


def train(state):
    inner = process_set.add_process_set([1])  # of this epoch, also where newcomers have not come to it yet
    while state.after < LAST_STEP:
        size = basics.size()
        check(inner, [1])
        check(even, list(range(0, size, 2)))
        check(first, [0, 1, 2])
        if size == 4:
            check(pair, [0, 3])
        else:
            assert pair.process_set_id is None and pair.size() is None, pair
        state.step += 1
        if PROCESS == 1 and state.step >= 5:
            os.kill(os.getpid(), signal.SIGKILL)
        if size == 4 and state.step > 5:
            state.after += 1
        time.sleep(0.02)
        state.commit()


elastic.run_fn(train, elastic.join_anew)(state)
assert process_set.remove_process_set(first)
assert process_set.remove_process_set(pair) and len(process_set.registered()) == 3
assert process_set.remove_process_set(process_set._registered[-1]) and sorted(process_set.registered()) == [
    0,
    even.process_set_id,
]
print(f"process {PROCESS} has finished", flush=True)
