"""`hvd bench --training`: where the time of a training step goes, on each rank.

The same steps are made by turns with hvd's optimizer and without communication, in rounds. A step with hvd is divided
into spans, on the thread that trains, so that they add up to it; the plain step is what they are compared with.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hvd import installation
from hvd.tools.program import Parser, become
from hvd.tools.workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    import torch

PLAIN, DISTRIBUTED = "without communication", "with hvd"
WARM_UP = 20  # steps
ROUND_SECONDS = 0.5  # if the number of its steps is not given

# The spans of a step, and what is said of them.
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
HOOKS, PREPARING, COMMUNICATING, PUTTING_BACK = "hooks", "preparing", "communicating", "putting back"
ARRIVAL = "arrival"  # the part of COMMUNICATING in which another rank had not come to it yet
MEANINGS = {
    FORWARD: "forward pass and loss",
    BACKWARD: "backward pass itself",
    HOOKS: "hooks: a gradient is ready",
    PREPARING: "preparing the operations",
    ARRIVAL: "until the slowest rank has come",
    COMMUNICATING: "handing over, moving, adding, waking",
    PUTTING_BACK: "putting the results back",
    UPDATE: "the optimizer's own step",
}


class Spans:
    """Where this thread's time goes. Spans may contain each other: the time of the inner one is not the outer one's."""

    def __init__(self) -> None:
        self.nanoseconds: Counter[str] = Counter()
        # When a pass began COMMUNICATING, by the clock that all processes of a host have in common.
        self.began: list[int] = []
        self._in_new_pass = False
        self._open = [FORWARD]
        self._since = time.monotonic_ns()

    def clear(self) -> None:
        self.nanoseconds.clear()
        self.began.clear()
        self._since = time.monotonic_ns()

    def switch(self) -> None:
        """Gives the time since the last change to the innermost span that is open."""
        now = time.monotonic_ns()
        self.nanoseconds[self._open[-1]] += now - self._since
        self._since = now

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a span of its calls."""

        def timed(*arguments: Any) -> Any:
            self.switch()
            self._open.append(name)
            if name == BACKWARD:
                self._in_new_pass = True
            elif name == COMMUNICATING and self._in_new_pass:
                self._in_new_pass = False
                self.began.append(self._since)
            try:
                return function(*arguments)
            finally:
                self.switch()
                self._open.pop()

        return timed


@contextlib.contextmanager
def _timed_optimizer(spans: Spans) -> Iterator[None]:
    """In the block, spans have the time of what moves gradients."""
    from hvd import _native
    from hvd.torch import gradients

    reducer = gradients.GradientReducer
    places: list[tuple[Any, str, str]] = [
        (reducer, "add_pass", HOOKS),
        (reducer, "_end_of_backward", HOOKS),
        (reducer, "_wait", PUTTING_BACK),
        (reducer, "take_collected", PREPARING),
        (_native, "run_all", COMMUNICATING),
        (gradients, "wait_for", COMMUNICATING),
    ]
    plain = [getattr(owner, name) for owner, name, _ in places]
    for (owner, name, span), function in zip(places, plain):
        setattr(owner, name, spans.around(span, function))
    try:
        yield
    finally:
        for (owner, name, _), function in zip(places, plain):
            setattr(owner, name, function)


class Threads:
    """What the threads of this process have done since the last take(), by thread: seconds on a CPU, seconds in which
    they could have run and had none, switches."""

    def __init__(self) -> None:
        self._before = self._read()

    def take(self) -> dict[str, Counter[str]]:
        before, self._before = self._before, self._read()
        used: dict[str, Counter[str]] = {}
        for (thread, name), numbers in self._before.items():
            change = Counter(numbers)
            change.subtract(before.get((thread, name), {}))
            used.setdefault(name, Counter()).update(change)
        return used

    @staticmethod
    def _read() -> dict[tuple[str, str], dict[str, float]]:
        own = str(os.getpid())
        read = {}
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                cpu, queued, turns = (task / "schedstat").read_text().split()
                name = "training" if task.name == own else _role((task / "comm").read_text().strip())
                read[task.name, name] = {"cpu": int(cpu) / 1e9, "queued": int(queued) / 1e9, "turns": int(turns)}
        return read


