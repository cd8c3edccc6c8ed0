"""A lab of netlab.sh that stands while a module's tests run, and hvdrun started in it from here."""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

import pytest

from timeouts import at_most

PATIENCE_S = 240


class StandingLab:
    """Hosts h1, h2, ...; what is started in it runs on the bridge, which has this machine's name."""

    def __init__(self, netlab, hosts, rate="none", networks=1):
        holder = "echo $NETLAB_HOLDERS && exec cat"
        self.process = subprocess.Popen(
            [str(netlab), str(hosts), rate, "bash", "-c", holder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NETLAB_NETWORKS": str(networks)},
        )
        holders = self.process.stdout.readline().split()
        assert holders, "the lab does not stand"
        self.rsh = f"{netlab} on"
        self.variables = {
            "NETLAB_HOSTS": str(hosts),
            "NETLAB_HOLDERS": " ".join(holders),
            "NETLAB_NETWORKS": str(networks),
            "NETLAB_RSH": self.rsh,
        }
        self.netlab = str(netlab)
        self.namespace, self.inner = self.find_inside()

    def find_inside(self):
        """The lab's process namespace, and our number of a process in it: that which keeps the lab."""
        own = os.readlink("/proc/self/ns/pid")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:  # the shell has spoken, and is about to become cat
            for pid in descendants(self.process.pid):
                namespace = namespace_of(pid)
                if namespace not in (own, None) and words_of(pid) == ["cat"]:
                    return namespace, pid
        raise AssertionError("the lab does not stand")

    def enter(self, command):
        spaces = ("--net", "--uts", "--mount", "--pid")
        return ["nsenter", *spaces, f"--target={self.inner}", f"--wdns={os.getcwd()}", *map(str, command)]

    def popen(self, command, **options):
        environment = {**options.pop("env", os.environ), **self.variables}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(self.enter(command), env=environment, **{**streams, **options})

    def run(self, *command, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        if "input" in options:
            del options["stdin"]
        environment = {**options.pop("env", os.environ), **self.variables}
        timeout = options.pop("timeout", PATIENCE_S)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.run(self.enter(command), env=environment, timeout=timeout, **options)

    def cut(self, *host):
        assert self.run(self.netlab, "cut", *host).returncode == 0

    def join(self, *host):
        assert self.run(self.netlab, "join", *host).returncode == 0

    def part(self, *hosts):
        assert self.run(self.netlab, "part", *hosts).returncode == 0

    def mend(self, *hosts):
        assert self.run(self.netlab, "mend", *hosts).returncode == 0

    def left(self):
        """Processes of jobs: ranks, hvdrun, agents and supervisors, by our numbers."""
        found = {}
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if namespace_of(pid) != self.namespace or stat_of(pid)[0] in "ZX":
                continue
            words = words_of(pid)
            if "hvdrun" in " ".join(words) or "hvd-supervisor" in " ".join(words) or has_job_key(pid):
                found[pid] = shlex.join(filter(None, words))
        return found

    def agents(self):
        """Those of hvdrun, by our numbers."""
        words = {pid: words_of(pid) or [""] for pid in self.left()}  # it may have gone meanwhile
        return [pid for pid, (program, *options) in words.items() if "hvdrun" in program and "agent" in options]

    def addresses_of(self, pid):
        """Those of the host on which a process runs."""
        told = subprocess.run(["nsenter", "--net", f"--target={pid}", "hostname", "-I"], capture_output=True, text=True)
        return told.stdout.split()

    def await_nothing_left(self, seconds=3, besides=()):
        deadline = time.monotonic() + at_most(seconds)
        while left := {pid: words for pid, words in self.left().items() if pid not in besides}:
            assert time.monotonic() < deadline, left
            time.sleep(0.02)

    def close(self):
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


def find_hvdrun(program):
    """Its path; skips where it, or the program that it is to start, is not built."""
    path = os.environ.get("HVDRUN") or shutil.which("hvdrun")
    if path is None or not program.exists():
        pytest.skip("build/release is not built")
    return str(pathlib.Path(path).resolve())


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def namespace_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def words_of(pid):
    return read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")[:-1]


def has_job_key(pid):
    return b"HVD_JOB_KEY=" in read(f"/proc/{pid}/environ")


def stat_of(pid):
    """State, parent, ... as in /proc/PID/stat."""
    return read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split() or ["X", "0"]


def descendants(root):
    parents = {int(name): int(stat_of(name)[1]) for name in os.listdir("/proc") if name.isdigit()}
    result = [root]
    for pid in result:
        result += [child for child, parent in parents.items() if parent == pid]
    return result[1:]


def resident_mb(pid):
    for line in read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0
