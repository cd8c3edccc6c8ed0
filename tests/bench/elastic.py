"""What an elastic job costs: its pauses when something happens to it, and itself while nothing does.

    python tests/bench/elastic.py [--trials 20] [-np 4] [--model MEGABYTES] [HVDRUN'S OPTIONS ...]
    python tests/bench/elastic.py --cut ...
    python tests/bench/elastic.py --beside-static [--trials 5] [-np 2] [--model MEGABYTES]
    python tests/bench/elastic.py --overhead [--trials 5] [-np 2] [--model MEGABYTES]
    python tests/bench/elastic.py --within [--trials 5] [-np 2] [--model MEGABYTES]

First form: one job; in each trial a process, chosen at random, is killed (SIGKILL) once all ranks train. With --cut,
inside a lab of netlab.sh, it is a host that is cut from the network, and is joined again when the others have gone on;
without --cut the first form works there, too:

    tests/support/netlab.sh 4 none python tests/bench/elastic.py --cut -np 8 --lease 1.5 \\
        --rsh "tests/support/netlab.sh on" -H h1:2,h2:2,h3:2,h4:2

With --library numpy processes start in a quarter of the time that importing PyTorch takes: where CPUs are few, those
that import it slow the others down.

Printed, in seconds:

    killed   from the kill (or cut) to the first step that the slowest survivor has finished after it
    joined   the longest time that a survivor is without a finished step when a new process joins; of it the transfer
             of the state, as long as sync() takes, and the rest, a step included
    steps    those that were done twice, which must be none

Third form: the same program for 1,000 steps as an elastic job and as one that is not, in turn. Of each job the median
step counts, which what else the machine does hardly changes.

Fourth form: the same two jobs, counted by `perf stat`, since 1 % of a step is less than what time varies by: system
calls, context switches and, where the machine counts them, user-mode instructions, of a rank in a step. They are the
difference between a long job and a short one, so that starts and ends do not count.

Fifth form: what launches differ by is left out. In one elastic job rank 0 asks for changes in every other block of 20
steps, as an elastic job does, and in those between not, as one that is not elastic; all else is the same. Printed is
the median ratio of a block's time to that of the next one, with its 95 % confidence interval.

A step here is a forward and backward pass over the model, its gradients' reduction, the optimizer's step, the commit,
and a pause of 5 ms (in the first two forms). All processes have one clock: those of one machine.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TIMEOUT = 120  # s, for a trial
STEPS_BESIDE_STATIC = 1000
STEPS_WARM = 100
STEPS_WITHIN = 12_000
BLOCK = 20
KINDS = {"static": [], "elastic": ["--min-np", "1"]}
COUNTED = ["raw_syscalls:sys_enter", "context-switches", "instructions:u"]

Step = collections.namedtuple("Step", "when host pid number rank size epoch transfer")


def torch_training(megabytes: float):
    """A state, a step of its training, and what runs a training."""
    import torch

    import hvd.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    width = max(64, int((megabytes * 2**20 / 4) ** 0.5))
    model = torch.nn.Sequential(
        torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width if megabytes else 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    inputs = torch.ones(4, 64)

    def step():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return hvd.elastic.TorchState(model, optimizer, step=0), step, hvd.elastic.run


def numpy_training(megabytes: float):
    """The same of a linear model."""
    import numpy as np

    import hvd
    from hvd import basics, elastic, objects

    basics.init()
    inputs = np.ones((4, 64))
    weights = np.zeros((64, max(10, int(megabytes * 2**20 / 8 / 64))))
    state = elastic.ObjectState(elastic.from_source(objects.broadcast_object), basics.rank, step=0, weights=weights)

    def step():
        gradient = inputs.T @ (inputs @ state.weights - 1)
        state.weights = state.weights - 1e-4 * hvd.allreduce(gradient, name="gradient", out=gradient)

    return state, step, lambda train: elastic.run_fn(train, elastic.join_anew)


def be_a_rank(logs: str, library: str, *numbers: str) -> None:
    from hvd import _native, basics

    megabytes, steps, pause, block = map(float, numbers)
    state, step, run = {"torch": torch_training, "numpy": numpy_training}[library](megabytes)
    transfer, synchronize = [0.0], state.sync

    def timed_sync():
        before = time.monotonic()
        synchronize()
        transfer[0] = time.monotonic() - before

    state.sync = timed_sync
    announced = state._host_messages.announced
    state._host_messages.announced = lambda: announced() if not block or state.step // block % 2 == 0 else 0

    @run
    def train(state, log):
        while state.step < steps:
            step()
            state.step += 1
            place = (os.uname().nodename, os.getpid(), state.step, basics.rank(), basics.size(), _native.epoch()[0])
            log.write(" ".join(map(str, (time.monotonic(), *place, transfer[0]))) + "\n")
            state.commit()
            time.sleep(pause)

    name = os.environ.get("HVD_PROCESS") or os.environ["HVD_RANK"]
    with open(pathlib.Path(logs, name), "a", buffering=1) as log:
        train(state, log)


class Watch:
    """The steps that the processes have finished, by process."""

    def __init__(self, logs: pathlib.Path) -> None:
        self.logs = logs
        self.read_to: dict[int, int] = {}
        self.steps: dict[int, list[Step]] = {}

    def look(self) -> None:
        for path in self.logs.iterdir():
            process = int(path.name)
            with open(path) as log:
                log.seek(self.read_to.get(process, 0))
                text = log.read()
            whole = text.rfind("\n") + 1
            self.read_to[process] = self.read_to.get(process, 0) + whole
            for line in text[:whole].splitlines():
                when, host, *numbers, transfer = line.split()
                step = Step(float(when), host, *map(int, numbers), float(transfer))
                self.steps.setdefault(process, []).append(step)

    def training(self, size: int) -> list[int]:
        """The processes of a complete epoch; empty as long as there is none."""
        now = time.monotonic()
        newest = max((steps[-1].epoch for steps in self.steps.values()), default=0)
        last = {process: steps[-1] for process, steps in self.steps.items() if steps[-1].epoch == newest}
        live = [process for process, step in last.items() if step.size == size and now - step.when < 2]
        return live if len(live) == size else []

    def first_after(self, process: int, epoch: int) -> float:
        """When it finished its first step of a later epoch; 0: it has not yet."""
        later = [step.when for step in reversed(self.steps[process]) if step.epoch > epoch]
        return later[-1] if later else 0


class Trials:
    def __init__(self, watch: Watch, job: subprocess.Popen, size: int, cuts: bool) -> None:
        self.watch, self.job, self.size, self.cuts = watch, job, size, cuts

    def wait_for(self, condition, what: str):
        deadline = time.monotonic() + TIMEOUT
        while not (result := condition()):
            assert time.monotonic() < deadline and self.job.poll() is None, what
            time.sleep(0.002)
            self.watch.look()
        return result

    def once(self) -> float:
        live = self.wait_for(lambda: self.watch.training(self.size), "the ranks do not come together")
        time.sleep(random.random() * 0.05)
        self.watch.look()
        last = {process: self.watch.steps[process][-1] for process in live}
        epoch = last[live[0]].epoch
        victim = random.choice(live)
        number_here = process_number(victim, last[victim].pid)
        began = time.monotonic()
        if self.cuts:
            host = last[victim].host
            self.netlab("cut", host)
            survivors = [process for process in live if last[process].host != host]
        else:
            os.kill(number_here, signal.SIGKILL)
            survivors = [process for process in live if process != victim]
        firsts = self.wait_for(lambda: self.firsts(survivors, epoch), "the survivors do not go on")
        if self.cuts:
            self.netlab("join", host)
        return max(firsts) - began

    def firsts(self, survivors: list[int], epoch: int) -> list[float]:
        firsts = [self.watch.first_after(process, epoch) for process in survivors]
        return firsts if all(firsts) else []

    @staticmethod
    def netlab(*words: str) -> None:
        subprocess.run([shlex.split(os.environ["NETLAB_RSH"])[0], *words], check=True)


def process_number(process: int, pid: int) -> int:
    """Its number in this process's namespace: an agent's ranks have a namespace of their own."""
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            numbers = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()
            variables = (status.parent / "environ").read_bytes().split(b"\0")
            if numbers[-1] == str(pid) and f"HVD_PROCESS={process}".encode() in variables:
                return int(status.parent.name)
    raise ProcessLookupError(f"process {process}, {pid} where it runs")


def joins(watch: Watch) -> list[tuple[float, float]]:
    """By epoch that has grown: the longest gap between two steps of a survivor, and the transfer within it."""
    gaps: dict[int, tuple[float, float]] = {}
    for steps in watch.steps.values():
        for before, after in zip(steps, steps[1:]):
            if after.epoch > before.epoch and after.size > before.size:
                gaps[after.epoch] = max(gaps.get(after.epoch, (0, 0)), (after.when - before.when, after.transfer))
    return list(gaps.values())


def done_twice(watch: Watch) -> int:
    pairs = (pair for steps in watch.steps.values() for pair in zip(steps, steps[1:]))
    return sum(after.number <= before.number for before, after in pairs)


def row(name: str, values: list[float], remark: str = "") -> str:
    values = sorted(values)
    middle, high = statistics.median(values), values[int(len(values) * 0.95)]
    return f"{name:10}{len(values):8}{values[0]:10.3f}{middle:10.3f}{high:10.3f}{values[-1]:10.3f}{remark}"


def command_of(options: argparse.Namespace, logs: str, steps: float, pause: float, block: int = 0) -> list[str]:
    arguments = (logs, options.library, options.model, steps, pause, block)
    return [sys.executable, os.path.abspath(__file__), "--rank", *map(str, arguments)]


def conditions(options: argparse.Namespace) -> str:
    parameters = f"{options.model:g} MB of parameters" if options.model else "a small model"
    return f"np={options.np}, {parameters}, {os.cpu_count()} CPUs"


def measure_pauses(options: argparse.Namespace, hvdrun_options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as logs:
        size = str(options.np)
        hvdrun = ["hvdrun", "-np", size, "--min-np", "2", "--max-np", size, "--cooldown-range", "0,0", *hvdrun_options]
        output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        job = subprocess.Popen([*hvdrun, *command_of(options, logs, float("inf"), 0.005)], **output)
        watch = Watch(pathlib.Path(logs))
        trials = Trials(watch, job, options.np, options.cut)
        pauses = []
        try:
            while len(pauses) < options.trials:
                pauses.append(trials.once())
        except KeyboardInterrupt:
            print("interrupted; so far:")
        finally:
            job.terminate()  # SIGINT is ignored by what is started in the background
            job.wait()
        watch.look()
    joined = joins(watch)
    print(f"{conditions(options)}; seconds")
    print(f"{'':10}{'trials':>8}{'minimum':>10}{'median':>10}{'95 %':>10}{'maximum':>10}")
    print(row("cut" if options.cut else "killed", pauses))
    if joined:
        print(row("joined", [gap for gap, _ in joined]))
        print(row("transfer", [transfer for _, transfer in joined]))
        print(row("the rest", [gap - transfer for gap, transfer in joined]))
    print(f"steps: {max(steps[-1].number for steps in watch.steps.values())} finished, {done_twice(watch)} done twice")


def run_job(
    options: argparse.Namespace, hvdrun_options: list[str], steps: int, counts: str = "", block: int = 0
) -> list[Step]:
    """The steps of rank 0 of one job. `counts`: a folder for what perf counts in each rank."""
    with tempfile.TemporaryDirectory() as logs:
        command = command_of(options, logs, steps, 0, block)
        if counts:
            perf = f"exec perf stat -x, -o $0/$HVD_RANK$HVD_PROCESS -e {','.join(COUNTED)} -- "
            command = ["sh", "-c", perf + '"$@"', counts, *command]
        subprocess.run(["hvdrun", "-np", str(options.np), *hvdrun_options, *command], check=True)
        watch = Watch(pathlib.Path(logs))
        watch.look()
    assert len(watch.steps[0]) == steps
    return watch.steps[0]


def step_times(steps: list[Step]) -> list[float]:
    """In microseconds, without the first ones."""
    return [1e6 * (after.when - before.when) for before, after in zip(steps[STEPS_WARM - 1 :], steps[STEPS_WARM:])]


def interleaved(trial: int) -> list[str]:
    return list(KINDS) if trial % 2 == 0 else list(KINDS)[::-1]


def measure_beside_static(options: argparse.Namespace, hvdrun_options: list[str]) -> None:
    ratios, all_of = [], {"elastic": [], "static": []}
    print(f"{conditions(options)}; microseconds of a median step of {STEPS_BESIDE_STATIC - STEPS_WARM}")
    for trial in range(options.trials):
        took = {}
        for kind in interleaved(trial):
            steps = run_job(options, [*hvdrun_options, *KINDS[kind]], STEPS_BESIDE_STATIC)
            took[kind] = statistics.median(step_times(steps))
            all_of[kind].append(took[kind])
        ratios.append(took["elastic"] / took["static"])
        print(f"elastic {took['elastic']:.1f}  static {took['static']:.1f}  ratio {ratios[-1]:.3f}", flush=True)
    of_minima = min(all_of["elastic"]) / min(all_of["static"])
    print(f"ratio: median {statistics.median(ratios):.3f}, of the minima {of_minima:.3f}")


def measure_within(options: argparse.Namespace, hvdrun_options: list[str]) -> None:
    print(f"{conditions(options)}; {options.trials} jobs of {STEPS_WITHIN} steps; elastic blocks to those between")
    ratios = []
    for _ in range(options.trials):
        steps = run_job(options, [*hvdrun_options, *KINDS["elastic"]], STEPS_WITHIN, block=BLOCK)
        when = [step.when for step in steps[BLOCK - 1 :: BLOCK]]  # the ends of blocks
        took = [after - before for before, after in zip(when, when[1:])][1:]  # those of steps 40 to 60, 60 to 80, ...
        pairs = list(zip(took[::2], took[1::2]))[STEPS_WARM // BLOCK :]
        own = [elastic / other for elastic, other in pairs]
        print(f"ratio {statistics.median(own):.4f}, step {1e6 * statistics.median(took) / BLOCK:.0f} us", flush=True)
        ratios += own
    ratios.sort()
    half_width = 1.96 * len(ratios) ** 0.5 / 2  # of the binomial distribution of ranks around the median
    low, high = (ratios[round(len(ratios) / 2 + side * half_width)] for side in (-1, 1))
    print(f"ratio: median {statistics.median(ratios):.4f}, 95 % from {low:.4f} to {high:.4f}, {len(ratios)} pairs")


def read_counts(folder: str) -> dict[str, float]:
    """What perf has counted in all ranks; without what this machine does not count."""
    total: dict[str, float] = collections.Counter()
    for path in pathlib.Path(folder).iterdir():
        for line in path.read_text().splitlines():
            number, _, name, *_ = [*line.split(","), "", ""]
            if name in COUNTED and number.replace(".", "").isdigit():
                total[name] += float(number)
    return total


def counts_per_step(options: argparse.Namespace, hvdrun_options: list[str]) -> dict[str, float]:
    """Of a rank; and "us", how long a median step takes."""
    totals = []
    for steps in (STEPS_WARM, STEPS_WARM + STEPS_BESIDE_STATIC):
        with tempfile.TemporaryDirectory() as counts:
            done = run_job(options, hvdrun_options, steps, counts)
            totals.append(read_counts(counts))
    short, long = totals
    per_step = {name: (long[name] - short[name]) / STEPS_BESIDE_STATIC / options.np for name in long}
    return {**per_step, "us": statistics.median(step_times(done))}


def measure_overhead(options: argparse.Namespace, hvdrun_options: list[str]) -> None:
    counted = {kind: [] for kind in KINDS}
    for trial in range(options.trials):
        for kind in interleaved(trial):
            counted[kind].append(counts_per_step(options, [*hvdrun_options, *KINDS[kind]]))
    print(f"{conditions(options)}; of a rank, in one of {STEPS_BESIDE_STATIC} steps; {options.trials} trials")
    columns = [f"{kind}, {which}" for kind in KINDS for which in ("min", "median")]
    print(f"{'':24}" + "".join(f"{column:>16}" for column in columns) + f"{'ratio of min':>14}")
    for name in [*COUNTED, "us"]:
        values = {kind: [each[name] for each in counted[kind] if name in each] for kind in KINDS}
        if not all(values.values()):
            print(f"{name:24}not counted by this machine")
            continue
        cells = "".join(f"{min(values[kind]):16.2f}{statistics.median(values[kind]):16.2f}" for kind in KINDS)
        print(f"{name:24}{cells}{min(values['elastic']) / max(1e-9, min(values['static'])):14.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(*sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
        parser.add_argument("--trials", type=int, default=20)
        parser.add_argument("-np", type=int, default=4)
        parser.add_argument(
            "--model", type=float, default=0, help="megabytes of its parameters; a small one by default"
        )
        parser.add_argument("--library", choices=["torch", "numpy"], default="torch", help="what the ranks train with")
        parser.add_argument("--cut", action="store_true")
        parser.add_argument("--beside-static", action="store_true")
        parser.add_argument("--overhead", action="store_true")
        parser.add_argument("--within", action="store_true")
        random.seed(1)
        parsed = parser.parse_known_args()
        if parsed[0].overhead:
            measure_overhead(*parsed)
        elif parsed[0].within:
            measure_within(*parsed)
        elif parsed[0].beside_static:
            measure_beside_static(*parsed)
        else:
            measure_pauses(*parsed)
