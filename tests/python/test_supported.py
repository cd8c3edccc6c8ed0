"""docs/supported.md has the tables that its frameworks make today."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from launching import PROGRAMS, PYTHON_WITH_MXNET, ROOT, hvdrun, run_command

PAGE = ROOT / "docs" / "supported.md"
QUIETLY = {"TF_CPP_MIN_LOG_LEVEL": "3", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "90"}


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax", "mxnet"])
def test_the_table_is_that_of_the_page(framework: str, tmp_path: Path):
    if framework != "mxnet" and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    python = str(PYTHON_WITH_MXNET) if framework == "mxnet" else sys.executable
    made = tmp_path / PAGE.name
    made.write_text(PAGE.read_text())
    command = [hvdrun(), "-np", "2", python, str(PROGRAMS / "supported.py"), framework]
    job = run_command([*command, str(made)], QUIETLY)
    assert job.returncode == 0, job.output[-6000:]
    assert made.read_text() == PAGE.read_text(), f"run {' '.join(command[:3])} ... supported.py {framework} {PAGE}"
