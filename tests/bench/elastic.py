"""How long an elastic job pauses when a process is killed, and when another takes its place.

    python tests/bench/elastic.py [--trials 20] [-np 4] [--model small | MEGABYTES] [HVDRUN'S OPTIONS ...]

One job runs throughout. In each trial a process, chosen at random, is killed (SIGKILL) once all ranks train. Printed:

    killed   from the kill to the first step that the slowest survivor has finished after it
    joined   the longest time that a survivor is without a finished step when a new process joins; and the part of it
             that the transfer of the state takes
    steps    those that were done twice, which must be none

A step here is a forward and backward pass over the model, its gradients' reduction, the optimizer's step and the
commit, and a pause of 5 ms. All processes have one clock: those of one machine.
"""

import argparse
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TIMEOUT = 120  # s, for a trial


def be_a_rank(logs: str, megabytes: float) -> None:
    import torch

    import hvd.torch as hvd
    from hvd import _native

    torch.set_num_threads(1)
    hvd.init()
    width = max(64, int((megabytes * 2**20 / 4) ** 0.5))
    model = torch.nn.Sequential(
        torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width if megabytes else 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    transfer, synchronize = [0.0], state.sync

    def timed_sync():
        before = time.monotonic()
        synchronize()
        transfer[0] = time.monotonic() - before

    state.sync = timed_sync
    inputs = torch.ones(4, 64)
    with open(pathlib.Path(logs, os.environ["HVD_PROCESS"]), "a", buffering=1) as log:

        @hvd.elastic.run
        def train(state):
            while True:
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()
                state.step += 1
                step = (
                    time.monotonic(),
                    os.getpid(),
                    state.step,
                    hvd.rank(),
                    hvd.size(),
                    _native.epoch()[0],
                    transfer[0],
                )
                log.write(" ".join(map(str, step)) + "\n")
                state.commit()
                time.sleep(0.005)

        train(state)


class Watch:
    """The steps that the processes have finished, by process: (time, pid, step, rank, size, epoch, transfer)."""

    def __init__(self, logs: pathlib.Path) -> None:
        self.logs = logs
        self.read_to: dict[int, int] = {}
        self.steps: dict[int, list[tuple]] = {}

    def look(self) -> None:
        for path in self.logs.iterdir():
            process = int(path.name)
            with open(path) as log:
                log.seek(self.read_to.get(process, 0))
                text = log.read()
            whole = text.rfind("\n") + 1
            self.read_to[process] = self.read_to.get(process, 0) + whole
            for line in text[:whole].splitlines():
                when, pid, step, rank, size, epoch, transfer = line.split()
                self.steps.setdefault(process, []).append(
                    (float(when), int(pid), int(step), int(rank), int(size), int(epoch), float(transfer))
                )

    def training(self, size: int, without: set[int]) -> list[int]:
        """The processes of a complete epoch; empty as long as there is none."""
        last = {process: steps[-1] for process, steps in self.steps.items() if process not in without}
        now = time.monotonic()
        live = [process for process, step in last.items() if step[4] == size and now - step[0] < 2]
        return live if len(live) == size and len({last[process][5] for process in live}) == 1 else []


def kill_one(job: subprocess.Popen, watch: Watch, size: int, dead: set[int]) -> float:
    deadline = time.monotonic() + TIMEOUT
    while not (live := watch.training(size, dead)):
        assert time.monotonic() < deadline and job.poll() is None, "the ranks do not come together"
        time.sleep(0.01)
        watch.look()
    time.sleep(random.random() * 0.05)
    watch.look()
    epoch = watch.steps[live[0]][-1][5]
    victim = random.choice(live)
    killed = time.monotonic()
    os.kill(watch.steps[victim][-1][1], signal.SIGKILL)
    dead.add(victim)
    while True:
        watch.look()
        later = [
            next((when for when, _, _, _, _, other, _ in reversed(watch.steps[process]) if other > epoch), None)
            for process in live
            if process != victim
        ]
        if all(later):
            break
        assert time.monotonic() < deadline and job.poll() is None, "the survivors do not go on"
        time.sleep(0.001)
    firsts = [
        next(when for when, _, _, _, _, other, _ in watch.steps[process] if other > epoch)
        for process in live
        if process != victim
    ]
    return max(firsts) - killed


def joins(watch: Watch) -> list[tuple[float, float]]:
    """By join: the longest gap between two steps of a survivor, and the transfer within it."""
    gaps: dict[int, tuple[float, float]] = {}
    for steps in watch.steps.values():
        for before, after in zip(steps, steps[1:]):
            if after[5] > before[5] and after[4] > before[4]:
                gaps[after[5]] = max(gaps.get(after[5], (0, 0)), (after[0] - before[0], after[6]))
    return list(gaps.values())


def done_twice(watch: Watch) -> int:
    numbers = [[step[2] for step in steps] for steps in watch.steps.values()]
    return sum(after <= before for steps in numbers for before, after in zip(steps, steps[1:]))


def row(name: str, values: list[float]) -> str:
    values = sorted(values)
    middle, high = statistics.median(values), values[int(len(values) * 0.95)]
    return f"{name:10}{len(values):8}{values[0]:10.3f}{middle:10.3f}{high:10.3f}{values[-1]:10.3f}"


def measure(options: argparse.Namespace, hvdrun_options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as logs:
        size = options.np
        command = ["hvdrun", "-np", str(size), "--min-np", "2", "--max-np", str(size), "--cooldown-range", "0,0"]
        command += [*hvdrun_options, sys.executable, os.path.abspath(__file__), "--rank", logs, str(options.model)]
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        watch, dead, killed = Watch(pathlib.Path(logs)), set(), []
        try:
            killed = [kill_one(job, watch, size, dead) for _ in range(options.trials)]
        finally:
            job.send_signal(signal.SIGINT)
            job.wait()
        watch.look()
    joined = joins(watch)
    print(f"np={size}, state of {2 * options.model:g} MB, {os.cpu_count()} CPUs; seconds")
    print(f"{'':10}{'trials':>8}{'minimum':>10}{'median':>10}{'95 %':>10}{'maximum':>10}")
    print(row("killed", killed))
    if joined:
        print(row("joined", [gap for gap, _ in joined]))
        print(row("  without", [gap - transfer for gap, transfer in joined]) + "  the transfer")
    finished = max(steps[-1][2] for steps in watch.steps.values())
    print(f"steps: {finished} finished, {done_twice(watch)} done twice")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], float(sys.argv[3]))
    else:
        parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
        parser.add_argument("--trials", type=int, default=20)
        parser.add_argument("-np", type=int, default=4)
        parser.add_argument(
            "--model", type=float, default=0, help="megabytes of its parameters; a small one by default"
        )
        random.seed(1)
        measure(*parser.parse_known_args())
