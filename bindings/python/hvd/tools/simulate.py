"""`hvd simulate`: starts hvd-simulate, which simulates the control plane of a large job,
and with --plot draws the curve over its size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hvd.tools import program


def main(arguments: list[str]) -> int:
    if "--calibrate" in arguments and any(argument.split("=")[0] == "--plot" for argument in arguments):
        print("hvd simulate: --plot draws the times of simulated jobs, and --calibrate has none", file=sys.stderr)
        return 2
    return program.run("simulate", arguments, draw, with_plot=("--curve",))


def draw(report: dict[str, Any], path: Path) -> None:
    """Time of a round over ranks, Horovod's beside it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    jobs = report["jobs"]
    ranks = [job["ranks"] for job in jobs]
    figure, axes = pyplot.subplots(figsize=(9, 6), constrained_layout=True)
    figure.suptitle(
        f"{report['tensors']} tensors, {report['ranks_per_host']} ranks on a host, {report['latency_us']:g} us, "
        f"{report['bandwidth_gbit']:g} Gbit/s"
    )
    for number, (name, color) in enumerate((("new", "tab:blue"), ("cached", "tab:green"))):
        phases = [job["phases"][number] for job in jobs]
        axes.plot(ranks, [phase["time_us"] for phase in phases], color, marker="o", label=f"hvd, {name} tensors")
        times = [phase["network_time_us"] for phase in phases]
        axes.plot(ranks, times, color, marker="o", linestyle="--", alpha=0.5, label=f"hvd, {name}, network alone")
    for key, color, label in (
        ("requests_us", "tab:red", "Horovod, new tensors, star"),
        ("star_of_bits_us", "tab:orange", "Horovod, cached, star of bit vectors"),
        ("tree_of_bits_us", "tab:olive", "Horovod, cached, recursive doubling of bit vectors"),
    ):
        times = [job["horovod"]["pause_us"] + job["horovod"][key] for job in jobs]
        axes.plot(ranks, times, color, marker="s", label=label)
    axes.set(xlabel="ranks", ylabel="us for a round; locked rounds send nothing", xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
