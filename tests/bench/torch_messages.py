"""Messages between two ranks through torch.distributed, over hvd and gloo: round trips, in one job, by turns.

    hvdrun -np 2 python tests/bench/torch_messages.py

Rank 0 sends a tensor and receives one of the same size, rank 1 the other way round. Shown are the shortest and the
median round of each side, in microseconds for a round trip. Times depend on what else runs: compare only within a row.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist

import hvd.torch as hvd
from beside_hvd import start_gloo

SIZES = {"8 B": (8, 200), "64 KiB": (64 << 10, 50), "1 MiB": (1 << 20, 20), "16 MiB": (16 << 20, 3)}  # bytes, trips


def round_trip(group: dist.ProcessGroup, sent: torch.Tensor, received: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        group.send([sent], 1, 0).wait()
        group.recv([received], 1, 0).wait()
    else:
        group.recv([received], 0, 0).wait()
        group.send([sent], 0, 0).wait()


def microseconds(group: dist.ProcessGroup, size: int, trips: int) -> float:
    sent = torch.full((size // 8,), dist.get_rank() + 1.0, dtype=torch.float64)
    received = torch.zeros_like(sent)
    hvd.barrier()
    start = time.perf_counter()
    for _ in range(trips):
        round_trip(group, sent, received)
    taken = time.perf_counter() - start
    assert received.eq(2.0 - dist.get_rank()).all()
    return taken / trips * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description="round trips of messages, hvd beside gloo")
    options.add_argument("--rounds", type=int, default=9, help="of which each times both (default: %(default)s)")
    rounds = options.parse_args().rounds
    torch.set_num_threads(1)
    hvd.init()
    start_gloo()
    groups = {"gloo": dist.group.WORLD, "hvd": hvd_group()}
    for title, (size, trips) in SIZES.items():
        times: dict[str, list[float]] = {name: [] for name in groups}
        for number in range(rounds + 1):
            for name, group in groups.items():
                taken = microseconds(group, size, trips)
                if number > 0:  # the first round warms up
                    times[name].append(taken)
        if dist.get_rank() == 0:
            shown = [f"{name} {min(of):.0f} {statistics.median(of):.0f}" for name, of in times.items()]
            print(f"{title:>7}  min and median:  " + "   ".join(shown), flush=True)
    hvd.barrier()


def hvd_group() -> dist.ProcessGroup:
    from datetime import timedelta

    from hvd.process_set import global_process_set
    from hvd.torch.process_group import HvdProcessGroup

    return HvdProcessGroup(global_process_set, "messages", dist.HashStore(), timedelta(minutes=1), lambda *_: None)


if __name__ == "__main__":
    main()
