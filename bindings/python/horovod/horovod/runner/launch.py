"""The command `horovodrun`: Horovod's options, and hvdrun to do the work."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import horovod
from horovod.common import util
from horovod.runner import translation
from horovod.runner.arguments import make_parser
from horovod.runner.common.util import config_parser, hosts
from hvd.tools import program

_USAGE_ERROR = 2


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """horovodrun's arguments, with the values of the file that --config-file names.

    Args:
        argv: without the program's name; None: those of this process.

    Returns:
        Horovod's attributes with Horovod's defaults: settings that were not given are None and switches False; `nics`
        is a set or None, `command` a list, which may be empty; `run_func` and `executable` are None.

    Raises:
        ValueError: a value that makes no sense, or a file that cannot be read.
        SystemExit: an option that does not exist, no number of processes, or --help, --version or --check-build.
    """
    args, _ = _parse(argv)
    return args


def _parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and the file's keys that mean nothing."""
    parser = make_parser()
    args = parser.parse_args(argv)
    given = {name for name, value in vars(args).items() if value != parser.get_default(name)}
    unknown_keys = _read_config_file(args, given) if args.config_file else []
    config_parser.validate_config_args(args)
    if args.check_build:
        check_build(args.verbose)
    if args.command[:1] == ["--"]:
        del args.command[0]
    if args.num_proc is None and not (args.min_num_proc or args.host_discovery_script):
        parser.error("how many processes? Say -np N")
    args.run_func = args.executable = None
    return args, unknown_keys


def _check_job(args: argparse.Namespace) -> None:
    """ValueError for what parse_args() accepts and no job can be made of."""
    if min(args.num_proc or 1, args.min_num_proc or 1) < 1 or args.num_proc == 0:
        raise ValueError("-np: at least one process")
    if args.hosts:
        hosts.parse_hosts(args.hosts)
    if not args.command:
        raise ValueError("which program? For instance: horovodrun -np 4 python train.py")


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


def check_build(verbose: bool = False) -> NoReturn:
    """Prints which frameworks, ways to start a job and libraries there are, laid out as scripts expect it, and ends the
    process (SystemExit, with code 0)."""
    print(build_report(verbose))
    sys.exit(0)


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


def run_commandline(argv: Sequence[str] | None = None) -> NoReturn:
    """What the command `horovodrun` does: becomes hvdrun.

    Raises:
        SystemExit: the arguments make no sense, or ask for nothing but a text.
    """
    try:
        args, unknown_keys = _parse(argv)
        _check_job(args)
        environment = translation.environment_of_ranks(args, os.environ)
        command = translation.hvdrun_command(args, environment)
    except (ValueError, OSError) as error:
        _say(str(error))
        sys.exit(_USAGE_ERROR)
    for note in [
        *translation.notes(args),
        *(f"{args.config_file}: {key} is not a known key, and is ignored" for key in unknown_keys),
    ]:
        _say(note)
    program.become(command, environment)


def _say(text: Any) -> None:
    print(f"horovodrun: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run_commandline()
