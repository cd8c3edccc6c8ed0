"""hvd beside torch.distributed with gloo: the same reductions, in the same processes, by turns.

    hvdrun -np 2 python tests/bench/torch_vs_gloo.py --pin
    hvdrun -np 4 python tests/bench/torch_vs_gloo.py --setsid

    --pin       rank r on the r-th of the CPUs this process may use, round and round
    --setsid    each rank in a session of its own, as remote launchers and containers start them: where the kernel makes
                a scheduling group of each session, yielding does not reach the other ranks
    --json FILE write the results into this file too
    --rounds N  rounds, of which each times both sides once (default 15)
    --only TEXT only the cases whose title has it, "16 MB" for instance

Inputs are rewritten before and results checked after each call, outside of the time. A round's time is that of its
slowest rank, per call; shown are the shortest and the median round. Times depend on what else runs: compare only
within a run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from typing import Callable

options = argparse.ArgumentParser(description="hvd beside torch.distributed with gloo")
options.add_argument("--pin", action="store_true", help="rank r on the r-th CPU")
options.add_argument("--setsid", action="store_true", help="each rank in a session of its own")
options.add_argument("--json", metavar="FILE", help="write the results into this file too")
options.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
options.add_argument("--only", default="", metavar="TEXT", help="only cases whose title has it")
options = options.parse_args()

cpus = sorted(os.sched_getaffinity(0))
if options.setsid:
    # hvdrun makes each rank the leader of a process group, who may not begin a session.
    os.setpgid(0, os.getpgid(os.getppid()))
    os.setsid()
if options.pin:
    os.sched_setaffinity(0, {cpus[int(os.environ.get("HVD_RANK", "0")) % len(cpus)]})

import torch  # noqa: E402  (PyTorch sizes its thread pool by the CPUs that it may use when it is loaded)
import torch.distributed as dist  # noqa: E402

import hvd.torch as hvd  # noqa: E402
from beside_hvd import start_gloo  # noqa: E402

BUCKET_BYTES = 25 << 20  # as DistributedDataParallel's


class Case:
    """A reduction of some tensors, in place, as a user of either library does it."""

    def __init__(self, title: str, tensors: list[torch.Tensor], calls: int, buckets: bool = True) -> None:
        self.title, self.tensors, self.calls = title, tensors, calls  # `calls` are timed in each round
        self.names = [f"{title}.{number}" for number in range(len(tensors))]
        self.buckets = bucketed(tensors) if buckets else None  # None: gloo reduces each tensor by itself

    def rewrite(self) -> None:
        for number, tensor in enumerate(self.tensors):
            tensor.fill_(hvd.rank() + number % 7)

    def check(self) -> None:
        for number, tensor in enumerate(self.tensors):
            expected = sum(range(hvd.size())) + hvd.size() * (number % 7)
            assert tensor.eq(expected).all(), f"{self.title}: tensor {number} is wrong"

    def hvd(self) -> None:
        if len(self.tensors) == 1:
            hvd.allreduce_(self.tensors[0], op=hvd.Sum)
            return
        handles = [
            hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for tensor, name in zip(self.tensors, self.names)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    def gloo(self) -> None:
        if len(self.tensors) == 1:
            dist.all_reduce(self.tensors[0])
            return
        if self.buckets is None:
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in self.tensors]:
                work.wait()
            return
        started = []
        for buffer, views, tensors in self.buckets:
            torch._foreach_copy_(views, tensors)
            started.append(dist.all_reduce(buffer, async_op=True))
        for work, (_, views, tensors) in zip(started, self.buckets):
            work.wait()
            torch._foreach_copy_(tensors, views)


def bucketed(tensors: list[torch.Tensor]) -> list[tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]]:
    """Flat buffers of at most BUCKET_BYTES, the views of them that stand for the tensors, and the tensors."""
    groups: list[list[torch.Tensor]] = [[]]
    for tensor in tensors:
        if groups[-1] and sum(t.nbytes for t in groups[-1]) + tensor.nbytes > BUCKET_BYTES:
            groups.append([])
        groups[-1].append(tensor)
    buckets = []
    for group in groups:
        buffer = torch.empty(sum(tensor.numel() for tensor in group))
        views = [view.view_as(tensor) for view, tensor in zip(buffer.split([t.numel() for t in group]), group)]
        buckets.append((buffer, views, group))
    return buckets


def cases() -> list[Case]:
    megabyte = 1 << 20
    return [
        Case("8 B, synchronous", [torch.empty(2)], calls=300),
        Case("16 MB, synchronous", [torch.empty(16 * megabyte // 4)], calls=3),
        Case("160 tensors of 8 B", [torch.empty(2) for _ in range(160)], calls=3, buckets=False),
        Case("100 tensors, 64 MB", [torch.empty(64 * megabyte // 4 // 100) for _ in range(100)], calls=2),
    ]


def seconds_per_call(case: Case, call: Callable[[], None]) -> float:
    """Of the slowest rank."""
    total = 0.0
    large = sum(tensor.nbytes for tensor in case.tensors) > 1000
    hvd.barrier()
    for _ in range(case.calls):
        case.rewrite()
        if large:  # else the barrier would be most of what the ranks do
            hvd.barrier()
        start = time.perf_counter()
        call()
        total += time.perf_counter() - start
        case.check()
    return hvd.allreduce(torch.tensor(total / case.calls, dtype=torch.float64), op=hvd.Max).item()


def measure(case: Case) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"hvd": [], "gloo": []}
    for round_number in range(options.rounds + 1):
        for side in ("hvd", "gloo"):
            seconds = seconds_per_call(case, getattr(case, side))
            if round_number > 0:  # the first one warms up
                times[side].append(seconds)
    return times


def percentile_99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


def conditions() -> str:
    where = [f"{hvd.size()} ranks on {len(cpus)} CPUs"]
    where += ["pinned"] if options.pin else []
    where += ["each in a session of its own"] if options.setsid else []
    return f"{', '.join(where)}; hvd {hvd_version()}, torch {torch.__version__}, Linux {platform.release()}"


def hvd_version() -> str:
    from hvd import __version__

    return __version__


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    start_gloo()
    rows = []
    for case in (case for case in cases() if options.only in case.title):
        times = measure(case)
        row = {"case": case.title, "bytes": sum(tensor.nbytes for tensor in case.tensors)}
        for name, of in (("min", min), ("median", statistics.median), ("p99", percentile_99)):
            row |= {f"{side}_{name}_us": of(times[side]) * 1e6 for side in times}
            row[f"{name}_ratio"] = of(times["gloo"]) / of(times["hvd"])
        rows.append(row)
    if hvd.rank() == 0:
        print(table(rows), flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"conditions": conditions(), "results": rows}, file)
    hvd.barrier()
    dist.destroy_process_group()


def table(rows: list[dict]) -> str:
    columns = ("hvd_min_us", "gloo_min_us", "min_ratio", "hvd_median_us", "gloo_median_us", "median_ratio")
    lines = [conditions(), "microseconds per call; ratio: how much longer gloo takes"]
    lines.append(f"{'':22}" + "".join(f"{column.removesuffix('_us').replace('_', ' '):>14}" for column in columns))
    for row in rows:
        numbers = "".join(f"{row[c]:13.1f}x" if c.endswith("ratio") else f"{row[c]:14.1f}" for c in columns)
        lines.append(f"{row['case']:22}{numbers}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
