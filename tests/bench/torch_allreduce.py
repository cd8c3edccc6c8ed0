"""The allreduce of one PyTorch library, in place: the work of bench_collectives, from Python, with the same results.

    RANK=0 WORLD_SIZE=2 python tests/bench/torch_allreduce.py gloo --store FILE --sizes 8,64K,16M --json FILE
    hvdrun -np 2 python tests/bench/torch_allreduce.py hvd --sizes 8,64K,16M
    horovodrun -np 2 python tests/bench/torch_allreduce.py horovod --sizes 8,64K,16M

Every size is warmed up and then timed in rounds: tensors are rewritten before and results checked after each, outside
of the time. Up to 64 KB a round times many calls in a row, above one. The time is rank 0's, per call.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import time
from typing import Callable

import torch

PERIOD = 1021
SMALL_BYTES = 64 << 10
ROUND_SECONDS = 0.05
MIN_ROUNDS, MAX_ROUNDS = 5, 2000


def parse_size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


class Gloo:
    def __init__(self, store: str) -> None:
        import torch.distributed as dist

        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", store=dist.FileStore(store, self.size), rank=self.rank, world_size=self.size)
        self.allreduce_: Callable[[torch.Tensor], None] = dist.all_reduce
        self.shut_down = dist.destroy_process_group


class HorovodAlike:
    """Horovod, or hvd through its Horovod interface."""

    def __init__(self, module: str) -> None:
        self._hvd = importlib.import_module(module)
        self._hvd.init()
        self.rank, self.size = self._hvd.rank(), self._hvd.size()
        self.shut_down = self._hvd.shutdown

    def allreduce_(self, tensor: torch.Tensor) -> None:
        self._hvd.allreduce_(tensor, op=self._hvd.Sum, name=f"allreduce of {tensor.numel()}")


class Allreduce:
    """One size."""

    def __init__(self, library: Gloo | HorovodAlike, size_bytes: int) -> None:
        self._library = library
        self._tensor = torch.empty(size_bytes // 4)

    def exact_calls(self) -> int:
        """After how many calls the sum of sums is still exact in float32: each multiplies it by the number of ranks."""
        size = self._library.size
        if size & (size - 1) == 0:  # only the exponent grows
            return 100 // int(math.log2(size)) if size > 1 else 300
        return 1 + int(math.log((1 << 24) / (PERIOD * size)) / math.log(size))

    def seconds_per_call(self, round_number: int, calls: int) -> float:
        library, tensor = self._library, self._tensor
        tensor.copy_(self._repeat(contribution(library.rank, round_number)))
        agree(library, 0)  # as a barrier
        start = time.perf_counter()
        for _ in range(calls):
            library.allreduce_(tensor)
        seconds = (time.perf_counter() - start) / calls
        total = sum(contribution(rank, round_number) for rank in range(library.size))
        expected = self._repeat(total * float(library.size) ** (calls - 1))
        assert torch.equal(tensor, expected), f"wrong values in {tensor.nbytes} bytes"
        return seconds

    def _repeat(self, pattern: torch.Tensor) -> torch.Tensor:
        size = self._tensor.numel()
        return pattern.repeat(size // PERIOD + 1)[:size]


def contribution(rank: int, round_number: int) -> torch.Tensor:
    """What a rank contributes: these values, again and again."""
    return ((torch.arange(PERIOD) + 131 * rank + 17 * round_number) % PERIOD).float()


def agree(library: Gloo | HorovodAlike, value: int) -> int:
    """Rank 0's value, on every rank."""
    tensor = torch.tensor([value if library.rank == 0 else 0])
    library.allreduce_(tensor)
    return int(tensor)


def measure(library: Gloo | HorovodAlike, size_bytes: int, budget: float) -> dict:
    work = Allreduce(library, size_bytes)
    work.seconds_per_call(0, 1)
    call = work.seconds_per_call(1, 1)
    small = size_bytes <= SMALL_BYTES
    calls = agree(library, max(1, min(work.exact_calls(), round(ROUND_SECONDS / call)))) if small else 1
    start = time.perf_counter()
    work.seconds_per_call(2, calls)
    rounds = round(budget / (time.perf_counter() - start))
    rounds = agree(library, max(MIN_ROUNDS, min(MAX_ROUNDS, rounds)))
    times = sorted(work.seconds_per_call(number, calls) * 1e6 for number in range(rounds))
    return {
        "collective": "allreduce",
        "bytes": size_bytes,
        "tensors": 1,
        "in_place": True,
        "rounds": rounds,
        "calls": calls,
        "min_us": times[0],
        "median_us": statistics.median_low(times),
        "p99_us": times[int(0.99 * (rounds - 1))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="the allreduce of one PyTorch library")
    parser.add_argument("library", choices=["gloo", "hvd", "horovod"])
    parser.add_argument("--sizes", required=True, help="bytes, for instance 8,64K,16M")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size, about (default: %(default)s)")
    parser.add_argument("--store", help="gloo: a file where the ranks meet, not there yet")
    parser.add_argument("--json", help="write the results into this file")
    options = parser.parse_args()

    torch.set_num_threads(1)
    library = Gloo(options.store) if options.library == "gloo" else HorovodAlike(f"{options.library}.torch")
    results = []
    for size in options.sizes.split(","):
        results.append(measure(library, parse_size(size), options.seconds))
        if library.rank == 0:
            print("{bytes:10} bytes   min {min_us:12.2f} us   median {median_us:12.2f} us".format_map(results[-1]))
    if library.rank == 0 and options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": options.library, "ranks": library.size, "results": results}, file)
    agree(library, 0)  # nobody leaves while others still work
    library.shut_down()


if __name__ == "__main__":
    main()
