"""Runs the steps of tests/run.sh: those that keep all CPUs busy one after another, and beside them those that wait.

A step is a command with a name. It starts when the steps that it needs have succeeded; at most three run at once, and
only one of them may be one that keeps all CPUs busy; what measures runs alone. What each wrote stays in
RESULTS/NAME.log, how it ended and what it took in RESULTS/steps.json, for summary.py. A step that fails does not stop
those that do not need it. One that takes longer than its limit is aborted, and Python programs write down where they
are.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from summary import minutes

MOST_AT_ONCE = 3
TICK_S = 15
STEP_LIMIT_S = 65 * 60
ABORT_S = 5  # for what an aborted step writes
LINES_OF_A_FAILURE = 100


@dataclass
class Step:
    """kind: "tests" writes its cases to RESULTS/NAME.xml, "check" counts as one test, "build" only if it fails.

    A word {junit} in the command stands for RESULTS/NAME.xml.
    """

    name: str
    kind: str
    title: str
    command: list[str]
    needs: list[str] = field(default_factory=list)
    busy: bool = False  # keeps all CPUs busy by itself
    alone: bool = False  # nothing may run beside it
    limit_s: float = STEP_LIMIT_S
    ninja_log: Path | None = None  # of a build: what it compiled and linked stands there
    environment: dict[str, str] = field(default_factory=dict)

    # How it went.
    code: int | None = None
    began: float = 0
    wall_s: float = 0
    cpu_s: float = 0
    compile_s: float = 0
    link_s: float = 0


def next_steps(waiting: list[Step], running: list[Step], succeeded: set[str]) -> list[Step]:
    """Which of the waiting steps start now, in their order."""
    started: list[Step] = []
    for step in waiting:
        beside = [*running, *started]
        ready = set(step.needs) <= succeeded
        disturbed = step.alone or any(other.alone or (step.busy and other.busy) for other in beside)
        if ready and len(beside) < MOST_AT_ONCE and not (beside and disturbed):
            started.append(step)
    return started


Made = tuple[str, str, str]  # file, hash of its command, when it was written


def read_ninja_log(path: Path | None) -> dict[Made, float]:
    """Seconds by what was made, of all that ninja has ever made there."""
    if path is None or not path.exists():
        return {}
    times = {}
    for line in path.read_text().splitlines():
        parts = line.split("\t")
        if len(parts) == 5:
            times[parts[3], parts[4], parts[2]] = (int(parts[1]) - int(parts[0])) / 1000
    return times


def made_since(before: dict[Made, float], after: dict[Made, float]) -> tuple[float, float]:
    """Seconds spent compiling and linking, added up over the compilers that ran side by side."""
    new = {made: seconds for made, seconds in after.items() if made not in before}
    compiling = sum(seconds for made, seconds in new.items() if made[0].endswith(".o"))
    return compiling, sum(new.values()) - compiling


def abort(pid: int, log: Path) -> None:
    """Ends a process and its descendants, which get SIGABRT: Python's faulthandler writes where each thread is."""
    with contextlib.suppress(OSError), log.open("ab") as file:
        file.write(b"The step has reached its limit of time and is aborted.\n")
    processes = descendants(pid)
    for number in (signal.SIGABRT, signal.SIGKILL):
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
        time.sleep(ABORT_S)


def descendants(pid: int) -> list[int]:
    """This process and those below it."""
    try:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:  # it has ended
        return []
    return [pid, *(each for child in children for each in descendants(child))]


class Run:
    def __init__(self, results: Path, say=print) -> None:
        self.results = results
        self.say = say
        self.lock = threading.Condition()
        self.running: list[Step] = []
        self.succeeded: set[str] = set()

    def log(self, step: Step) -> Path:
        return self.results / f"{step.name}.log"

    def perform(self, step: Step) -> None:
        """Runs a step to its end, on a thread of its own."""
        before = read_ninja_log(step.ninja_log)
        command = [word.replace("{junit}", str(self.results / f"{step.name}.xml")) for word in step.command]
        environment = {**os.environ, **step.environment}
        with self.log(step).open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
            limit = threading.Timer(step.limit_s, abort, (process.pid, self.log(step)))
            limit.start()
            _, status, usage = os.wait4(process.pid, 0)
            limit.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        step.code = process.returncode
        step.wall_s = time.monotonic() - step.began
        step.cpu_s = usage.ru_utime + usage.ru_stime
        step.compile_s, step.link_s = made_since(before, read_ninja_log(step.ninja_log))
        with self.lock:
            self.running.remove(step)
            if step.code == 0:
                self.succeeded.add(step.name)
            self.report(step)
            self.lock.notify()

    def report(self, step: Step) -> None:
        took = f"{minutes(step.wall_s)}, {minutes(step.cpu_s)} of CPU"
        if step.code == 0:
            self.say(f"    {step.title}: done in {took}")
            return
        for line in self.log(step).read_text(errors="replace").splitlines()[-LINES_OF_A_FAILURE:]:
            self.say(f"    {line}")
        self.say(f"    {step.title}: FAILED with exit code {step.code} after {took}; all it wrote: {self.log(step)}")

    def tick(self) -> None:
        """Says how far each running step is: the last line of its log."""
        for step in self.running:
            lines = self.log(step).read_text(errors="replace").splitlines() or [""]
            self.say(f"    {minutes(time.monotonic() - step.began)}  {step.name}: {lines[-1].strip()[:100]}")

    def all(self, steps: list[Step]) -> None:
        waiting = list(steps)
        with self.lock:
            while waiting or self.running:
                for step in next_steps(waiting, self.running, self.succeeded):
                    waiting.remove(step)
                    self.running.append(step)
                    step.began = time.monotonic()
                    self.say(f"==> {step.title}")
                    self.log(step).touch()
                    threading.Thread(target=self.perform, args=(step,)).start()
                if not self.running:
                    break  # what still waits needs something that has failed
                if not self.lock.wait(TICK_S):
                    self.tick()
        for step in waiting:
            self.say(f"==> {step.title}: not run, since {' and '.join(set(step.needs) - self.succeeded)} failed")


def run(steps: list[Step], results: Path) -> None:
    """Runs all steps and writes RESULTS/steps.json."""
    began = time.monotonic()
    runner = Run(results, say=lambda text: print(text, flush=True))
    runner.all(steps)
    record = {
        "wall_s": time.monotonic() - began,
        "cpus": len(os.sched_getaffinity(0)),
        "steps": [
            {
                **{key: getattr(step, key) for key in ("name", "kind", "title", "code")},
                **{key: round(getattr(step, key), 2) for key in ("wall_s", "cpu_s", "compile_s", "link_s")},
            }
            for step in steps
        ],
    }
    (results / "steps.json").write_text(json.dumps(record, indent=1) + "\n")