def _role(name: str) -> str:
    return "hvd" if name.startswith("hvd") else "others"


@dataclass
class Round:
    """Means of a step, in seconds, on this rank."""

    step: float
    spans: dict[str, float]
    threads: dict[str, dict[str, float]] = field(default_factory=dict)


class Side:
    """The workload, trained in one way."""

    def __init__(self, name: str, workload: Workload, model: torch.nn.Module, spans: Spans) -> None:
        import torch

        import hvd
        import hvd.torch as hvd_torch

        self.name = name
        self.workload = workload
        self.spans = spans
        self.model = copy.deepcopy(model)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.01 / hvd.size(), momentum=0.9
        )
        if name == DISTRIBUTED:
            self.optimizer = hvd_torch.DistributedOptimizer(self.optimizer, self.model.named_parameters())
        self.generator = torch.Generator().manual_seed(hvd.rank())
        self.rounds: list[Round] = []

    def steps(self, count: int) -> None:
        import torch

        backward = self.spans.around(BACKWARD, torch.Tensor.backward)
        update = self.spans.around(UPDATE, self.optimizer.step)
        for _ in range(count):
            inputs, targets = self.workload.draw(self.generator)
            self.optimizer.zero_grad()
            backward(torch.nn.functional.cross_entropy(self.model(inputs), targets))
            update()

    def measure(self, steps: int) -> None:
        import hvd.torch as hvd_torch

        hvd_torch.barrier()
        threads = Threads()
        self.spans.clear()
        self.steps(steps)
        self.spans.switch()
        used = threads.take()
        spans = {name: nanoseconds / 1e9 / steps for name, nanoseconds in self.spans.nanoseconds.items()}
        if self.name == DISTRIBUTED:
            _divide_communication(spans, self.spans.began, steps)
        by_thread = {name: {what: value / steps for what, value in numbers.items()} for name, numbers in used.items()}
        self.rounds.append(Round(sum(spans.values()), spans, by_thread))

    def middle(self) -> Round:
        """The round of the median: what it consists of adds up."""
        return sorted(self.rounds, key=lambda one: one.step)[len(self.rounds) // 2]


def _divide_communication(spans: dict[str, float], began: list[int], steps: int) -> None:
    """Takes the part before the last rank came to it out of COMMUNICATING. Ranks of several hosts have no clock in
    common, and leave it as it is."""
    import torch

    import hvd
    import hvd.torch as hvd_torch

    if hvd.local_size() != hvd.size() or not began:
        return
    everywhere = hvd_torch.allgather(torch.tensor([began], dtype=torch.int64))
    late = (everywhere.max(dim=0).values - torch.tensor(began)).sum().item() / 1e9 / steps
    spans[ARRIVAL] = min(late, spans[COMMUNICATING])
    spans[COMMUNICATING] -= spans[ARRIVAL]


def _steps_of_a_round(side: Side) -> int:
    """As many as take ROUND_SECONDS on the slowest rank, and at least 3."""
    import torch

    import hvd.torch as hvd_torch

    began, tried = time.monotonic(), 5
    side.steps(tried)
    took = torch.tensor((time.monotonic() - began) / tried, dtype=torch.float64)
    return max(3, round(ROUND_SECONDS / hvd_torch.allreduce(took, op=hvd_torch.Max).item()))


def measure(workload: Workload, steps: int | None, rounds: int) -> dict[str, Any] | None:
    """What was measured, of all ranks; None on all but rank 0. All ranks must call. RuntimeError if they end with
    different models."""
    import torch

    import hvd
    import hvd.torch as hvd_torch

    torch.manual_seed(0)
    spans = Spans()
    model = workload.make()
    with _timed_optimizer(spans):
        sides = [Side(name, workload, model, spans) for name in (PLAIN, DISTRIBUTED)]
        for side in sides:
            side.steps(WARM_UP)
        steps = steps or _steps_of_a_round(sides[1])
        for number in range(rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                side.measure(steps)
    parameters = torch.cat([parameter.detach().flatten() for parameter in sides[1].model.parameters()])
    if not all(torch.equal(parameters, rank) for rank in hvd_torch.allgather(parameters.unsqueeze(0))):
        raise RuntimeError("the ranks have different parameters after the same steps")
    own = {side.name: vars(side.middle()) for side in sides}
    ranks = hvd_torch.allgather_object(own)
    if hvd.rank() != 0:
        return None
    return {
        "program": "hvd bench --training",
        "version": hvd.__version__,
        "torch": torch.__version__,
        "ranks": hvd.size(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "workload": workload.title,
        "batch": workload.batch,
        "parameters": parameters.numel(),
        "steps": steps,
        "rounds": rounds,
        "by_rank": ranks,
    }


def table(report: dict[str, Any]) -> str:
    """Microseconds of a step, without communication and with hvd, for each rank."""
    sides = [rank[name] for rank in report["by_rank"] for name in (PLAIN, DISTRIBUTED)]

    def row(title: str, values: list[float], form: str = "10.0f") -> str:
        return f"{title:38}" + "".join(f"{value:{form}}" for value in values)

    def of_threads(name: str, what: str) -> list[float]:
        return [side["threads"].get(name, {}).get(what, 0.0) for side in sides]

    def microseconds(values: list[float]) -> list[float]:
        return [value * 1e6 for value in values]

    lines = [
        f"{report['ranks']} ranks, {report['cpus']} CPUs, {report['threads']} threads of torch's a rank; "
        f"hvd {report['version']}, torch {report['torch']}, Linux {platform.release()}",
        f"{report['workload']}, {report['parameters'] * 4 / 1e6:.1f} MB of gradients, batches of {report['batch']}; "
        f"the median of {report['rounds']} rounds of {report['steps']} steps",
        f"{'us a step':38}" + "".join(f"{f'rank {rank}':>10}{'':10}" for rank in range(report["ranks"])),
        f"{'':38}" + f"{'alone':>10}{'hvd':>10}" * report["ranks"],
        row("the step", microseconds([side["step"] for side in sides])),
    ]
    for name, meaning in MEANINGS.items():
        values = [side["spans"].get(name, 0.0) for side in sides]
        if any(values):
            lines.append(row(f"  {meaning}", microseconds(values)))
    for name in ("training", "hvd", "others"):
        if not any(of_threads(name, "turns")):
            continue
        for what, meaning in (("cpu", "on a CPU"), ("queued", "waiting for a CPU")):
            lines.append(row(f"{name}: {meaning}", microseconds(of_threads(name, what))))
        lines.append(row(f"{name}: turns on a CPU", of_threads(name, "turns"), "10.1f"))
    return "\n".join(lines)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: at least 1")
    return number


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="hvd bench",
        usage="hvd bench [-np N] --training [options]\n"
        "       hvdrun -np N [options of hvdrun] hvd bench --training [options]",
        description="Where the time of a training step with PyTorch goes, on each rank.",
        allow_abbrev=False,
    )
    parser.add_argument("--training", action="store_true", required=True, help=argparse.SUPPRESS)
    parser.add_argument("-np", type=_positive, metavar="N", help="start N ranks with hvdrun, on this machine")
    parser.add_argument("--model", choices=WORKLOADS, default="mlp", help="default: %(default)s")
    parser.add_argument("--steps", type=_positive, help="of a round; default: those of half a second")
    parser.add_argument("--rounds", type=_positive, default=9, help="of each side; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results into this file too")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        parser.error("--training needs PyTorch: pip install torch")
    if options.np is not None and "HVD_RANK" in os.environ:
        parser.error(f"-np {options.np}: this job has {os.environ['HVD_SIZE']} ranks already")
    if options.json is not None and not options.json.parent.is_dir():
        parser.error(f"--json {options.json}: its directory does not exist")
    if options.np is not None:
        command = [str(installation.find("bin/hvdrun")), "-np", str(options.np), sys.executable, "-m", "hvd", "bench"]
        command += ["--training", "--model", options.model, "--rounds", str(options.rounds)]
        command += ["--steps", str(options.steps)] if options.steps else []
        command += ["--json", str(options.json)] if options.json else []
        become(command, os.environ)
    return _be_a_rank(options)


def _be_a_rank(options: argparse.Namespace) -> int:
    import hvd.torch as hvd_torch

    hvd_torch.init()
    report = measure(WORKLOADS[options.model], options.steps, options.rounds)
    if report is not None:
        print(table(report), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    hvd_torch.shutdown()
    return 0
