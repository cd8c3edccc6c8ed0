"""docs/supported.md has the tables that its frameworks make today."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from launching import PROGRAMS, ROOT, hvdrun, run_command

WITH_MXNET = str(Path(sys.prefix) / "mxnet" / "bin" / "python")
PAGE = ROOT / "docs" / "supported.md"
QUIETLY = {"TF_CPP_MIN_LOG_LEVEL": "3", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "20"}


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax", "mxnet"])
def test_the_table_is_that_of_the_page(framework: str):
    if framework != "mxnet" and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    python = WITH_MXNET if framework == "mxnet" else sys.executable
    job = run_command([hvdrun(), "-np", "2", python, str(PROGRAMS / "supported.py"), framework], QUIETLY)
    assert job.returncode == 0, job.output[-6000:]
    found = re.search(r"^## .*?^\|.*\|$", job.output, re.DOTALL | re.MULTILINE)
    assert found, job.output[-6000:]
    table = job.output[found.start() :].strip()
    again = f"hvdrun -np 2 python tests/python/programs/supported.py {framework} docs/supported.md"
    assert table in PAGE.read_text(), f"{table}\n\nis not in the page: run {again}"
