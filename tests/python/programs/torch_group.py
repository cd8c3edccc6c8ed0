"""One rank of a torch.distributed job over hvd, however it was started. Arguments: what to do."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import hvd.torch as hvd
from ports import free_ports


def sums() -> None:
    tensor = torch.full((3,), float(dist.get_rank() + 1))
    dist.all_reduce(tensor)
    size = dist.get_world_size()
    assert tensor.tolist() == [size * (size + 1) / 2] * 3
    assert (hvd.rank(), hvd.size()) == (dist.get_rank(), size)
    objects = [None] * size
    dist.all_gather_object(objects, dist.get_rank())
    assert objects == list(range(size))
    print(f"sums ok on {size}", flush=True)


def works() -> None:
    """Twice: a group can be made again."""
    for _ in range(2):
        dist.init_process_group("hvd")
        sums()
        dist.destroy_process_group()


def loses_a_rank() -> None:
    dist.init_process_group("hvd", timeout=datetime.timedelta(seconds=60))
    sums()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    futures = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    for wait in (futures.wait, lambda: dist.all_reduce(torch.ones(4))):
        try:
            wait()
            print("no error", flush=True)
        except RuntimeError as error:
            print(f"error after {time.monotonic() - start:.1f} s: {error}", flush=True)


def spawned(rank: int, port: int) -> None:
    dist.init_process_group("hvd", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    sums()


def spawns() -> None:
    mp.spawn(spawned, tuple(free_ports(1)), nprocs=2)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        {"works": works, "loses_a_rank": loses_a_rank, "spawns": spawns}[name]()
