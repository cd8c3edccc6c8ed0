"""Inside a lab of netlab.sh: a job of hvdrun with two ranks on each of two hosts, to which something happens.

    fault_job.py NETLAB HVDRUN FAULT VICTIM AWAITED [OPTION...] PROGRAM [ARGUMENT...]

The program is allreduce_loop, maybe behind a shell's words.

FAULT (kill, stop; cut: a host from all others; part: two; full: a disk for the output that soon is) meets VICTIM (see
victims()) once every rank has said AWAITED; "hvdrun: ...": once hvdrun has; if it is empty, as soon as there is one. A
stopped rank goes on once it is reported as stalled, a stopped hvdrun once its hosts are clean. A job that a fault does
not end is then told to end. On standard output, as JSON: when the fault happened, what hvdrun said and when
(CLOCK_MONOTONIC), what ranks wrote down when they failed, hvdrun's exit code, when no process of the job was left (a
stopped hvdrun apart), and what is left in the end. All processes of the lab, and no others, are in its /proc.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

TIMEOUT = 60
RANK = "allreduce_loop"
SUPERVISOR = "hvd-supervisor"
LEFT = "hvd-left"  # what ranks leave running, with nothing in its environment


def read(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def processes():
    """Number and program of all that run, zombies left out."""
    result = []
    for entry in pathlib.Path("/proc").iterdir():
        status = dict(line.split(":", 1) for line in read(entry.name, "status").splitlines() if ":" in line)
        if entry.name.isdigit() and status and "Z" not in status["State"]:
            result.append((int(entry.name), pathlib.Path(read(entry.name, "cmdline").split("\0")[0]).name))
    return result


def victims(name):
    """ "rank 2", "ranks", "agent", "supervisor" (of host h2), "driver"; for cut and part hosts, "bridge": hvdrun's."""
    holder = os.environ["NETLAB_HOLDERS"].split()[1]
    there = namespace(os.getpid() if name == "driver" else holder)
    found = [entry for entry in processes() if namespace(entry[0]) == there]
    if name.startswith("rank"):
        ranks = [pid for pid, program in found if program == RANK]
        return ranks if name == "ranks" else [pid for pid in ranks if "\0HVD_RANK=2\0" in "\0" + read(pid, "environ")]
    # An agent's supervisor is called hvdrun, too, for its first moment.
    return sorted(pid for pid, program in found if program == (SUPERVISOR if name == "supervisor" else "hvdrun"))[:1]


def of_the_job():
    """All that belongs to it: hvdrun, agents, supervisors, ranks, what these leave, and what has the job's key."""
    result = []
    for pid, program in processes():
        if program in ("hvdrun", SUPERVISOR, RANK, LEFT) or "\0HVD_JOB_KEY=" in "\0" + read(pid, "environ"):
            result.append(f"{pid} {program}")
    return result


def files(folder):
    """Those that hvdrun and the ranks may have made. Other jobs of the machine have theirs in /dev/shm."""
    return [str(path) for path in (*pathlib.Path("/dev/shm").glob("*hvd*"), *folder.iterdir())]


class Driver:
    def __init__(self, command):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )
        self.said = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.said.append((time.monotonic(), line.rstrip("\n")))

    def says(self, words):
        return any(line.startswith(words) for _, line in list(self.said))

    def has_said(self, words, after=0.0):
        return {line[: line.index("]")] for when, line in list(self.said) if when > after and f">:{words}" in line}


def wait_for(condition, timeout=TIMEOUT):
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    return result


def strike(netlab, fault, name):
    if fault in ("cut", "part"):
        subprocess.run([netlab, fault, *name.split()], check=True)
    elif fault in ("kill", "stop"):
        found = wait_for(lambda: victims(name))
        # All are stopped before the first dies: none may leave by itself because another was killed.
        for sign in (signal.SIGSTOP, signal.SIGKILL) if fault == "kill" else (signal.SIGSTOP,):
            for pid in found:
                os.kill(pid, sign)


def let_go_on(driver, name):
    """What was stopped. Returns whether all ranks went on, or when the hosts of a stopped hvdrun were clean."""
    if name == "driver":
        own = str(driver.process.pid)
        wait_for(lambda: all(entry.split()[0] == own for entry in of_the_job()))
        clean = time.monotonic()
        driver.process.send_signal(signal.SIGCONT)
        return clean
    # On a busy machine hvdrun may tell of a slow rank before.
    wait_for(lambda: driver.says(f"hvdrun: the job is stalled: {name} (host h2) is stopped"))
    resumed = time.monotonic()
    for pid in victims(name):
        os.kill(pid, signal.SIGCONT)
    return wait_for(lambda: len(driver.has_said("step", resumed)) == 4) is not None


def reached(driver, awaited):
    if awaited.startswith("hvdrun: "):
        return driver.says(awaited)
    return len(driver.has_said(awaited)) == 4


def play(netlab, hvdrun, fault, victim, awaited, *job, folder):
    failures = folder / "failures"
    failures.mkdir()
    before = files(folder)
    options = ["-np", "4", "-H", "h1:2,h2:2", "--tag-output"]
    if fault == "full":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"], check=True)
        options += ["--output-filename", "/mnt"]
    driver = Driver([hvdrun, *options, *job, "--failures", str(failures)])
    came_so_far = not awaited or bool(wait_for(lambda: reached(driver, awaited)))
    happened = time.monotonic()
    strike(netlab, fault, victim)
    then = let_go_on(driver, victim) if fault == "stop" and victim != "agent" else None
    if then is True or then is False:
        driver.process.terminate()
    clean = wait_for(lambda: driver.process.poll() is not None and not of_the_job())
    report = {"reached": came_so_far, "happened": happened, "then": then, "left": of_the_job()}
    report["clean"] = then if victim == "driver" and fault == "stop" else time.monotonic()
    if not clean:
        driver.process.kill()
    driver.reader.join(2)
    written = {int(path.name): path.read_text() for path in failures.iterdir()}
    report["failed"] = {rank: text for rank, text in written.items() if text.endswith("\n")}  # not killed over it
    return report | {
        "exit": driver.process.poll(),
        "said": driver.said,
        "files": sorted(set(files(folder)) - set(before)),
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        print(json.dumps(play(*sys.argv[1:], folder=pathlib.Path(folder))))


if __name__ == "__main__":
    main()
