"""The ratios as a picture: a panel for each case of several sizes, a line for each peer, a tick where a gate is."""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from .cases import format_size
from .rows import Row

MAX_COLUMNS = 3


def draw(rows: Iterable[Row], path: str, caption: str) -> None:
    panels: dict[str, list[Row]] = {}
    for row in rows:
        if row.size is not None:
            panels.setdefault(row.case, []).append(row)
    panels = {case: of_case for case, of_case in panels.items() if len({row.size for row in of_case}) > 1}
    columns = max(1, min(MAX_COLUMNS, len(panels)))
    lines = max(1, -(-len(panels) // columns))
    figure, grid = plt.subplots(lines, columns, figsize=(6 * columns, 4.5 * lines), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (case, of_case) in zip(grid.flat, panels.items()):
        draw_case(axes, case, of_case)
    figure.suptitle(f"the other's time by hvd's, by medians; ticks: gates\n{caption}", fontsize=9, wrap=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_case(axes: plt.Axes, case: str, rows: list[Row]) -> None:
    for peer in dict.fromkeys(row.peer for row in rows):
        of_peer = [row for row in rows if row.peer == peer]
        (line,) = axes.plot([row.size for row in of_peer], [row.by_medians for row in of_peer], "o-", ms=3, label=peer)
        gated = [row for row in of_peer if row.gate is not None]
        axes.plot([row.size for row in gated], [row.gate for row in gated], "_", ms=14, mew=2, color=line.get_color())
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(title=case, xscale="log", yscale="log")
    sizes = sorted({row.size for row in rows})
    axes.set_xticks(sizes, [format_size(size) for size in sizes], rotation=45, fontsize=8)
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize=8)
