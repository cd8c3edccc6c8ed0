"""What a test sees of a job at which strangers throw bytes: its sockets, its memory, its times."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent

RATE = 250  # streams a second
LISTENING_TCP = "0A"
ACCEPTS = 0x10000  # a Unix socket that listens


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def family_of(pid):
    """hvdrun and its ranks, in their order, which are its supervisor's children."""
    return [pid, *(rank for supervisor in children_of(pid) for rank in children_of(supervisor))]


def listening_sockets(pid):
    """Ports, and names of abstract Unix sockets, on which a process listens."""
    inodes = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue  # closed since
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    for table in ("tcp", "tcp6"):
        for row in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == LISTENING_TCP and fields[9] in inodes:
                yield int(fields[1].rpartition(":")[2], 16)
    for row in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        fields = row.split()
        if int(fields[3], 16) & ACCEPTS and fields[6] in inodes and len(fields) > 7 and fields[7].startswith("@"):
            yield fields[7][1:]


def targets_of(pid):
    return sorted({socket for member in family_of(pid) for socket in listening_sockets(member)}, key=str)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def key_of(pid):
    """The job's key, from the environment of one of its ranks."""
    for member in family_of(pid):
        for entry in pathlib.Path(f"/proc/{member}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"HVD_JOB_KEY="):
                return entry.partition(b"=")[2].decode()
    raise LookupError("no process has a key")


class Stranger:
    """What throws streams, from `popen`'s side of the network: stranger.py or what is like it, and its arguments."""

    def __init__(self, program, *arguments, popen=subprocess.Popen):
        command = [sys.executable, HERE / program, *map(str, arguments)]
        self.process = popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.outcomes = {}

    def attack(self, targets, streams):
        print(json.dumps({"targets": targets, "streams": streams}), file=self.process.stdin, flush=True)
        report = json.loads(self.process.stdout.readline())
        for outcome, count in report["outcomes"].items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        return report["began"], report["ended"]

    def leave(self):
        self.process.stdin.close()
        self.process.wait(30)


def await_line(job, beginning, count):
    deadline = time.monotonic() + 30
    while sum(line.startswith(beginning) for line in job.said()[0].splitlines()) < count:
        assert time.monotonic() < deadline and job.poll() is None, job.said()
        time.sleep(0.01)


def attack_in_turns(job, decoy, streams, pid, after=lambda: None):
    """Of `job` and `decoy`, pairs of a Stranger and a function that says its targets, in turns with calm moments.
    Returns when each was: the calm, the decoy's and the job's attacks; and `pid`'s processor time in the last."""
    calm, elsewhere, attacked, cpu = [], [], [], 0
    windows = max(3, streams // (RATE // 2))  # half a second each
    for _ in range(windows):
        began = time.monotonic()
        time.sleep(0.5)
        calm.append((began, time.monotonic()))
        elsewhere.append(decoy[0].attack(decoy[1](), streams // windows))
        cpu -= cpu_seconds(pid)
        attacked.append(job[0].attack(job[1](), streams // windows))
        cpu += cpu_seconds(pid)
        after()
    return (calm, elsewhere, attacked), cpu


def median_steps_us(file, kinds):
    """Of each kind of windows, from what allreduce_loop's --times has written."""
    times = [tuple(map(int, line.split())) for line in file.read_text().splitlines()]
    return [median_us(times, windows) for windows in kinds]


def median_us(times, windows):
    steps = [took for began, took in times if any(begin <= began / 1e6 < end for begin, end in windows)]
    return statistics.median(steps)
