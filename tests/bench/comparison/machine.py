"""Where and with what was measured: recorded beside the results."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from .preparation import ROOT


def conditions() -> dict:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": first_match(r"model name\s*: (.*)", "/proc/cpuinfo") or platform.machine(),
        "cores": os.cpu_count(),
        "used_cores": sorted(os.sched_getaffinity(0)),
        "memory_gib": round(int(first_match(r"MemTotal:\s*(\d+)", "/proc/meminfo") or 0) / 2**20, 1),
        "kernel": platform.release(),
        "hypervisor": "hypervisor" in (first_match(r"flags\s*: (.*)", "/proc/cpuinfo") or ""),
        "transparent_hugepages": first_match(r"\[(\w+)\]", "/sys/kernel/mm/transparent_hugepage/enabled"),
        "sched_autogroup": first_match(r"(\d)", "/proc/sys/kernel/sched_autogroup_enabled") == "1",
        "load_average": os.getloadavg()[0],
        "versions": versions(),
    }


def versions() -> dict:
    return {
        "hvd": output("git", "-C", str(ROOT), "describe", "--always", "--dirty") or package("hvd"),
        "Open MPI": (re.findall(r"[\d.]+", output("mpirun", "--version")) or [None])[0],
        "torch": package("torch"),
        "Horovod": package("horovod"),
        "compiler": (output("c++", "--version").splitlines() or [None])[0],
        "python": platform.python_version(),
    }


def package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def output(*command: str) -> str:
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    except OSError:
        return ""


def first_match(pattern: str, path: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return found.group(1).strip() if found else None


def two_cores() -> set[int]:
    """The first two CPUs that this process may use and that do not share a core; just the first two if all do."""
    allowed = sorted(os.sched_getaffinity(0))
    siblings = first_match(r"(\S+)", f"/sys/devices/system/cpu/cpu{allowed[0]}/topology/thread_siblings_list") or ""
    shared = parse_cpus(siblings)
    others = [cpu for cpu in allowed[1:] if cpu not in shared] or allowed[1:]
    return {allowed[0], *others[:1]}


def parse_cpus(text: str) -> set[int]:
    """ "0-2,8" """
    cpus = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus
