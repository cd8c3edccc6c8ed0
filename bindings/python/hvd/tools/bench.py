"""`hvd bench`: starts hvd-bench, the program that measures, and with --plot draws what it has found; with --training
measures the steps of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hvd.tools import program, training_step


def main(arguments: list[str]) -> int:
    if "--training" in arguments:
        return training_step.main(arguments)
    return program.run("bench", arguments, draw)


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
