"""The programs of examples/tensorflow, on two ranks with small settings. They end with an error where ranks have come
apart, which is tried, too."""

from __future__ import annotations

import importlib
import re
import runpy
import sys

import pytest

from launching import ROOT

pytestmark = pytest.mark.ranks(2)

# A program, its arguments, a number in what rank 0 writes, and what the number must be at least or at most.
EXAMPLES = [
    ("gradient_tape.py --epochs 5", r"accuracy ([\d.]+)%", "at least", 92),
    ("monitored_session.py --steps 400", r"accuracy ([\d.]+)%", "at least", 92),
    ("embedding.py --epochs 5", r"accuracy ([\d.]+)%", "at least", 90),
    ("embedding.py --epochs 5", r"([\d.]+) kB for a step", "at most", 50),
    ("embedding.py --epochs 1 --as-dense", r"([\d.]+) kB for a step", "at least", 500),
    ("keras_fit.py --epochs 6", r"test accuracy ([\d.]+)%", "at least", 92),
]
COMMANDS = dict.fromkeys(command for command, *_ in EXAMPLES)

# A program of few steps, and what it averages gradients with.
AVERAGING = [
    ("gradient_tape.py --epochs 1", "hvd.tensorflow", "DistributedGradientTape"),
    ("monitored_session.py --steps 10", "hvd.tensorflow", "DistributedOptimizer"),
    ("embedding.py --epochs 1", "hvd.tensorflow", "DistributedGradientTape"),
    ("keras_fit.py --epochs 1", "hvd.keras", "DistributedOptimizer"),
]


def run_example(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    runpy.run_path(str(ROOT / "examples" / "tensorflow" / program), run_name="__main__")


# What takes more than a few seconds is tried with -m long.
QUICK = ("gradient_tape.py --epochs 5", "monitored_session.py --steps 400")


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in COMMANDS]
)
def test_it_learns(command, monkeypatch, capsys):
    import hvd.tensorflow as hvd

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
@pytest.mark.parametrize(("command", "package", "averages"), AVERAGING)
def test_it_fails_where_gradients_are_not_shared(command, package, averages, monkeypatch):
    monkeypatch.setattr(importlib.import_module(package), averages, lambda alone, **_: alone)
    with pytest.raises(AssertionError, match="come apart"):
        run_example(command, monkeypatch)


def test_checkpoints_are_written_by_rank_0_and_read_by_all(monkeypatch, capsys, tmp_path):
    import hvd.tensorflow as hvd

    for steps in (40, 60):
        run_example(f"monitored_session.py --steps {steps} --checkpoints {tmp_path}", monkeypatch)
        written = capsys.readouterr().out
        if hvd.rank() == 0:
            assert f"after {steps // 2} steps" in written and (tmp_path / f"model.ckpt-{steps // 2}.index").exists()
        else:
            assert list(tmp_path.iterdir()) == []
