"""What horovodrun makes of its arguments: hvdrun's command line, the ranks' environment, and what to say of arguments
that have no effect. Pure, but for looking who owns the mpirun on the PATH.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

from horovod.runner.common.util import config_parser
from horovod.runner.common.util.env import is_exportable
from hvd import installation
from hvd.tools import doctor

_CHOSEN = "hvd chooses its algorithms itself (HVD_ALGORITHM overrides it)"

# By argument: how it is typed, and why it changes nothing.
NO_EFFECT = {
    "disable_cache": ("--disable-cache", "hvdrun has no start-up checks to cache"),
    "hierarchical_allreduce": ("--hierarchical-allreduce", _CHOSEN),
    "hierarchical_allgather": ("--hierarchical-allgather", _CHOSEN),
    "torus_allreduce": ("--torus-allreduce", _CHOSEN),
    "autotune_gaussian_process_noise": ("--autotune-gaussian-process-noise", "hvd's tuner has no such model"),
    "mpi_threads_disable": ("--mpi-threads-disable", "hvd uses the thread level that MPI provides"),
    "num_nccl_streams": ("--num-nccl-streams", "hvd manages its CUDA streams itself"),
    "thread_affinity": ("--thread-affinity", 'hvd\'s threads stay with their rank: --binding-args="--bind-to core"'),
    "log_with_timestamp": ("--log-with-timestamp, --log-without-timestamp", "hvd's lines always have the time"),
    "slots": (
        "--slots-per-host",
        "set `HOST:SLOTS` in the output of the discovery script; a host without a number has one slot",
    ),
}


def notes(args: Any) -> list[str]:
    """A line for each argument that was given and has no effect."""
    given = {name: getattr(args, name, None) for name in NO_EFFECT}
    return [
        f"{typed} has no effect: {why}"
        for name, (typed, why) in NO_EFFECT.items()
        if given[name] or (name == "log_with_timestamp" and given[name] is False)
    ]


def number_of_processes(args: Any) -> int:
    """With which the job begins."""
    return max(args.num_proc or 1, args.min_num_proc or 1)


def hvdrun_command(args: Any, environment: Mapping[str, str]) -> list[str]:
    """The program that runs the job, with all that it is told. Errors as of hvdrun_options()."""
    hvdrun = str(installation.find("bin/hvdrun"))
    bounds = ["--min-np", str(args.min_num_proc)] if args.min_num_proc is not None else []
    bounds += ["--max-np", str(args.max_num_proc)] if args.max_num_proc is not None else []
    np = str(number_of_processes(args))
    return [hvdrun, "-np", np, *bounds, *hvdrun_options(args, environment), *args.command]


def hvdrun_options(args: Any, environment: Mapping[str, str]) -> list[str]:
    """What hvdrun is told besides the numbers of processes and the program.

    Raises:
        ValueError: for what is refused, and if there is no mpirun to start the processes.
    """
    if args.use_jsrun:
        raise ValueError("--jsrun: jobs of LSF are not supported; within one, use --mpi")
    options = _hosts(args)
    options += ["--mpi", *_of_mpirun(args, environment)] if args.use_mpi else _of_agents(args)
    options += _of_elastic_jobs(args)
    options += ["--verbose"] if args.verbose else []
    options += ["--timestamp-output"] if args.prefix_output_with_timestamp else []
    options += ["--output-filename", args.output_filename] if args.output_filename else []
    return options + shlex.split(args.binding_args or "") + shlex.split(args.mpi_args or "")


def _hosts(args: Any) -> list[str]:
    if args.host_discovery_script:
        return ["--host-discovery-script", args.host_discovery_script]
    return ["--hostfile", args.hostfile] if args.hostfile else ["-H", args.hosts or _this_host(args)]


def _of_agents(args: Any) -> list[str]:
    """How hvdrun reaches hosts, where not mpirun does."""
    options = ["--gloo"] if args.use_gloo else []
    options += ["--ssh-port", str(args.ssh_port)] if args.ssh_port else []
    options += ["--ssh-identity-file", args.ssh_identity_file] if args.ssh_identity_file else []
    options += ["--network-interface", ",".join(sorted(args.nics))] if args.nics else []
    return options + (["--start-timeout", str(args.start_timeout)] if args.start_timeout else [])


def _of_elastic_jobs(args: Any) -> list[str]:
    options = ["--elastic-timeout", str(args.elastic_timeout)] if args.elastic_timeout is not None else []
    options += ["--reset-limit", str(args.reset_limit)] if args.reset_limit is not None else []
    return options + (["--cooldown-range", ",".join(map(str, args.cooldown_range))] if args.cooldown_range else [])


def _this_host(args: Any) -> str:
    return f"localhost:{max(number_of_processes(args), args.max_num_proc or 1)}"


def _of_mpirun(args: Any, environment: Mapping[str, str]) -> list[str]:
    """What Open MPI needs to be told to do what horovodrun is expected to do. MPICH does so without options."""
    try:
        done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise ValueError(f"--mpi: mpirun cannot be started: {error}") from error
    if doctor.kind_of_mpi(done.stdout + done.stderr)[0] != "Open MPI":
        return []
    binding = [] if args.binding_args else ["--bind-to", "none", "--map-by", "slot"]
    # On its own host mpirun passes on the whole environment anyway.
    exported = sorted(filter(is_exportable, environment)) if args.hosts or args.hostfile else []
    ssh = ["-p", str(args.ssh_port)] if args.ssh_port else []
    ssh += ["-i", args.ssh_identity_file] if args.ssh_identity_file else []
    network = ["-mca", "plm_rsh_args", " ".join(ssh)] if ssh else []
    network += ["-mca", "btl_tcp_if_include", ",".join(sorted(args.nics))] if args.nics else []
    return ["--allow-run-as-root", *binding, *network, *(word for name in exported for word in ("-x", name))]


def environment_of_ranks(args: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """The launcher's own environment with what the arguments say."""
    result = dict(environment)
    config_parser.set_env_from_args(result, args)
    if args.start_timeout is not None:
        result["HOROVOD_START_TIMEOUT"] = str(args.start_timeout)
        result.pop("HVD_START_TIMEOUT", None)
    if args.gloo_timeout_seconds is not None:
        result["HVD_COLLECTIVE_TIMEOUT_SECONDS"] = str(args.gloo_timeout_seconds)
    if args.tcp_flag:
        result["NCCL_IB_DISABLE"] = "1"
    if names := sorted(name for name in args.nics or () if "/" not in name):  # NCCL knows no networks
        result["NCCL_SOCKET_IFNAME"] = ",".join(names)
    return result
