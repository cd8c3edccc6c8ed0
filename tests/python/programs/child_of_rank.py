"""A process that a rank has started inherits its variables: it is refused at once, and told how it may work alone."""

import multiprocessing
import os
import re
import subprocess
import sys

import hvd._native as native
from hvd import basics, objects


def who_this_is():
    try:
        basics.init()
        return f"{native.rank()} of {native.size()}"
    except ValueError as error:
        return str(error)


def answer(queue):
    queue.put(who_this_is())


def by_spawn():
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    child = spawn.Process(target=answer, args=(queue,))
    child.start()
    said = queue.get(timeout=200)
    child.join()
    return said


def by_popen():
    command = [sys.executable, __file__, "child"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=200).stdout.strip()


def by_fork_and_exec():
    """With all descriptors of the rank's that are inherited, for instance MPICH's to its launcher."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.execv(sys.executable, [sys.executable, __file__, "child"])
    os.close(writer)
    with os.fdopen(reader) as text:
        said = text.read().strip()
    os.waitpid(child, 0)
    return said


def check_children():
    expected = rf"is a child of rank {native.rank()} \(pid {os.getpid()}\).*HVD_SIZE=1, and without HVD_RANK"
    for start in (by_popen, by_fork_and_exec, by_spawn):
        said = start()
        assert re.search(expected, said), said
    for name in ("HVD_RANK", "HOROVOD_RANK"):
        os.environ.pop(name, None)
    os.environ["HVD_SIZE"] = "1"
    assert by_popen() == "0 of 1"


if __name__ == "__main__" and sys.argv[1:] == ["child"]:
    print(who_this_is())
elif __name__ == "__main__":
    basics.init()
    rank = basics.rank()
    check_children()
    objects.allgather_object(rank)  # whose children are refused is in a job: no rank leaves before all have seen theirs
    basics.shutdown()
    print(f"rank {rank} is fine")
