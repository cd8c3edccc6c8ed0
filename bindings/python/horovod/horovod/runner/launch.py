"""The command `horovodrun`: Horovod's options, and hvdrun to do the work."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import horovod
from horovod.common import util
from horovod.runner import translation
from horovod.runner.arguments import make_parser
from horovod.runner.common.util import config_parser, hosts
from hvd import program

_USAGE_ERROR = 2


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """horovodrun's arguments, with the values of the file that --config-file names.

    Args:
        argv: without the program's name; None: those of this process.

    Returns:
        The options by their names, None where one was not given; `command` is a list.

    Raises:
        ValueError: a value that makes no sense, or a file that cannot be read.
        SystemExit: an option that does not exist, or --help or --version.
    """
    parser = make_parser()
    args = parser.parse_args(argv)
    given = {name for name, value in vars(args).items() if value is not None}
    args.unknown_keys = _read_config_file(args, given) if args.config_file else []
    config_parser.validate_config_args(args)
    if args.check_build:
        return args
    if args.command[:1] == ["--"]:
        del args.command[0]
    if not (args.num_proc or args.min_num_proc or args.host_discovery_script):
        parser.error("how many processes? Say -np N")
    if min(args.num_proc or 1, args.min_num_proc or 1) < 1:
        raise ValueError("-np: at least one process")
    if args.hosts:
        hosts.parse_hosts(args.hosts)
    if not args.command:
        parser.error("which program? For instance: horovodrun -np 4 python train.py")
    return args


def _read_config_file(args: argparse.Namespace, given: set[str]) -> list[str]:
    import yaml

    try:
        config = yaml.safe_load(Path(args.config_file).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"--config-file {args.config_file}: {error}") from error
    try:
        return config_parser.set_args_from_config(args, config or {}, given)
    except ValueError as error:
        raise ValueError(f"--config-file {args.config_file}: {error}") from error


def check_build(verbose: bool = False) -> None:
    """Prints which frameworks, ways to start a job and libraries there are, laid out as scripts expect it."""
    print(build_report(verbose))


def build_report(verbose: bool = False) -> str:
    def list_of(entries: dict[str, bool]) -> str:
        return "\n".join(f"    [{'X' if there else ' '}] {name}" for name, there in entries.items())

    mpi, gloo = util.mpi_built(verbose), util.gloo_built(verbose)
    names = {"TensorFlow": "tensorflow", "PyTorch": "torch", "MXNet": "mxnet"}
    frameworks = {shown: util.extension_available(name) for shown, name in names.items()}
    operations = {"NCCL": util.nccl_built(verbose), "DDL": util.ddl_built(verbose), "CCL": util.ccl_built(verbose)}
    return (
        f"Horovod v{horovod.__version__}:\n\n"
        f"Available Frameworks:\n{list_of(frameworks)}\n\n"
        f"Available Controllers:\n{list_of({'MPI': mpi, 'Gloo': gloo})}\n\n"
        f"Available Tensor Operations:\n{list_of({**operations, 'MPI': mpi, 'Gloo': gloo})}\n"
    )


def run_commandline(argv: Sequence[str] | None = None) -> None:
    """What the command `horovodrun` does: becomes hvdrun. Returns only after --check-build.

    Raises:
        SystemExit: the arguments make no sense.
    """
    try:
        args = parse_args(argv)
        if args.check_build:
            check_build(bool(args.verbose))
            return
        environment = translation.environment_of_ranks(args, os.environ)
        command = translation.hvdrun_command(args, environment)
    except (ValueError, OSError) as error:
        _say(str(error))
        sys.exit(_USAGE_ERROR)
    for note in [*translation.notes(args), *(f"{args.config_file}: {key} means nothing" for key in args.unknown_keys)]:
        _say(note)
    program.become(command, environment)


def _say(text: Any) -> None:
    print(f"horovodrun: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run_commandline()
