"""`hvd doctor`: what is installed, what this machine allows, and whether two ranks reach each other in every way."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import hvd
from hvd import _native, installation

OK, NOTE, PROBLEM = "ok", "note", "problem"

# How long tests may take on a machine that has nothing else to do; see seconds_for().
SELF_TEST_SECONDS = 60
IMPORT_SECONDS = 180  # from a slow disk
WAYS = {"shared memory": "1", "TCP": "0"}  # by which ranks of a machine reach each other: HVD_SHARED_MEMORY
VECTORS = ("avx2", "f16c", "avx512f", "asimd", "asimdhp")  # of /proc/cpuinfo: what reductions are compiled for
FEWEST_FILES = 4096  # for 500 ranks between hosts


@dataclass(frozen=True)
class Finding:
    section: str
    name: str
    status: str  # ok, note (nothing is wrong, something is not there), problem
    text: str
    advice: str = ""  # what to do


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="hvd doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    options = parser.parse_args(arguments)
    findings = []
    for finding in examine():
        findings.append(finding)
        if not options.json:
            show(finding, is_first=len(findings) == 1 or findings[-2].section != finding.section)
    problems = sum(finding.status == PROBLEM for finding in findings)
    if options.json:
        print(json.dumps({"problems": problems, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        print(f"\n{'no problems' if problems == 0 else f'problems: {problems}'}")
    return 1 if problems else 0


def show(finding: Finding, is_first: bool) -> None:
    if is_first:
        print(finding.section)
    mark = {OK: " ", NOTE: "-", PROBLEM: "!"}[finding.status]
    print(f"  {mark} {finding.name}: {finding.text}")
    if finding.advice:
        print(f"      {finding.advice}")
    sys.stdout.flush()  # self-tests take their time


def examine() -> Iterator[Finding]:
    for look in (look_at_hvd, look_at_frameworks, look_at_machine, look_at_backends):
        yield from look()


# ---- what is installed


def look_at_hvd() -> Iterator[Finding]:
    section = "hvd"
    yield Finding(section, "version", OK, hvd.__version__)
    yield Finding(section, "Python", OK, f"{platform.python_version()}, {sys.executable}")
    for name, path in (("library", "lib/libhvd.so.0"), ("hvdrun", "bin/hvdrun"), ("benchmark", "bin/hvd-bench")):
        try:
            yield Finding(section, name, OK, str(installation.find(path)))
        except FileNotFoundError as error:
            yield Finding(section, name, PROBLEM, str(error), "install hvd anew")


# MXNet has had no release since NumPy 1.24, with which it cannot be imported, and does not ask for an older one.
_TO_INSTALL = {"mxnet": "mxnet==1.9.1 numpy==1.23.5"}


def look_at_frameworks() -> Iterator[Finding]:
    """One on each CPU at a time, since each import takes seconds."""
    frameworks = (
        ("PyTorch", "hvd.torch", "torch"),
        ("TensorFlow", "hvd.tensorflow", "tensorflow", "tensorflow-cpu"),
        ("Keras", "hvd.keras", "keras", "tf_keras"),
        ("JAX", "hvd.jax", "jax"),
        ("MXNet", "hvd.mxnet", "mxnet"),
    )
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        yield from threads.map(lambda framework: look_at_framework(*framework), frameworks)


def look_at_framework(name: str, module: str, *packages: str) -> Finding:
    """Whether hvd's module for it can be imported, if one of the packages is installed: in a process of its own, since
    importing a framework changes this one."""
    versions = [f"{package} {version}" for package in packages if (version := version_of(package))]
    if not versions:
        command = f"pip install {_TO_INSTALL.get(packages[0], packages[0])}"
        return Finding("frameworks", name, NOTE, "not installed", f"{module} needs it: {command}")
    found = ", ".join(versions)
    limit = seconds_for(IMPORT_SECONDS)
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            env={**outside_job(), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.DEVNULL,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        text = f"{found}: {module} was not imported within {limit} s"
        return Finding("frameworks", name, PROBLEM, text, "try again when this machine has less to do")
    except OSError as error:
        return Finding("frameworks", name, PROBLEM, f"{found}: {error}")
    if done.returncode == 0:
        return Finding("frameworks", name, OK, f"{found}; import {module}")
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return Finding("frameworks", name, PROBLEM, f"{found}: {module} cannot be imported", "\n      ".join(lines[-4:]))


def seconds_for(seconds: int) -> int:
    """As many, or more where processes outnumber CPUs."""
    processes_per_cpu = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return round(seconds * min(max(processes_per_cpu, 1.0), 10.0))


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# ---- what the machine allows


def look_at_machine() -> Iterator[Finding]:
    section = "machine"
    yield Finding(section, "system", OK, f"{platform.system()} {platform.release()}, {platform.machine()}")
    cpus = len(os.sched_getaffinity(0))
    yield Finding(section, "CPUs", OK, f"{cpus} of {os.cpu_count()} may be used; {vector_instructions()}")
    yield from (look_at_memfd(), look_at_locked_memory(), look_at_open_files())


def vector_instructions() -> str:
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    found = [name for name in VECTORS if flags and name in flags.group(1).split()]
    return f"reductions can use {', '.join(found)}" if found else "no vector instructions known to hvd"


def look_at_memfd() -> Finding:
    try:
        os.close(os.memfd_create("hvd-doctor"))
        return Finding("machine", "shared memory", OK, "memfd_create works: no limit of /dev/shm applies")
    except OSError as error:
        advice = "allow the system call memfd_create (a container's seccomp profile may forbid it)"
        return Finding("machine", "shared memory", PROBLEM, f"memfd_create: {error.strerror}", advice)


def look_at_locked_memory() -> Finding:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return Finding("machine", "locked memory", OK, "unlimited")
    advice = "networks that read memory directly want more: ulimit -l unlimited"
    return Finding("machine", "locked memory", NOTE, f"at most {limit // 1024} KiB", advice)


def look_at_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft}, can be raised to {hard}" if soft != hard else f"{soft}"
    if hard >= FEWEST_FILES or hard == resource.RLIM_INFINITY:
        return Finding("machine", "open files", OK, text)
    return Finding("machine", "open files", NOTE, text, "large jobs want more: ulimit -n 65536")


# ---- whether ranks reach each other


def look_at_backends() -> Iterator[Finding]:
    for way, shared_memory in WAYS.items():
        yield self_test(way, shared_memory)
    yield from look_at_mpi()
    yield from look_at_gpu_libraries()


def self_test(way: str, shared_memory: str) -> Finding:
    try:
        launcher = [str(installation.find("bin/hvdrun")), "-timeout", str(seconds_for(SELF_TEST_SECONDS))]
    except OSError as error:
        return Finding("backends", way, PROBLEM, str(error))
    return try_two_ranks(way, launcher, {"HVD_SHARED_MEMORY": shared_memory, "HVD_CPU_BACKEND": "host"})


def look_at_mpi() -> Iterator[Finding]:
    """Each MPI whose launcher is on the PATH, tried."""
    for plugin in installation.MPI_PLUGINS.values():
        try:
            installation.find(f"lib/hvd/{plugin}")
        except FileNotFoundError as error:
            yield Finding("backends", "MPI", PROBLEM, str(error), "install hvd anew")
    found = find_mpi_launchers()
    for kind, (launcher, version) in found.items():
        options = ["--allow-run-as-root", "--oversubscribe"] if kind == "Open MPI" else []
        finding = try_two_ranks(kind, [launcher, *options], {"HVD_CPU_BACKEND": "mpi"})
        yield replace(finding, text=f"{version}, {launcher}: {finding.text}")
    if not found:
        advice = "if your machines have MPI, put its mpirun or mpiexec on the PATH; hvdrun does without"
        yield Finding("backends", "MPI", NOTE, "no mpirun or mpiexec was found", advice)


def look_at_gpu_libraries() -> Iterator[Finding]:
    """What tensors on GPUs need. PyTorch is imported first, since it may bring a copy of NCCL along."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")
    for line in _native.gpu_libraries().splitlines():
        name, state, text = line.split(": ", 2)
        if state == "ok":
            yield Finding("backends", name, OK, text)
        else:
            yield Finding("backends", name, NOTE, text, "only tensors on GPUs need it")


