"""`hvd`, or `python -m hvd`: the doctor, the benchmark, the simulator, a look into running jobs, where the C++ package
lies, which variables there are."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys

import hvd
from hvd import _native, installation
from hvd.tools import bench, doctor, pods, running_jobs, simulate, top

COMMANDS = {  # each with its own options
    "doctor": doctor.main,
    "bench": bench.main,
    "simulate": simulate.main,
    "pods": pods.main,
    "stacks": running_jobs.main,
    "top": top.main,
}

DESCRIPTION = """\
commands:
  doctor    what is installed, what this machine allows, whether ranks reach each other
  bench     time the collectives: hvd bench -np 4 allreduce, or divide a step: hvd bench -np 2 --training
  simulate  how 100,000 ranks would agree: hvd simulate --ranks 100000 --tensors 1000 (hvd simulate --help)
  pods      which pods of Kubernetes an elastic job may use: for hvdrun --cluster kubernetes
  stacks    where the ranks of a running job are: hvd stacks [PID of hvdrun]
  top       what they do per second: hvd top [PID of hvdrun]
"""


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # `hvd doctor | head`: the reader has seen enough. What is still buffered has nowhere to go.
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _drop_output()
        print(f"hvd: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:])
    parser = argparse.ArgumentParser(
        prog="hvd",
        usage="hvd [-h] (COMMAND ... | --cmake-dir | --include-dir | --environment | --version)",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cmake-dir", action="store_true", help="print the directory of the CMake package")
    which.add_argument("--include-dir", action="store_true", help="print the directory of hvd.h and hvd_plugin.h")
    which.add_argument("--environment", action="store_true", help="print all HVD_* variables, as Markdown")
    which.add_argument("--version", action="version", version=hvd.__version__)
    which.add_argument("command", nargs="?", choices=COMMANDS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not arguments:
        parser.print_help()
        return 0
    if options.environment:
        print(_native.environment_documentation(), end="")
        return 0
    try:
        print(installation.find("include/hvd.h" if options.include_dir else "lib/cmake/hvd/hvdConfig.cmake").parent)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
