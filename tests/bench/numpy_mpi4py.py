"""The allreduce of a NumPy array in place, by `import hvd` and by mpi4py under Open MPI, in launches by turns.

    python tests/bench/numpy_mpi4py.py [--sizes 8,16M] [--launches 5] [--json FILE]

Two ranks, each on a CPU of its own. Open MPI runs with its own settings and without CMA; the better of the two counts,
for each size. Before each round arrays are rewritten, and after it every element is checked, outside of the time; up to
64 KB a round times many calls in a row. A time is that of the slowest rank, per call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from comparison.cases import MPI_IN_PLACE, MPI_NO_CMA_IN_PLACE, PINNED_PAIR, format_size
from comparison.commands import HVDRUN, WITHOUT_CMA, mpi_options, pinned

PERIOD = 1021
SMALL_BYTES = 64 << 10
CALLS_OF_SMALL = 100  # each doubles the sum, which stays exact in float32 as long as only its exponent grows
ROUNDS = 40
WARM_UP = 3
LAUNCH_SECONDS = 120


class WithHvd:
    def __init__(self) -> None:
        import hvd

        hvd.init()
        self.rank, self.barrier, self._hvd = hvd.rank(), hvd.barrier, hvd

    def sum_function(self) -> Callable[[np.ndarray], Any]:
        allreduce, kind = self._hvd.allreduce, self._hvd.Sum
        return lambda array: allreduce(array, op=kind, name="sum", out=array)

    def slowest(self, seconds: float) -> float:
        return float(self._hvd.allreduce(np.array(seconds), op=self._hvd.Max, name="slowest"))


class WithMpi:
    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.barrier = self._world.rank, self._world.Barrier

    def sum_function(self) -> Callable[[np.ndarray], Any]:
        allreduce, in_place = self._world.Allreduce, self._mpi.IN_PLACE
        return lambda array: allreduce(in_place, array)

    def slowest(self, seconds: float) -> float:
        return self._world.allreduce(seconds, self._mpi.MAX)


def contribution(rank: int, round_number: int, elements: int) -> np.ndarray:
    return np.resize((np.arange(PERIOD, dtype=np.float32) + 131 * rank + 17 * round_number) % PERIOD, elements)


def seconds_per_call(library: Any, array: np.ndarray, round_number: int, calls: int) -> float:
    reduce = library.sum_function()
    own, other = (contribution(rank, round_number, array.size) for rank in (library.rank, 1 - library.rank))
    array[...] = own
    library.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        reduce(array)
    seconds = (time.perf_counter() - began) / calls
    assert (array == (own + other) * np.float32(2.0 ** (calls - 1))).all(), "wrong values"
    return library.slowest(seconds)


def be_a_rank(library: Any, sizes: list[int], results: str) -> None:
    found = []
    for size in sizes:
        array = np.empty(size // 4, np.float32)
        calls = CALLS_OF_SMALL if size <= SMALL_BYTES else 1
        times = [seconds_per_call(library, array, number, calls) * 1e6 for number in range(WARM_UP + ROUNDS)][WARM_UP:]
        found.append({"bytes": size, "min_us": min(times), "median_us": statistics.median(times)})
    if library.rank == 0:
        Path(results).write_text(json.dumps(found))


def commands(program: list[str]) -> dict[str, list[str]]:
    ranks = pinned([*program, "--rank", "hvd"]), pinned([*program, "--rank", "mpi"])
    mpirun = ["mpirun", *mpi_options(PINNED_PAIR)]
    return {
        "hvd": [str(HVDRUN), "-np", "2", *ranks[0]],
        MPI_IN_PLACE: [*mpirun, *ranks[1]],
        MPI_NO_CMA_IN_PLACE: [*mpirun, *WITHOUT_CMA, *ranks[1]],
    }


def launch(command: list[str], results: Path) -> list[dict]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LAUNCH_SECONDS)
    if done.returncode != 0:
        sys.exit(f"numpy_mpi4py: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(results.read_text())


def report(size: int, launches: dict[str, list[dict]]) -> dict:
    """Of the minima of launches the least, of their medians the median; printed and returned."""
    rows = {name: [row for row in found if row["bytes"] == size] for name, found in launches.items()}
    least = {name: min(row["min_us"] for row in of) for name, of in rows.items()}
    medians = {name: statistics.median(row["median_us"] for row in of) for name, of in rows.items()}
    for name in rows:
        print(f"{format_size(size):>8}  {name:32} min {least[name]:10.2f} us  median {medians[name]:10.2f} us")
    peers = [name for name in rows if name != "hvd"]
    by_minima = min(least[name] for name in peers) / least["hvd"]
    by_medians = min(medians[name] for name in peers) / medians["hvd"]
    print(f"{format_size(size):>8}  mpi4py / hvd: {by_medians:.2f} by medians, {by_minima:.2f} by minima", flush=True)
    return {"bytes": size, "min_us": least, "median_us": medians, "by_medians": by_medians, "by_minima": by_minima}


def main() -> None:
    parser = argparse.ArgumentParser(description="NumPy's arrays, reduced by hvd and by mpi4py in turn")
    parser.add_argument("--sizes", default="8,16M", help="bytes (default: %(default)s)")
    parser.add_argument("--launches", type=int, default=5, help="of each (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the results into this file too")
    parser.add_argument("--rank", choices=["hvd", "mpi"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size.replace("M", "")) << (20 if "M" in size else 0) for size in options.sizes.split(",")]
    if options.rank:
        return be_a_rank(WithHvd() if options.rank == "hvd" else WithMpi(), sizes, options.json)
    with tempfile.TemporaryDirectory(prefix="numpy-mpi4py-") as folder:
        results = Path(folder, "results.json")
        program = [sys.executable, __file__, "--sizes", options.sizes, "--json", str(results)]
        launches: dict[str, list[dict]] = {name: [] for name in commands(program)}
        for _ in range(options.launches):
            for name, command in commands(program).items():
                launches[name] += launch(command, results)
    rows = [report(size, launches) for size in sizes]
    if options.json:
        Path(options.json).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
