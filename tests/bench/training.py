"""Training with hvd beside training with DistributedDataParallel over gloo: the same steps, in the same processes, by
turns. With one rank: beside the same steps without either.

    hvdrun -np 2 python tests/bench/training.py --pin
    hvdrun -np 2 python tests/bench/training.py --pin --neighbours 2
    hvdrun -np 2 python tests/bench/training.py --limit --limit-barrier
    hvdrun -np 2 python tests/bench/training.py --views
    hvdrun -np 1 python tests/bench/training.py

    --pin           rank r on the r-th of the CPUs this process may use, round and round
    --neighbours N  so many processes that compute without a pause run beside, one on each CPU, round and round
    --limit         also the same ranks without communication: no side can be faster
    --limit-barrier also the same ranks with one barrier a step instead: what meeting alone costs
    --views         also hvd with gradients in shared memory (gradient_as_bucket_view), and both with gradients that are
                    zeroed instead of set to None
    --json FILE     write the results into this file too
    --rounds N      rounds, of which each times both sides once (default 15)
    --only TEXT     only the models whose title has it

A round's time is that of its slowest rank; shown are medians and the best round, in steps a second, and the CPU time of
a step. Afterwards the models of hvd and of what it is beside must be equal but for rounding, and hvd's the same bits on
all ranks. Times depend on what else runs: compare only within a run.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

parser = argparse.ArgumentParser(description="training with hvd beside DistributedDataParallel over gloo")
parser.add_argument("--pin", action="store_true", help="rank r on the r-th CPU")
parser.add_argument("--neighbours", type=int, default=0, metavar="N", help="processes that compute beside")
parser.add_argument("--limit", action="store_true", help="also without communication")
parser.add_argument("--limit-barrier", action="store_true", help="also with one barrier a step instead")
parser.add_argument("--views", action="store_true", help="also hvd with gradients in shared memory, and zeroed")
parser.add_argument("--json", metavar="FILE", help="write the results into this file too")
parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
parser.add_argument("--only", default="", metavar="TEXT", help="only models whose title has it")
options = parser.parse_args()

cpus = sorted(os.sched_getaffinity(0))
if options.pin:
    os.sched_setaffinity(0, {cpus[int(os.environ.get("HVD_RANK", "0")) % len(cpus)]})

import torch  # noqa: E402  (PyTorch sizes its thread pool by the CPUs that it may use when it is loaded)
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import hvd  # noqa: E402
import hvd.torch as hvd_torch  # noqa: E402
from beside_hvd import start_gloo  # noqa: E402
from hvd.tools.workloads import WORKLOADS, Workload  # noqa: E402

ROUND_SECONDS = 0.15


def small_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def small_convolutional_network() -> nn.Module:
    return nn.Sequential(
        *[nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 10)],
    )


SMALL = (
    Workload("MLP", small_mlp, 32, (1, 28, 28)),
    Workload("convolutional network", small_convolutional_network, 32, (1, 28, 28)),
)
CASES = {workload.title: workload for workload in (*SMALL, *WORKLOADS.values())}


class Side:
    """A model and its optimizer, trained in one way."""

    def __init__(self, name: str, case: Workload, model: nn.Module) -> None:
        self.name = name
        self.case = case
        self.model: nn.Module = copy.deepcopy(model)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.01 / hvd.size(), momentum=0.9
        )
        if name in ("hvd", "views", "zeroed", "zeroed views"):
            self.optimizer = hvd_torch.DistributedOptimizer(
                self.optimizer, self.model.named_parameters(), gradient_as_bucket_view="views" in name
            )
        elif name == "DDP":
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.generator = torch.Generator().manual_seed(hvd.rank())  # each side sees the same batches
        self.seconds: list[float] = []  # by round, for a step, of the slowest rank
        self.cpu_seconds: list[float] = []

    def steps(self, count: int) -> None:
        for _ in range(count):
            inputs, targets = self.case.draw(self.generator)
            self.optimizer.zero_grad(set_to_none="zeroed" not in self.name)
            nn.functional.cross_entropy(self.model(inputs), targets).backward()
            if self.name == "barrier":
                hvd_torch.barrier()
            self.optimizer.step()

    def time(self, steps: int) -> None:
        hvd_torch.barrier()
        began, cpu_began = time.perf_counter(), time.process_time()
        self.steps(steps)
        own = [(time.perf_counter() - began) / steps, (time.process_time() - cpu_began) / steps]
        slowest = hvd_torch.allreduce(torch.tensor(own, dtype=torch.float64), op=hvd_torch.Max)
        self.seconds.append(slowest[0].item())
        self.cpu_seconds.append(slowest[1].item())

    def parameters(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


def measure(title: str) -> dict[str, object]:
    torch.manual_seed(0)
    case = CASES[title]
    model = case.make()
    names = ["hvd", "DDP" if hvd.size() > 1 else "plain"]
    names += [name for name, wanted in (("limit", options.limit), ("barrier", options.limit_barrier)) if wanted]
    names += ["views", "zeroed", "zeroed views"] if options.views else []
    sides = [Side(name, case, model) for name in names]
    for side in sides:
        side.steps(20)
    began = time.perf_counter()
    for side in sides:
        side.steps(5)
    a_step = torch.tensor((time.perf_counter() - began) / (5 * len(sides)))
    steps = max(3, int(ROUND_SECONDS / hvd_torch.allreduce(a_step, op=hvd_torch.Max).item()))
    for round_number in range(options.rounds):
        for side in sides if round_number % 2 == 0 else reversed(sides):
            side.time(steps)
    check(title, *sides[:2])
    return row(title, steps, *sides)


def check(title: str, own: Side, other: Side) -> None:
    parameters = own.parameters()
    everywhere = hvd_torch.allgather(parameters.unsqueeze(0))
    assert all(torch.equal(parameters, rank) for rank in everywhere), f"{title}: ranks have come apart"
    torch.testing.assert_close(parameters, other.parameters(), rtol=0.05, atol=0.005)


def row(title: str, steps: int, own: Side, *others: Side) -> dict[str, object]:
    numbers: dict[str, object] = {"model": title, "steps_per_round": steps, "beside": [other.name for other in others]}
    for name, of in (("median", statistics.median), ("best", min)):
        numbers |= {f"{side.name}_{name}": 1 / of(side.seconds) for side in (own, *others)}
        for other in others:
            numbers[f"{name}_ratio_{other.name}"] = of(other.seconds) / of(own.seconds)
            numbers[f"{name}_cpu_ratio_{other.name}"] = of(own.cpu_seconds) / of(other.cpu_seconds)
    return numbers


def compute_without_pause(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while True:
        sum(range(100_000))


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Rank 0's children."""
    spawn = multiprocessing.get_context("fork")
    processes = [
        spawn.Process(target=compute_without_pause, args=(cpus[i % len(cpus)],), daemon=True)
        for i in range(count if os.environ.get("HVD_RANK", "0") == "0" else 0)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()


def conditions() -> str:
    where = [f"{hvd.size()} ranks on {len(cpus)} CPUs", *(["pinned"] if options.pin else [])]
    where += [f"{options.neighbours} processes computing beside"] if options.neighbours else []
    return f"{', '.join(where)}; hvd {hvd.__version__}, torch {torch.__version__}, Linux {platform.release()}"


def table(rows: list[dict[str, object]]) -> str:
    lines = [conditions(), "steps a second; ratio: hvd's to the other's; CPU: hvd's time of a step by the other's"]
    columns = ("beside", "hvd", "other", "ratio", "best", "CPU", "best")
    lines.append(f"{'':28}" + "".join(f"{name:>9}" for name in columns))
    for row in rows:
        for other in row["beside"]:
            numbers = [row["hvd_median"], row[f"{other}_median"]]
            ratios = [row[f"{name}_{other}"] for name in ("median_ratio", "best_ratio")]
            cpu = [row[f"{name}_{other}"] for name in ("median_cpu_ratio", "best_cpu_ratio")]
            lines.append(f"{row['model']:24}{other:>13}" + "".join(f"{number:9.1f}" for number in numbers))
            lines[-1] += "".join(f"{ratio:8.2f}x" for ratio in ratios) + "".join(f"{ratio:8.3f}x" for ratio in cpu)
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    with neighbours(options.neighbours):
        hvd_torch.init()
        if hvd.size() > 1:
            start_gloo()
        rows = [measure(title) for title in CASES if options.only in title]
        if hvd.rank() == 0:
            print(table(rows), flush=True)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump({"conditions": conditions(), "results": rows}, file)
        hvd_torch.barrier()
        if hvd.size() > 1:
            dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
