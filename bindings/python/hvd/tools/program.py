"""What `hvd bench` and `hvd simulate` have in common: they start a program that is installed beside the package, and
with --plot draw what it has found."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from hvd import installation

FORMATS = (".png", ".pdf", ".svg")


class Parser(argparse.ArgumentParser):
    """Says what is wrong on one line; of several ranks rank 0 does."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_complain(self.prog, message) if os.environ.get("HVD_RANK", "0") == "0" else 2)


def _complain(command: str, message: object, code: int = 2) -> int:
    print(f"{command}: {message}", file=sys.stderr)
    return code


def run(
    name: str, arguments: list[str], draw: Callable[[dict[str, Any], Path], None], with_plot: tuple[str, ...] = ()
) -> int:
    """Runs bin/hvd-NAME as `hvd NAME`; `with_plot`: further arguments where the results are to be drawn."""
    shown = f"hvd {name}"
    parser = Parser(prog=shown, add_help=False, allow_abbrev=False)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    options, others = parser.parse_known_args(arguments)
    try:
        command = [str(installation.find(f"bin/hvd-{name}")), *others]
    except FileNotFoundError as error:
        return _complain(shown, error, code=1)
    draws_nothing = not {"-h", "--help", "--version"}.isdisjoint(others)
    if options.plot is None or draws_nothing or os.environ.get("HVD_RANK", "0") != "0":  # of several ranks rank 0 draws
        become(command if options.json is None else [*command, "--json", str(options.json)], os.environ)
    if options.plot.suffix not in FORMATS or not options.plot.parent.is_dir():
        return _complain(shown, f"--plot {options.plot}: not a {', '.join(FORMATS)} file in a directory that exists")
    if importlib.util.find_spec("matplotlib") is None:
        return _complain(shown, "--plot needs matplotlib: pip install matplotlib")
    with tempfile.TemporaryDirectory() as folder:
        results = options.json or Path(folder, "results.json")
        code = _run([*command, *with_plot, "--json", str(results)])
        if code == 0:
            draw(json.loads(results.read_text()), options.plot)
    return code


def become(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Makes this process that program, without the signals that Python ignores: with SIGPIPE ignored it would go on
    writing to a reader that has left."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execve(command[0], command, environment)


def _run(command: list[str]) -> int:
    """Runs it to its end. The terminal sends Ctrl-C to it directly; SIGTERM to this process is passed on."""
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code
