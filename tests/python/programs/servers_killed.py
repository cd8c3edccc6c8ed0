"""Workers add to rows while their parameter servers, of which every row has two, are killed one after the other: what
was acknowledged is there, once, and no worker waits for a second.

Usage: servers_killed.py KILLS. Prints the longest and the median time that a push took around a kill.
"""

from __future__ import annotations

import os
import pathlib
import signal
import statistics
import sys
import threading
import time

import numpy as np

import hvd

WIDTH, KEYS, ROWS_A_CALL = 256, 1000, 256


def servers_of_this_job() -> dict[int, int]:
    """The process of each server."""
    found = {}
    store = os.environ["HVD_STORE"]
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = dict(one.partition("=")[::2] for one in path.read_text().split("\0") if one)
            state = (path.parent / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if variables.get("HVD_STORE") == store and "HVD_SERVER" in variables and state != "Z":
            found[int(variables["HVD_SERVER"])] = int(path.parent.name)
    return found


def await_copies(servers: hvd.ps.ParameterServers) -> None:
    deadline = time.monotonic() + 60
    while any(one["-"]["copies"] < 2 for one in servers.stats()):
        if time.monotonic() > deadline:
            raise TimeoutError("the shards have no second copy")
        time.sleep(0.005)


class Killer(threading.Thread):
    def __init__(self, servers: hvd.ps.ParameterServers, kills: int) -> None:
        super().__init__()
        self._servers, self._kills = servers, kills
        self.times: list[float] = []

    def run(self) -> None:
        random = np.random.default_rng(7)
        for _ in range(self._kills):
            await_copies(self._servers)
            time.sleep(random.uniform(0, 0.05))
            processes = servers_of_this_job()
            victim = int(random.integers(self._servers.count))
            self.times.append(time.monotonic())
            os.kill(processes[victim], signal.SIGKILL)
            while servers_of_this_job().get(victim) in (None, processes[victim]):
                time.sleep(0.005)
        await_copies(self._servers)


def main() -> None:
    kills = int(sys.argv[1])
    hvd.init()
    servers = hvd.ps.connect()
    table = servers.table("counts", WIDTH, hvd.ps.Add())
    random = np.random.default_rng(hvd.rank())
    expected = np.zeros(KEYS, np.float32)
    ones = np.ones((ROWS_A_CALL, WIDTH), np.float32)
    killer = Killer(servers, kills) if hvd.rank() == 0 else None
    if killer:
        killer.start()
    calls: list[tuple[float, float]] = []
    while True:
        keys = random.integers(0, KEYS, ROWS_A_CALL)
        begin = time.monotonic()
        table.push(keys, ones)
        calls.append((begin, time.monotonic()))
        np.add.at(expected, keys, 1)
        if len(calls) % 50 == 0:
            done = hvd.allreduce(np.array([killer is not None and not killer.is_alive()], np.int32), op=hvd.Sum)
            if done[0]:
                break
    if killer:
        killer.join()
    kill_times = hvd.broadcast_object(killer.times if killer else None, 0)
    total = hvd.allreduce(expected, op=hvd.Sum)
    rows = table.pull(np.arange(KEYS))
    wrong = int((rows != total[:, None]).any(axis=1).sum())
    waits = [
        max((end - begin for begin, end in calls if end > at and begin < at + 3), default=0.0) for at in kill_times
    ]
    print(
        f"worker {hvd.rank()}: {len(calls)} pushes, {wrong} wrong rows, {len(waits)} kills, longest wait "
        f"{max(waits):.3f} s, median {statistics.median(waits):.3f} s",
        flush=True,
    )
    if wrong or len(kill_times) != kills:
        raise SystemExit(1)
    servers.close()


if __name__ == "__main__":
    main()
