"""Measures how long a newcomer takes to receive the state, and memcpy of as many bytes for comparison, in turn.

    python tests/bench/elastic_transfer.py [--trials 9] [-np 2] [--newcomers 1] [--megabytes 400] [--tensors 8]
        [--optimizer sgd|adam] [HVDRUN'S OPTIONS ...]

In a job of a fixed number of ranks, the last ones act as newcomers in each trial: they make a new model, optimizer and
state, in memory that the process has not used before, and do what a newcomer does while it stands by. Then all ranks
synchronise as `hvd.elastic.run` does. Over hosts, inside a lab of netlab.sh whose links carry 1 Gb/s:

    tests/support/netlab.sh 3 1gbit python tests/bench/elastic_transfer.py -np 3 --newcomers 2 --megabytes 100 \\
        --rsh "tests/support/netlab.sh on" -H h1,h2,h3

It prints these times of the last rank, in seconds, over all trials:

    stand by  what it prepares beforehand, while the others train
    whole     all that it does before the training function's first line:
    receive   until everything has arrived
    save      the copy that it goes back to if the first step fails
    the rest  finding out which ranks need the state, and making a process set of those that take part
    memcpy    out of the source's memory and into the newcomer's: two copies of the state, into memory that was written
              before; "fresh": into memory that was not
"""

import argparse
import ctypes
import mmap
import os
import statistics
import subprocess
import sys
import time

PARTS = ("stand by", "whole", "receive", "save", "the rest", "memcpy", "fresh")
OPTIMIZERS = {"sgd": (2, "SGD", {"momentum": 0.9}), "adam": (3, "AdamW", {})}


def made(options: argparse.Namespace):
    import torch

    import hvd.torch as hvd

    copies, kind, settings = OPTIMIZERS[options.optimizer]
    width = int((options.megabytes * 2**20 / 4 / copies / options.tensors) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(options.tensors)))
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-4, **settings)
    return hvd.elastic.TorchState(model, hvd.DistributedOptimizer(optimizer, model.named_parameters()), trial=0)


def be_a_rank(options: argparse.Namespace) -> None:
    import torch

    import hvd.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    is_newcomer = hvd.rank() >= hvd.size() - options.newcomers
    size = int(options.megabytes * 2**20)
    warm = [(ctypes.c_char * size)() for _ in range(3)] if is_newcomer else []
    state = made(options)
    for parameter in state.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()
    copy_along(warm, size)
    for state.trial in range(1, options.trials + 2):
        if not is_newcomer:
            state.save()
            synchronized(state, dict.fromkeys(PARTS, 0.0), has_it=True)
            continue
        taken = dict.fromkeys(PARTS, 0.0)
        newcomer = made(options)
        taken["stand by"] = timed(newcomer.make_room)
        synchronized(newcomer, taken, has_it=False)
        assert newcomer.trial == state.trial
        assert all(values[-1].min() > 0 for values in map(tensors_of, newcomer.optimizer.state.values()))
        taken["memcpy"] = copy_along(warm, size)
        taken["fresh"] = copy_along([warm[0], unwritten(size), unwritten(size)], size)
        del newcomer
        if (
            state.trial > 1 and hvd.rank() == hvd.size() - 1
        ):  # the first one makes what later ones find, such as libraries' memory
            print("trial", *(taken[part] for part in PARTS), flush=True)


def tensors_of(values: dict) -> list:
    return [value for value in values.values() if value.dim()]


def unwritten(size: int) -> ctypes.Array:
    return (ctypes.c_char * size).from_buffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def timed(function) -> float:
    started = time.monotonic()
    function()
    return time.monotonic() - started


def copy_along(buffers: list[ctypes.Array], size: int) -> float:
    """Seconds to copy the first buffer to the second, and that to the third."""
    return sum(timed(lambda pair=pair: ctypes.memmove(pair[1], pair[0], size)) for pair in zip(buffers, buffers[1:]))


def synchronized(state, taken: dict[str, float], has_it: bool) -> None:
    """As `hvd.elastic.run` does it: survivors have all that the newcomer lacks."""
    import hvd.torch as hvd
    from hvd import elastic

    state._is_synchronized = state._is_at_step = state._is_saved = has_it
    save, sync = state.save, state.sync
    state.save = lambda: taken.update({"save": timed(save)})
    state.sync = lambda: taken.update({"receive": timed(sync)})
    hvd.barrier()
    whole = timed(lambda: elastic._synchronize(state, is_needed=True))
    hvd.barrier()
    del state.save, state.sync
    taken["whole"], taken["the rest"] = whole, whole - taken["receive"]
    taken["receive"] -= taken["save"]


def main(options: argparse.Namespace, hvdrun_options: list[str]) -> None:
    program = [sys.executable, os.path.abspath(__file__), "--rank", *sys.argv[1:]]
    hvdrun = ["hvdrun", "-np", str(options.np), *hvdrun_options, *program]
    new_memory = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # in each trial, for whatever is larger; of glibc
    environment = os.environ | new_memory
    done = subprocess.run(hvdrun, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    trials = [list(map(float, line.split()[1:])) for line in done.stdout.splitlines() if line.startswith("trial ")]
    machine = f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    ranks = f"np={options.np} with {options.newcomers} newcomers"
    print(f"{options.megabytes:g} MB in {options.tensors} parameters, {options.optimizer}, {ranks}, {machine}")
    print(f"{'seconds':10}{'minimum':>10}{'median':>10}")
    columns = dict(zip(PARTS, zip(*trials)))
    for part, values in columns.items():
        print(f"{part:10}{min(values):10.3f}{statistics.median(values):10.3f}")
    ratios = [whole / memcpy for whole, memcpy in zip(columns["whole"], columns["memcpy"])]
    of_minima = min(columns["whole"]) / min(columns["memcpy"])
    print(f"whole / memcpy: of the minima {of_minima:.2f}, median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument("-np", type=int, default=2)
    parser.add_argument("--newcomers", type=int, default=1)
    parser.add_argument("--megabytes", type=float, default=400)
    parser.add_argument("--tensors", type=int, default=8)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_known_args()
    be_a_rank(parsed[0]) if parsed[0].rank else main(*parsed)
