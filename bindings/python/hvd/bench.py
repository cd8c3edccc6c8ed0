"""`hvd bench`: starts hvd-bench, the program that measures, and with --plot draws what it has found."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from hvd import installation

FORMATS = (".png", ".pdf", ".svg")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(_complain(message))


def _complain(message: object, code: int = 2) -> int:
    print(f"hvd bench: {message}", file=sys.stderr)
    return code


def main(arguments: list[str]) -> int:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    options, others = parser.parse_known_args(arguments)
    try:
        command = [str(installation.find("bin/hvd-bench")), *others]
    except FileNotFoundError as error:
        return _complain(error, code=1)
    if options.plot is None or os.environ.get("HVD_RANK", "0") != "0":  # of several ranks rank 0 draws
        os.execv(command[0], command if options.json is None else [*command, "--json", str(options.json)])
    if options.plot.suffix not in FORMATS or not options.plot.parent.is_dir():
        return _complain(f"--plot {options.plot}: not a {', '.join(FORMATS)} file in a directory that exists")
    if importlib.util.find_spec("matplotlib") is None:
        return _complain("--plot needs matplotlib: pip install matplotlib")
    with tempfile.TemporaryDirectory() as folder:
        results = options.json or Path(folder, "results.json")
        code = _run([*command, "--json", str(results)])
        if code == 0:
            draw(json.loads(results.read_text()), options.plot)
    return code


def _run(command: list[str]) -> int:
    """Runs it to its end. Ctrl-C reaches it by itself, from the terminal; who ends this process means it, too."""
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code


def draw(report: dict[str, Any], path: Path) -> None:
    """Time and bandwidth over size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = report["results"]
    sizes = [row["bytes"] for row in rows]
    figure, (times, bandwidths) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 8), constrained_layout=True)
    what = [report[word] for word in ("collective", "op", "dtype") if report[word] != "none"]
    figure.suptitle(f"hvd {report['version']} {' '.join(what)}, ranks: {report['ranks']}, hosts: {report['hosts']}")
    times.plot(sizes, [row["median_us"] for row in rows], marker="o", label="median")
    times.fill_between(
        sizes, [row["min_us"] for row in rows], [row["p99_us"] for row in rows], alpha=0.2, label="min to p99"
    )
    times.set(ylabel="us", yscale="log")
    for kind in ("algbw", "busbw"):
        bandwidths.plot(sizes, [row[f"{kind}_gb_per_s"] for row in rows], marker="o", label=kind)
    bandwidths.set(ylabel="GB/s", xlabel="bytes")
    if min(sizes) > 0:  # a barrier has none
        bandwidths.set_xscale("log", base=2)
    bandwidths.xaxis.set_major_formatter(lambda size, _: _size_text(size))
    for axes in (times, bandwidths):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path)
    pyplot.close(figure)


def _size_text(size: float) -> str:
    for unit in ("", "K", "M"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}G"
