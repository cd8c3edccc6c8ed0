"""What hvd.data costs a training step: steps per second of a small PyTorch model that is fed from Parquet files,
and with the same batches from memory.

    hvdrun -np 2 python tests/bench/data.py [--rows 50000] [--features 256] [--batch-size 256]

The files lie in a temporary folder, and so in the page cache. Runs alternate; medians of --runs are printed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

import hvd.data
import hvd.torch as hvd_torch


def write(folder: Path, rows: int, features: int) -> None:
    each = rows // 8
    for number in range(8):
        values = np.random.default_rng(number).random(each * features, np.float32)
        table = pa.table(
            {
                "x": pa.FixedSizeListArray.from_arrays(values, features),
                "y": values.reshape(each, features).sum(axis=1),
            }
        )
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=each // 4, compression="none")


class Training:
    def __init__(self, features: int, width: int) -> None:
        layers = [torch.nn.Linear(features, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.optimizer = hvd_torch.DistributedOptimizer(optimizer, self.model.named_parameters())

    def step(self, batch: dict) -> None:
        self.optimizer.zero_grad()
        torch.nn.functional.mse_loss(self.model(batch["x"])[:, 0], batch["y"]).backward()
        self.optimizer.step()

    def rates(self, batches) -> tuple[float, float]:
        """From the second step to the last: steps per second, and the share of the time that was spent waiting."""
        steps, begin, stepping = 0, 0.0, 0.0
        for batch in batches:
            step_begin = time.perf_counter()
            self.step(batch)
            end = time.perf_counter()
            begin, stepping = (begin, stepping + end - step_begin) if steps else (end, 0.0)
            steps += 1
        duration = time.perf_counter() - begin
        return (steps - 1) / duration, 1 - stepping / duration


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 50_000), ("features", 256), ("batch-size", 256), ("width", 512), ("runs", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    hvd_torch.init()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as own:
        folder = Path(hvd_torch.broadcast_object(own))
        if hvd_torch.rank() == 0:
            write(folder, arguments.rows, arguments.features)
        hvd_torch.barrier()
        measure(arguments, folder)
        hvd_torch.barrier()


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    training = Training(arguments.features, arguments.width)
    reader = hvd.data.parquet(folder, arguments.batch_size)
    memory = list(reader.torch())
    training.rates(memory[:5])
    sources = {"memory": lambda: memory, "Parquet": reader.torch}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sources}
    for _ in range(arguments.runs):
        for name, batches in sources.items():
            found[name].append(training.rates(batches()))
    if hvd_torch.rank() == 0:
        for name, runs in found.items():
            rate, waits = (statistics.median(each) for each in zip(*runs))
            print(f"{name}: {rate:.1f} steps/s, waits for batches {waits:.1%} of the time")


main()
