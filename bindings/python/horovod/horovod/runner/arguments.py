"""horovodrun's options. Of what was not given, a setting is None and a switch that can only be turned on False."""

from __future__ import annotations

import argparse

import horovod


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        description="Starts a script written for Horovod, with hvdrun (hvdrun --help has what else that can do).",
        epilog="Settings count in this order: options, the file of --config-file, environment variables.",
    )
    for add in (_add_general, _add_ssh, _add_tunables, _add_autotune, _add_elastic, _add_observation, _add_library):
        add(parser)
    _add_logging(parser)
    _add_hosts(parser)
    _add_controllers(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


def _add_general(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--version", action="version", version=horovod.__version__)
    parser.add_argument("-np", "--num-proc", type=int, metavar="N", help="number of processes")
    parser.add_argument("-cb", "--check-build", action="store_true", default=None, help="say what there is, and end")
    parser.add_argument("--disable-cache", action="store_true", help="no effect")
    parser.add_argument("--start-timeout", type=int, metavar="S", help="seconds for all processes to start (30)")
    for name, text in (("--network-interfaces", "those to use between hosts"), ("--network-interface", "the same")):
        parser.add_argument(name, dest="nics", action=_Interfaces, metavar="A,B", help=f"{text}; repeatable")
    parser.add_argument("--output-filename", metavar="DIR", help="output also to DIR/rank.<N>/stdout and stderr")
    parser.add_argument("--verbose", action="store_true", help="say what is started, and how it ends")
    parser.add_argument("--config-file", metavar="YAML", help="a file with settings")


class _Interfaces(argparse.Action):
    """Names, with commas between them or one by one, as a set."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        setattr(namespace, self.dest, (getattr(namespace, self.dest) or set()) | set(values.split(",")))


def _add_ssh(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("SSH")
    group.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="where other hosts listen")
    group.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="a private key")


def _add_switch(group: argparse._ActionsContainer, name: str, text: str, dest: str | None = None) -> None:
    """--name and --no-name."""
    switch = group.add_mutually_exclusive_group()
    dest = dest or name.replace("-", "_")
    switch.add_argument(f"--{name}", dest=dest, action="store_true", default=None, help=text)
    switch.add_argument(f"--no-{name}", dest=dest, action="store_false", default=None, help=argparse.SUPPRESS)


def _add_tunables(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tunables")
    group.add_argument("--fusion-threshold-mb", type=int, metavar="MB", help="small tensors that are reduced as one")
    group.add_argument("--cycle-time-ms", type=float, metavar="MS", help="how long small tensors wait for others")
    group.add_argument("--cache-capacity", type=int, metavar="N", help="operations whose agreement is remembered")
    _add_switch(group, "hierarchical-allreduce", "no effect")
    _add_switch(group, "hierarchical-allgather", "no effect")
    _add_switch(group, "torus-allreduce", "no effect")


def _add_autotune(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("autotuning")
    _add_switch(group, "autotune", "time steps with several settings, and keep the best")
    group.add_argument("--autotune-log-file", metavar="FILE", help="what was timed, as comma-separated values")
    group.add_argument("--autotune-warmup-samples", type=int, metavar="N", help="samples that do not count")
    group.add_argument("--autotune-steps-per-sample", type=int, metavar="N", help="steps in a sample")
    group.add_argument("--autotune-bayes-opt-max-samples", type=int, metavar="N", help="samples at most")
    group.add_argument("--autotune-gaussian-process-noise", type=float, metavar="X", help="no effect")


def _add_elastic(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("elastic jobs, whose number of processes may change")
    for bound, text in (("min", "go on as long as there are so many"), ("max", "at most; by default all slots")):
        group.add_argument(
            f"--{bound}-np", f"--{bound}-num-proc", dest=f"{bound}_num_proc", type=int, metavar="N", help=text
        )
    group.add_argument("--slots-per-host", dest="slots", type=int, metavar="N", help="no effect")
    group.add_argument("--elastic-timeout", type=int, metavar="S", help="seconds to wait for enough processes (600)")
    group.add_argument("--reset-limit", type=int, metavar="N", help="how often the processes may change")
    group.add_argument(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        type=int,
        nargs=2,
        metavar=("MIN", "MAX"),
        action=_Cooldown,
        help="seconds for which a host gets no process after a failure there, doubled each time (1 300)",
    )


class _Cooldown(argparse.Action):
    """Two numbers of seconds, from 1 to 3600, of which the second is not below the first."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        lowest, highest = values
        if not 1 <= lowest <= highest <= 3600:
            parser.error(f"{option_string} {lowest} {highest}: two numbers from 1 to 3600, the smaller first")
        setattr(namespace, self.dest, values)


def _add_observation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("timeline and stalls")
    group.add_argument("--timeline-filename", metavar="FILE", help="what rank 0 does when, for chrome://tracing")
    _add_switch(group, "timeline-mark-cycles", "mark each answer of the coordinator")
    switch = group.add_mutually_exclusive_group()
    switch.add_argument("--no-stall-check", action="store_true", default=None, help="say nothing of stalls")
    switch.add_argument("--stall-check", dest="no_stall_check", action="store_false", default=None, help="the default")
    group.add_argument("--stall-check-warning-time-seconds", type=int, metavar="S", help="when a stall is reported")
    group.add_argument("--stall-check-shutdown-time-seconds", type=int, metavar="S", help="when it is an error")


def _add_library(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("libraries")
    _add_switch(group, "mpi-threads-disable", "no effect")
    group.add_argument("--mpi-args", metavar="OPTIONS", help="mpirun's, which hvdrun understands as well")
    group.add_argument("--tcp", dest="tcp_flag", action="store_true", help="no InfiniBand for NCCL")
    group.add_argument("--binding-args", metavar="OPTIONS", help="mpirun's for binding: --bind-to core and the like")
    group.add_argument("--num-nccl-streams", type=int, metavar="N", help="no effect")
    group.add_argument("--thread-affinity", type=int, metavar="CPU", help="no effect")
    group.add_argument("--gloo-timeout-seconds", type=int, metavar="S", help="to wait for a rank that is silent")


def _add_logging(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logging")
    levels = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]
    group.add_argument("--log-level", choices=levels, help="of what the ranks' hvd says")
    times = group.add_mutually_exclusive_group()
    for name, value in (("with-timestamp", True), ("without-timestamp", False)):
        times.add_argument(
            f"--log-{name}", dest="log_with_timestamp", action="store_const", const=value, help="no effect"
        )
    for name, value in (("log-hide-timestamp", False), ("no-log-hide-timestamp", True)):
        times.add_argument(
            f"--{name}", dest="log_with_timestamp", action="store_const", const=value, help=argparse.SUPPRESS
        )
    group.add_argument(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        action="store_true",
        help="begin every line with the time",
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hosts").add_mutually_exclusive_group()
    group.add_argument("-H", "--hosts", metavar="HOST:SLOTS,...", help="by default this host alone")
    group.add_argument("-hostfile", "--hostfile", metavar="FILE", help='the same, a host a line: "HOST slots=N"')
    group.add_argument("--host-discovery-script", metavar="PROGRAM", help="prints the hosts of an elastic job")


def _add_controllers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("who starts the processes").add_mutually_exclusive_group()
    group.add_argument("--gloo", dest="use_gloo", action="store_true", help="hvdrun; the default")
    group.add_argument("--mpi", dest="use_mpi", action="store_true", help="mpirun")
    group.add_argument("--jsrun", dest="use_jsrun", action="store_true", help="refused")
