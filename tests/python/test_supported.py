"""docs/supported.md has the tables that its frameworks make today."""

from __future__ import annotations

import importlib.util
import re

import pytest

from launching import PROGRAMS, ROOT, run_job

PAGE = ROOT / "docs" / "supported.md"
QUIETLY = {"TF_CPP_MIN_LOG_LEVEL": "3", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "20"}


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax"])
def test_the_table_is_that_of_the_page(framework: str):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    job = run_job(2, [str(PROGRAMS / "supported.py"), framework], QUIETLY)
    assert job.returncode == 0, job.output[-6000:]
    found = re.search(r"^## .*?^\|.*\|$", job.output, re.DOTALL | re.MULTILINE)
    assert found, job.output[-6000:]
    table = job.output[found.start() :].strip()
    again = f"hvdrun -np 2 python tests/python/programs/supported.py {framework} docs/supported.md"
    assert table in PAGE.read_text(), f"{table}\n\nis not in the page: run {again}"
