"""Inside a lab of netlab.sh: a job of allreduce_loop with two ranks on each of two hosts, to which something happens.

    lab_job.py NETLAB PROGRAM cut|stop SECONDS [OPTION...]

cut: the second host is cut off once all ranks loop, and each has SECONDS to end by itself. stop: the first rank of the
second host is stopped for SECONDS; then the job is told to end. Options are the program's. On standard output, as JSON:
when that happened (CLOCK_MONOTONIC), and for each rank its exit code and what it said.
"""

import json
import os
import pathlib
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

HOSTS = ["h1", "h1", "h2", "h2"]


class Rank:
    """A process on a host of the lab, and the lines that it has said so far."""

    def __init__(self, netlab, host, environment, command):
        words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        # exec, so that a signal meets the program.
        line = f"exec env {' '.join(words)} {shlex.join(command)}"
        self.process = subprocess.Popen([netlab, "on", host, line], stdout=subprocess.PIPE, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def await_line(self, beginning, after=0, timeout=120):
        deadline = time.monotonic() + timeout
        while not any(line.startswith(beginning) for line in self.lines[after:]):
            assert time.monotonic() < deadline and self.process.poll() is None, self.lines
            time.sleep(0.01)

    def end(self, deadline):
        try:
            code = self.process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = None
        self.reader.join(10)
        return {"exit": code, "said": self.lines}


def start_ranks(netlab, command):
    workers = [f"{host}:{5000 + rank}" for rank, host in enumerate(HOSTS)]
    key = secrets.token_hex(32)
    ranks = []
    for rank, host in enumerate(HOSTS):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        environment = {"TF_CONFIG": json.dumps(config), "HVD_JOB_KEY": key}
        ranks.append(Rank(netlab, host, environment, command))
    return ranks


def main():
    netlab, program, what, seconds, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        enough = pathlib.Path(folder) / "enough"
        ranks = start_ranks(netlab, [program, "--until", str(enough), *options])
        for rank in ranks:
            rank.await_line("step 20")
        happened = time.monotonic()
        if what == "cut":
            subprocess.run([netlab, "cut", "h2"], check=True)
            deadline = happened + float(seconds)
        else:
            victim = ranks[HOSTS.index("h2")]
            os.kill(victim.process.pid, signal.SIGSTOP)
            time.sleep(float(seconds))
            os.kill(victim.process.pid, signal.SIGCONT)
            said = len(victim.lines)
            victim.await_line("step", after=said)
            enough.touch()
            deadline = time.monotonic() + 30
        ended = [rank.end(deadline) for rank in ranks]
    print(json.dumps({"happened": happened, "ranks": ended}))


if __name__ == "__main__":
    main()
