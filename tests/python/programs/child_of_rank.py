"""A process that a rank has started inherits its variables: it is refused, and told how it may work alone."""

import multiprocessing
import os
import re

import hvd._native as native
from hvd import basics


def join(queue):
    try:
        basics.init()
        queue.put(f"{native.rank()} of {native.size()}")
    except ValueError as error:
        queue.put(str(error))


def spawned():
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    child = spawn.Process(target=join, args=(queue,))
    child.start()
    said = queue.get(timeout=60)
    child.join()
    return said


if __name__ == "__main__":
    basics.init()
    rank = basics.rank()
    if rank == 1:
        said = spawned()
        assert re.search(rf"is a child of rank 1 \(pid {os.getpid()} on .*HVD_SIZE=1, and without HVD_RANK", said), said
        del os.environ["HVD_RANK"], os.environ["HOROVOD_RANK"]
        os.environ["HVD_SIZE"] = "1"
        assert spawned() == "0 of 1"
    basics.shutdown()
    print(f"rank {rank} is fine")