def find_mpi_launchers() -> dict[str, tuple[str, str]]:
    """By kind of MPI: the launcher and what it says of its version."""
    found: dict[str, tuple[str, str]] = {}
    for name in ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.mpich", "mpiexec.hydra"):
        launcher = shutil.which(name)
        if launcher is None:
            continue
        try:
            done = subprocess.run(
                [launcher, "--version"], capture_output=True, text=True, timeout=seconds_for(SELF_TEST_SECONDS)
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        kind, version = kind_of_mpi(done.stdout + done.stderr)
        if kind is not None:
            found.setdefault(kind, (launcher, version))
    return found


def kind_of_mpi(text: str) -> tuple[str | None, str]:
    """The kind of MPI to which a launcher belongs that says this of itself, and its version; pure."""
    if open_mpi := re.search(r"\(Open(?: MPI|RTE)\) (\S+)", text):
        return "Open MPI", f"Open MPI {open_mpi[1]}"
    if "HYDRA" in text.upper() or "Intel(R) MPI" in text:
        version = re.search(r"Version:?\s+(\S+)", text)
        return "MPICH", f"MPICH {version[1]}" if version else "MPICH"
    return None, ""


def try_two_ranks(way: str, launcher: list[str], variables: dict[str, str]) -> Finding:
    """Two ranks on this machine add up tensors of 8 bytes and 1 MB, and check every result."""
    try:
        with tempfile.TemporaryDirectory(prefix="hvd-doctor-") as folder:
            results = Path(folder, "results.json")
            command = [*launcher, "-np", "2", str(installation.find("bin/hvd-bench")), "allreduce"]
            command += ["--sizes", "8,1M", "--seconds", "0.05", "--json", str(results)]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env={**outside_job(), **variables},
                stdin=subprocess.DEVNULL,
                timeout=2 * seconds_for(SELF_TEST_SECONDS),
            )
            if done.returncode == 0:
                return Finding("backends", way, OK, summary(json.loads(results.read_text())["results"]))
    except (OSError, subprocess.TimeoutExpired) as error:  # there may be no folder to write to
        return Finding("backends", way, PROBLEM, str(error))
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return Finding("backends", way, PROBLEM, "two ranks did not reach each other", "\n      ".join(lines[-8:]))


def outside_job() -> dict[str, str]:
    """The environment without what a launcher may have set for this process, and without files for a job's results,
    which the self-tests would overwrite."""
    own = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "STORE", "JOB_KEY", "HOSTNAME"]
    own += ["PROCESS", "ELASTIC", "SERVER", "SERVERS"]  # of elastic jobs, and of those with parameter servers
    dropped = {f"{prefix}_{name}" for prefix in ("HVD", "HOROVOD") for name in own}
    dropped |= {"RANK", "WORLD_SIZE", "HVD_TORCH_VARIABLES", "TF_CONFIG"}
    dropped |= {f"{prefix}_{name}" for prefix in ("HVD", "HOROVOD") for name in ("TIMELINE", "AUTOTUNE_LOG")}  # files
    of_others = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "SLURM_")
    return {name: value for name, value in os.environ.items() if name not in dropped and not name.startswith(of_others)}


def summary(rows: list[dict[str, Any]]) -> str:
    times = ", ".join(f"{row['bytes']} bytes in {row['median_us']:.1f} us" for row in rows)
    return f"works; allreduce between two ranks: {times}"
