"""Allreduces of NumPy's arrays by `import hvd` and of tensors by hvd.torch, in turn, in the same job.

    hvdrun -np 2 python tests/bench/arrays.py [--sizes 8,16M] [--rounds 40]

In place (`out=` and `allreduce_`) and into a new array. Every round takes the variants one after the other, with many
calls of each for small sizes, and checks a result of each. Rank 0's times of a call.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable

import numpy as np
import torch

import hvd
import hvd.torch
from torch_allreduce import parse_size

CALLS_OF_SMALL = 500
SMALL_BYTES = 64 << 10

VARIANTS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "hvd, NumPy, out=": (np.zeros, lambda a: hvd.allreduce(a, op=hvd.Sum, name="numpy.out", out=a)),
    "hvd.torch, in place": (torch.zeros, lambda t: hvd.torch.allreduce_(t, op=hvd.Sum, name="torch.out")),
    "hvd, NumPy, new": (np.zeros, lambda a: hvd.allreduce(a, op=hvd.Sum, name="numpy.new")),
    "hvd.torch, new": (torch.zeros, lambda t: hvd.torch.allreduce(t, op=hvd.Sum, name="torch.new")),
}


def seconds_per_call(reduce: Callable[[Any], Any], given: Any, calls: int) -> float:
    """Of sums in place only the first has the ranks' own values; later ones add zeros up."""
    given[...] = hvd.rank() + 1
    hvd.barrier()
    start = time.perf_counter()
    result = reduce(given)
    seconds = time.perf_counter() - start
    assert (result == hvd.size() * (hvd.size() + 1) // 2).all(), "wrong values"
    if calls == 1:
        return seconds
    given[...] = 0
    start = time.perf_counter()
    for _ in range(calls):
        reduce(given)
    return (time.perf_counter() - start) / calls


def measure(size_bytes: int, rounds: int) -> None:
    calls = CALLS_OF_SMALL if size_bytes <= SMALL_BYTES else 1
    arrays = {name: zeros(size_bytes // 4) for name, (zeros, _) in VARIANTS.items()}
    arrays = {name: a.astype(np.float32) if isinstance(a, np.ndarray) else a for name, a in arrays.items()}
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, (_, reduce) in VARIANTS.items():
            times[name].append(seconds_per_call(reduce, arrays[name], calls) * 1e6)
    if hvd.rank() == 0:
        for name, of_variant in times.items():
            least, median = min(of_variant), statistics.median(of_variant)
            print(f"{size_bytes:10} bytes  {name:20} min {least:10.2f} us  median {median:10.2f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description="allreduces of NumPy's arrays beside those of torch's tensors")
    parser.add_argument("--sizes", default="8,16M", help="bytes (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    for size in options.sizes.split(","):
        measure(parse_size(size), options.rounds)


if __name__ == "__main__":
    main()
