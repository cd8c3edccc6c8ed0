"""Inside a lab of netlab.sh: a job of hvdrun with two ranks on each of two hosts, to which something happens.

    fault_job.py NETLAB HVDRUN FAULT VICTIM AWAITED [--hvdrun OPTION]... PROGRAM...

FAULT happens once every rank that can has said AWAITED ("" for: as soon as the victim exists). On standard output, as
JSON: when it happened, what hvdrun said and when (CLOCK_MONOTONIC), its exit code, when no process of the job was left,
and what is left in the end. All processes of the lab, and no others, are in its /proc.
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

PATIENCE = 30
RANK = "allreduce_loop"


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
    """Number, program and threads of all that run, zombies left out."""
    result = []
    for entry in pathlib.Path("/proc").iterdir():
        status = dict(line.split(":", 1) for line in read(entry.name, "status").splitlines() if ":" in line)
        if entry.name.isdigit() and status and "Z" not in status["State"]:
            program = pathlib.Path(read(entry.name, "cmdline").split("\0")[0]).name
            result.append((int(entry.name), program, int(status["Threads"])))
    return result


def victims(name):
    """ "rank 2", "ranks", "agent", "guardian" (of host h2), "driver"."""
    holder = os.environ["NETLAB_HOLDERS"].split()[1]
    there = namespace(os.getpid() if name == "driver" else holder)
    found = [entry for entry in processes() if namespace(entry[0]) == there]
    if name.startswith("rank"):
        ranks = [pid for pid, program, _ in found if program == RANK]
        return ranks if name == "ranks" else [pid for pid in ranks if "\0HVD_RANK=2\0" in "\0" + read(pid, "environ")]
    return [pid for pid, program, threads in found if program == "hvdrun" and (threads == 1) == (name == "guardian")]


def of_the_job():
    """Everything that belongs to it: hvdrun, agents, guardians, ranks, and what carries the job's key."""
    result = []
    for pid, program, _ in processes():
        if program in ("hvdrun", RANK) or "\0HVD_JOB_KEY=" in "\0" + read(pid, "environ"):
            result.append(f"{pid} {program}")
    return result


def files():
    roots = [pathlib.Path("/dev/shm"), pathlib.Path(tempfile.gettempdir())]
    return {str(path) for root in roots for path in root.iterdir()}


class Driver:
    def __init__(self, command):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self.said = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.said.append((time.monotonic(), line.rstrip("\n")))

    def has_said(self, words, after=0.0):
        return {line[: line.index("]")] for when, line in list(self.said) if when > after and f">: {words}" in line}


def wait_for(condition, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while not (result := condition()):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    return result


def strike(netlab, fault, name):
    if fault == "cut":
        subprocess.run([netlab, "cut", "h2"], check=True)
    elif fault in ("kill", "stop"):
        for pid in wait_for(lambda: victims(name)):
            os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def main():
    netlab, hvdrun, fault, victim, awaited, *rest = sys.argv[1:]
    before = files()
    rsh = ["--rsh", os.environ["NETLAB_RSH"]]
    driver = Driver([hvdrun, "-np", "4", "-H", "h1:2,h2:2", *rsh, "--tag-output", "--grace", "0.5", *rest])
    reached = not awaited or bool(wait_for(lambda: len(driver.has_said(awaited)) == 4))
    happened = time.monotonic()
    strike(netlab, fault, victim)
    went_on = None
    if fault == "stop" and victim.startswith("rank"):
        wait_for(lambda: any("waiting" in line or "stall" in line.lower() for _, line in list(driver.said)), 10)
        for pid in victims(victim):
            os.kill(pid, signal.SIGCONT)
        resumed = time.monotonic()
        went_on = wait_for(lambda: len(driver.has_said("step", resumed)) == 4, 10) is not None
        driver.process.terminate()
    elif fault == "none" or victim == "guardian":
        time.sleep(0.3)
        driver.process.terminate()
    clean = wait_for(lambda: driver.process.poll() is not None and not of_the_job(), 15)
    clean_at = time.monotonic()
    left = of_the_job()
    if not clean:
        driver.process.kill()
    driver.reader.join(2)
    report = {"reached": reached, "happened": happened, "exit": driver.process.poll(), "said": driver.said}
    report |= {"clean": clean_at, "left": left, "files": sorted(files() - before), "went_on": went_on}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
