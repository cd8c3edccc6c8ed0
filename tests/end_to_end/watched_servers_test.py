"""A job with parameter servers as its user watches it: who is shown, and who is named when workers wait."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("hvd")

from hvd.tools import running_jobs, top

TIMEOUT = 200

# Worker 1 stands still while the file `pause` is there; all end with the file `end`.
SCRIPT = """
import os, pathlib, sys, threading, time
import numpy as np, hvd

def tell_metrics():
    while hvd_metrics().get("shard_pushes", 0) == 0:
        time.sleep(0.01)
    print("metrics", hvd_metrics()["shard_rows"] > 0, flush=True)

def hvd_metrics():
    try:
        return hvd.metrics()
    except ValueError:
        return {}  # it has not begun to serve

if "HVD_SERVER" in os.environ:
    threading.Thread(target=tell_metrics, daemon=True).start()
hvd.init()
folder = pathlib.Path(sys.argv[1])
with hvd.ps.connect() as servers:
    table = servers.table("t", 4, hvd.ps.Add(), consistency=1)
    keys = np.arange(20)
    while not (folder / "end").exists():
        table.push_pull(keys, np.ones((20, 4), np.float32))
        servers.clock()
        while hvd.rank() == 1 and (folder / "pause").exists():
            time.sleep(0.01)
        time.sleep(0.002)
    counts = hvd.metrics()
    print("worker", counts["ps_pushes"] == counts["ps_pulls"] == counts["ps_rows"] / 20 > 0, flush=True)
"""


class Watched:
    def __init__(self, hvdrun, folder):
        script = folder / "script.py"
        script.write_text(SCRIPT)
        self.log = folder / "log"
        words = [hvdrun, "-np", "2", "--servers", "2", sys.executable, str(script), str(folder)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HVD_STALL_CHECK_TIME_SECONDS": "1"},
            )

    def await_true(self, condition):
        deadline = time.monotonic() + TIMEOUT
        while not (found := condition()):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return found

    def await_line(self, pattern):
        return self.await_true(lambda: re.search(pattern, self.log.read_text()))

    def sample(self):
        try:
            return top.take_sample(self.process.pid)
        except running_jobs.Unreachable:
            return top.Sample(0, {}, {})

    def marks(self):
        sample = self.sample()
        return [row.mark for row in top.shards_between(sample, sample)]


@pytest.fixture
def watched(hvdrun, tmp_path):
    job = Watched(hvdrun, tmp_path)
    yield job
    job.process.kill()
    job.process.wait()


def test_servers_are_shown_and_who_keeps_workers_waiting_is_named(watched, tmp_path):
    watched.await_true(lambda: all(line.get("pushes", 0) > 0 for line in watched.sample().shards.values() or [{}]))
    sample = watched.sample()
    assert sorted(sample.shards) == [(0, 0), (1, 1)] and sorted(sample.ranks) == [0, 1]
    assert sum(line["rows"] for line in sample.shards.values()) == 20
    stacks = running_jobs.ask(watched.process.pid, "stacks")
    assert re.search(r"server 1 \(host \S+\): pid \d+, at script.py:\d+ in <module>\n  shard 1: \d+ rows", stacks), (
        stacks
    )

    pathlib.Path(tmp_path / "pause").touch()
    watched.await_line(
        r"the job is stalled: rank 1 \(host \S+\) has kept rank 0 waiting for \d+\.\d s at server \d \(host \S+\), "
        r"because its clock is behind; it is at script.py:\d+ in <module>"
    )
    assert "1 waits for worker 1" in watched.marks()
    pathlib.Path(tmp_path / "pause").unlink()
    watched.await_true(lambda: watched.marks() == ["", ""])

    server = sample.shards[1, 1]["pid"]
    os.kill(server, signal.SIGSTOP)
    watched.await_line(r"the job is stalled: server 1 \(host \S+\) is stopped, as by SIGSTOP or Ctrl-Z; rank")
    assert watched.marks()[1] == "stopped"
    os.kill(server, signal.SIGCONT)
    pathlib.Path(tmp_path / "end").touch()
    assert watched.process.wait(TIMEOUT) == 0, watched.log.read_text()
    output = watched.log.read_text()
    assert output.count("worker True") == 2 and output.count("metrics True") == 2, output
