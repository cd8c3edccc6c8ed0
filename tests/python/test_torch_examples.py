"""The programs of examples/torch, on two ranks with small settings, and the one in the guide for users of DDP. The
digits have a file of their own. Programs end with an error where ranks have come apart, which is tried, too."""

from __future__ import annotations

import re
import runpy
import sys
from contextlib import nullcontext

import pytest
import torch

import hvd.torch as hvd
from launching import ROOT

pytestmark = pytest.mark.ranks(2)

# A program, its arguments, a number in what rank 0 writes, and what the number must be at least or at most.
EXAMPLES = [
    ("character_model.py --steps 60", r"([\d.]+) bits per character", "at most", 3.6),  # 4.7: the frequencies alone
    ("gan.py --steps 400", r"points are ([\d.]+) away", "at most", 0.5),  # 1.8 before training
    ("gan.py --steps 400", r"in (\d+)% of its sectors", "at least", 75),
    ("sync_batch_norm.py --steps 200", r"([\d.]+)% with SyncBatchNorm", "at least", 97),
    ("sync_batch_norm.py --steps 200", r"([\d.]+)% with BatchNorm1d", "at most", 90),
    ("mixed_precision.py --epochs 6 --dtype bfloat16", r"accuracy ([\d.]+)%", "at least", 93),
    ("mixed_precision.py --epochs 6 --dtype float16", r"accuracy ([\d.]+)%", "at least", 93),
    ("mixed_precision.py --epochs 6 --dtype float16", r"scale (\d+)", "at most", 2**23),  # it began with 2**24
    ("gradient_accumulation.py --epochs 6 --passes 3", r"accuracy ([\d.]+)%", "at least", 90),
    ("large_batches.py --epochs 6 --seeds 2 --factors 32", r"256 \|\s+([\d.]+)", "at most", 80),
    ("large_batches.py --epochs 6 --seeds 2 --factors 32", r"256 \|.*?\|\s+([\d.]+)", "at least", 85),
    ("large_batches.py --epochs 6 --seeds 2 --factors 32", r"256 \|.*\|\s+([\d.]+)[^|]*\|$", "at least", 80),
]
COMMANDS = dict.fromkeys(command for command, *_ in EXAMPLES)


def run_example(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    runpy.run_path(str(ROOT / "examples" / "torch" / program), run_name="__main__")


def alone(optimizer: torch.optim.Optimizer, *_: object, **__: object) -> torch.optim.Optimizer:
    """Stands for DistributedOptimizer, and averages nothing."""
    optimizer.no_sync = nullcontext
    return optimizer


# What takes more than a few seconds is tried with -m long.
QUICK = ("mixed_precision.py --epochs 6 --dtype float16", "gradient_accumulation.py --epochs 6 --passes 3")


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in COMMANDS]
)
def test_it_learns(command, monkeypatch, capsys):
    run_example(command, monkeypatch)
    written = capsys.readouterr().out
    if hvd.rank() != 0:
        assert written == ""
        return
    for _, pattern, bound, limit in (example for example in EXAMPLES if example[0] == command):
        found = re.search(pattern, written)
        assert found, written
        number = float(found[1])
        assert number <= limit if bound == "at most" else number >= limit, written


@pytest.mark.long
@pytest.mark.parametrize("command", [re.sub(r"(--steps|--epochs) \d+", r"\1 2", command) for command in COMMANDS])
def test_it_fails_where_gradients_are_not_shared(command, monkeypatch):
    monkeypatch.setattr(hvd, "DistributedOptimizer", alone)
    with pytest.raises(AssertionError, match="come apart"):
        run_example(command, monkeypatch)


def test_the_guide_from_ddp():
    guide = (ROOT / "docs" / "from-ddp.md").read_text()
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    assert code
    names: dict = {}
    exec(code[1], names)
    weights = hvd.allgather(names["model"].weight.detach())
    assert torch.equal(weights[0], weights[1])
    assert len(names["loader"]) == 256 // 32 // hvd.size()
