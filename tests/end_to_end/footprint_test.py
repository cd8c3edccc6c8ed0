"""An idle runtime costs nothing, and a busy one costs little beside the training that it serves."""

import json
import pathlib
import subprocess
import sys

import pytest

WORKER = pathlib.Path(__file__).with_name("footprint_worker.py")


def run(hvdrun, what):
    done = subprocess.run(
        [hvdrun, "-np", "2", sys.executable, str(WORKER), what], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_idle_process_uses_less_than_two_thousandths_of_a_core(hvdrun):
    results = run(hvdrun, "idle")
    assert len(results) == 2
    for result in results:
        assert result["cpu_share"] < 0.002, result
        assert result["wakeups_per_second"] < 2, result


@pytest.mark.long
def test_the_runtimes_threads_use_less_than_a_hundredth_of_a_training_loop(hvdrun):
    results = run(hvdrun, "train")
    assert len(results) == 2
    for result in results:
        assert result["steps"] > 3, result
        assert result["runtime_share"] < 0.01, result
