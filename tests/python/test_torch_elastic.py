"""PyTorch's own parallelism in elastic jobs, and PyTorch's own elastic launcher."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
TIMEOUT = 600


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT)


@pytest.mark.long
def test_ddp_is_wrapped_anew_in_each_epoch():
    options = ("-np", 3, "--min-np", 2, "--cooldown-range", "60,60")
    done = run("hvdrun", *options, sys.executable, PROGRAMS / "elastic_ddp.py")
    assert done.returncode == 0, done.stderr
    assert "epoch 2 with 2 ranks" in done.stderr, done.stderr
    assert done.stdout.count(" has finished 40 steps with 2 ranks\n") == 2, done.stdout


@pytest.mark.long
def test_fsdp2_divides_the_model_anew_in_each_epoch(tmp_path):
    options = ("-np", 3, "--min-np", 2, "--cooldown-range", "0,0")
    done = run("hvdrun", *options, sys.executable, PROGRAMS / "elastic_fsdp2.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" has finished with the weights of one process, sizes (3, 2, 3)") == 3, done.stdout


def test_a_finished_step_is_kept_without_a_commit():
    options = ("-np", 4, "--min-np", 2, "--cooldown-range", "60,60")
    done = run("hvdrun", *options, sys.executable, PROGRAMS / "elastic_steps.py")
    assert done.returncode == 0, done.stderr
    # Lost at the 26th step, and at the 48th, from which the others have gone back to the 40th.
    assert done.stdout.count(": 25 steps of 4 ranks, 15 of 3, 20 of 2\n") == 2, (done.stdout, done.stderr)


def test_torchrun_starts_the_ranks_again():
    options = ("--nproc-per-node", 2, "--max-restarts", 1, "--monitor-interval", 0.1)
    done = run(sys.executable, "-m", "torch.distributed.run", *options, PROGRAMS / "torchrun_restart.py")
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"attempt \d: rank \d has finished", done.stdout)) == [
        "attempt 1: rank 0 has finished",
        "attempt 1: rank 1 has finished",
    ]
