"""docs/supported.md has the tables that its frameworks make today."""

from __future__ import annotations

from pathlib import Path

import pytest

from launching import PROGRAMS, PYTHON_WITH_MXNET, ROOT, hvdrun, run_command
from programs import supported

PAGE = ROOT / "docs" / "supported.md"


def advice(python: str, framework: str) -> str:
    program = (PROGRAMS / "supported.py").relative_to(ROOT)
    return f"run hvdrun -np 2 {python} {program} {framework} {PAGE.relative_to(ROOT)}"


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    "framework", ["numpy", "torch", *(pytest.param(name, marks=pytest.mark.long) for name in ("tensorflow", "jax"))]
)
def test_the_table_is_that_of_the_page(ranks: int, framework: str):
    pytest.importorskip(framework)
    lines = supported.table(supported.FRAMEWORKS[framework]())
    assert supported.section(PAGE.read_text(), lines[0]) == "\n".join(lines), advice("python", framework)


def test_the_table_of_mxnet_is_that_of_the_page(tmp_path: Path):
    made = tmp_path / PAGE.name
    made.write_text(PAGE.read_text())
    python = str(PYTHON_WITH_MXNET)
    job = run_command([hvdrun(), "-np", "2", python, str(PROGRAMS / "supported.py"), "mxnet", str(made)])
    assert job.returncode == 0, job.output[-6000:]
    assert made.read_text() == PAGE.read_text(), advice(python, "mxnet")
