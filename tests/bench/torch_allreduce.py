"""The allreduce of one PyTorch library, in place: the work of bench_collectives, from Python, with the same results.

    RANK=0 WORLD_SIZE=2 python tests/bench/torch_allreduce.py gloo --store FILE --sizes 8,64K,16M --json FILE
    hvdrun -np 2 python tests/bench/torch_allreduce.py hvd --sizes 8,64K,16M
    horovodrun -np 2 python tests/bench/torch_allreduce.py horovod --sizes 8,64K,16M
    hvdrun -np 2 python tests/bench/torch_allreduce.py hvd --tensors 100x64M

Every size is warmed up and then timed in rounds: tensors are rewritten before and results checked after each, outside
of the time. Up to 64 KB a round times many calls in a row, above one. The time is rank 0's, per call. Several tensors
are all submitted before the first is waited for.
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

from resnet50 import shapes

PERIOD = 1021
SMALL_BYTES = 64 << 10
ROUND_SECONDS = 0.05
MIN_ROUNDS, MAX_ROUNDS = 5, 2000


def parse_size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def parse_tensors(text: str) -> list[int]:
    """Elements of each, as `hvd bench --tensors` has them: resnet50, or 100x64M."""
    if text == "resnet50":
        return [math.prod(shape) for shape in reversed(shapes())]
    count, size = text.split("x")
    return [parse_size(size) // 4 // int(count)] * int(count)


class Gloo:
    def __init__(self, store: str) -> None:
        import torch.distributed as dist

        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", store=dist.FileStore(store, self.size), rank=self.rank, world_size=self.size)
        self.allreduce_: Callable[[torch.Tensor], None] = dist.all_reduce
        self.shut_down = dist.destroy_process_group

    def allreduce_all_(self, tensors: list[torch.Tensor]) -> None:
        import torch.distributed as dist

        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()


class HorovodAlike:
    """Horovod, or hvd through its Horovod interface."""

    def __init__(self, module: str) -> None:
        self._hvd = importlib.import_module(module)
        self._hvd.init()
        self.rank, self.size = self._hvd.rank(), self._hvd.size()
        self.shut_down = self._hvd.shutdown

    def allreduce_(self, tensor: torch.Tensor) -> None:
        self._hvd.allreduce_(tensor, op=self._hvd.Sum, name=f"allreduce of {tensor.numel()}")

    def allreduce_all_(self, tensors: list[torch.Tensor]) -> None:
        start, kind = self._hvd.allreduce_async_, self._hvd.Sum
        for handle in [start(tensor, op=kind, name=f"tensor {i}") for i, tensor in enumerate(tensors)]:
            self._hvd.synchronize(handle)


class Allreduce:
    """One tensor, or several at a time."""

    def __init__(self, library: Gloo | HorovodAlike, elements: list[int]) -> None:
        self._library = library
        self._tensors = [torch.empty(count) for count in elements]
        self.bytes = 4 * sum(elements)

    def exact_calls(self) -> int:
        """After how many calls the sum of sums is still exact in float32: each multiplies it by the number of ranks."""
        size = self._library.size
        if size & (size - 1) == 0:  # only the exponent grows
            return 100 // int(math.log2(size)) if size > 1 else 300
        return 1 + int(math.log((1 << 24) / (PERIOD * size)) / math.log(size))

    def seconds_per_call(self, round_number: int, calls: int) -> float:
        library, tensors = self._library, self._tensors
        own = self._repeat(contribution(library.rank, round_number))
        for tensor in tensors:
            tensor.copy_(own[: tensor.numel()])
        agree(library, 0)  # as a barrier
        start = time.perf_counter()
        for _ in range(calls):
            if len(tensors) == 1:
                library.allreduce_(tensors[0])
            else:
                library.allreduce_all_(tensors)
        seconds = (time.perf_counter() - start) / calls
        total = sum(contribution(rank, round_number) for rank in range(library.size))
        expected = self._repeat(total * float(library.size) ** (calls - 1))
        for number, tensor in enumerate(tensors):
            assert torch.equal(tensor, expected[: tensor.numel()]), f"wrong values in tensor {number}"
        return seconds

    def _repeat(self, pattern: torch.Tensor) -> torch.Tensor:
        """As many as the longest tensor has, or some more."""
        return pattern.repeat(max(tensor.numel() for tensor in self._tensors) // PERIOD + 1)


def contribution(rank: int, round_number: int) -> torch.Tensor:
    """What a rank contributes: these values, again and again."""
    return ((torch.arange(PERIOD) + 131 * rank + 17 * round_number) % PERIOD).float()


def agree(library: Gloo | HorovodAlike, value: int) -> int:
    """Rank 0's value, on every rank."""
    tensor = torch.tensor([value if library.rank == 0 else 0])
    library.allreduce_(tensor)
    return int(tensor)


def measure(library: Gloo | HorovodAlike, elements: list[int], budget: float) -> dict:
    work = Allreduce(library, elements)
    work.seconds_per_call(0, 1)
    call = work.seconds_per_call(1, 1)
    small = work.bytes <= SMALL_BYTES
    calls = agree(library, max(1, min(work.exact_calls(), round(ROUND_SECONDS / call)))) if small else 1
    start = time.perf_counter()
    work.seconds_per_call(2, calls)
    rounds = round(budget / (time.perf_counter() - start))
    rounds = agree(library, max(MIN_ROUNDS, min(MAX_ROUNDS, rounds)))
    times = sorted(work.seconds_per_call(number, calls) * 1e6 for number in range(rounds))
    return {
        "collective": "allreduce",
        "bytes": work.bytes,
        "tensors": len(elements),
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
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--sizes", help="bytes, for instance 8,64K,16M")
    work.add_argument("--tensors", help="several at a time: resnet50 or, for instance, 100x64M")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size, about (default: %(default)s)")
    parser.add_argument("--store", help="gloo: a file where the ranks meet, not there yet")
    parser.add_argument("--json", help="write the results into this file")
    options = parser.parse_args()

    torch.set_num_threads(1)
    library = Gloo(options.store) if options.library == "gloo" else HorovodAlike(f"{options.library}.torch")
    if options.tensors:
        rows = [parse_tensors(options.tensors)]
    else:
        rows = [[parse_size(size) // 4] for size in options.sizes.split(",")]
    results = []
    for elements in rows:
        results.append(measure(library, elements, options.seconds))
        if library.rank == 0:
            print("{bytes:10} bytes   min {min_us:12.2f} us   median {median_us:12.2f} us".format_map(results[-1]))
    if library.rank == 0 and options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": options.library, "ranks": library.size, "results": results}, file)
    agree(library, 0)  # nobody leaves while others still work
    library.shut_down()


if __name__ == "__main__":
    main()
