"""The examples of elastic training. One process is killed after a few steps, and a new one takes its place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from launching import PROGRAMS, ROOT, hvdrun

LIMIT_S = 600
RANKS = 3
KILL_AT = 5  # commits of the process that is killed
COMMIT = re.compile(r"process (\d+) \(pid (\d+)\) has committed (\d+) as rank (\d+) of (\d+)")


def run(example: str, victim: int, grow_at: int) -> tuple[int, str]:
    """Returns the exit code and what hvdrun and all processes have written."""
    program = [str(PROGRAMS / "elastic_example.py"), str(ROOT / "examples" / example), "--pause", "0"]
    process = subprocess.Popen(
        [hvdrun(), "-np", str(RANKS), "--min-np", "2", "--cooldown-range", "0,0", sys.executable, *program],
        env={**os.environ, "RANKS": str(RANKS), "GROW_AT": str(grow_at), "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout
    limit = threading.Timer(LIMIT_S, process.terminate)
    limit.start()
    output, commits = "", 0
    for line in process.stdout:
        output += line
        if (commit := COMMIT.search(line)) and int(commit[1]) == victim:
            commits += 1
            if commits == KILL_AT:
                os.kill(int(commit[2]), signal.SIGKILL)
    limit.cancel()
    return process.wait(), output


# A program, the process that is killed, and the number of commits after which a new process joins.
CASES = [
    ("torch/elastic.py", 0, 30),
    pytest.param("jax/elastic.py", 1, 30, marks=pytest.mark.long),
    pytest.param("tensorflow/elastic.py", 1, 30, marks=pytest.mark.long),
    pytest.param("tensorflow/keras_elastic.py", 2, 30, marks=pytest.mark.long),
    # Between the last batch of an epoch and its end.
    pytest.param("tensorflow/keras_elastic.py", 0, 50, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("example", "victim", "grow_at"), CASES)
def test_training_goes_on(example, victim, grow_at):
    code, output = run(example, victim, grow_at)
    assert code == 0, output

    left = rf"hvdrun: epoch 2 with \d ranks, .*left: process {victim}; rank \d has failed: killed by SIGKILL"
    assert re.search(left, output), output
    assert re.search(rf"hvdrun: epoch \d with {RANKS} ranks, .*joined: process {RANKS}", output), output

    # All that take part at the end have done the same last step, and no process does a step again that it committed.
    steps: dict[int, list[int]] = {}
    for process, _, step, _, _ in COMMIT.findall(output):
        steps.setdefault(int(process), []).append(int(step))
    assert set(steps) == set(range(RANKS + 1)), output
    assert all(of_one == sorted(set(of_one)) for of_one in steps.values()), steps
    assert len({of_one[-1] for process, of_one in steps.items() if process != victim}) == 1, steps
    done = re.findall(r"process \d+ is done: .*", output)
    assert len(done) == RANKS, output
    if example == "tensorflow/elastic.py":
        assert all("traced 1 times" in line for line in done), done
