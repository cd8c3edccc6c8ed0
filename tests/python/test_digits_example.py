"""The example that the README begins with, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from launching import ROOT, hvdrun

DIGITS = ROOT / "examples" / "torch" / "digits.py"
# The default run trains it by the README's command (tests/packaging/test_readme.py).
pytestmark = pytest.mark.long


def run_digits(ranks: int, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [hvdrun(), "-np", str(ranks), sys.executable, str(DIGITS), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=720)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_learn_and_agree_with_one_process(tmp_path, ranks):
    done = run_digits(ranks, tmp_path, "--json", "--reference")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result) == {"accuracy", "images_per_second", "ranks", "identical"}
    assert result["accuracy"] >= 0.96 and result["ranks"] == ranks and result["identical"] is True
    assert result["images_per_second"] > 0
    assert "agrees with one process" in done.stderr
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert set(torch.load(tmp_path / "digits.pt")) == {"model", "optimizer"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_report_for_people(tmp_path, ranks):
    done = run_digits(ranks, tmp_path, "--checkpoint", "elsewhere.pt")
    assert done.returncode == 0, done.stderr
    assert "test accuracy 9" in done.stdout and f"on {ranks} ranks" in done.stdout
    assert (tmp_path / "elsewhere.pt").exists() and not (tmp_path / "digits.pt").exists()
    assert "100%" in done.stderr
