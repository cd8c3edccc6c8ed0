"""The program of examples/numpy, whose result it compares with that of one process, and the code of docs/numpy.md."""

from __future__ import annotations

import re
import runpy
import sys

import pytest

import hvd
from launching import ROOT

pytestmark = [pytest.mark.quick, pytest.mark.ranks(1, 2)]

PROGRAM = ROOT / "examples" / "numpy" / "k_means.py"


def run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), "--points", "5000", "--iterations", "8"])
    runpy.run_path(str(PROGRAM), run_name="__main__")


def test_it_finds_the_centres_of_one_process(monkeypatch, capsys):
    run(monkeypatch)
    written = capsys.readouterr().out
    if hvd.rank() != 0:
        assert written == ""
        return
    assert re.search(rf"{hvd.size()} ranks, 8 centres, \S+ away from those of one process", written), written


@pytest.mark.ranks(2)
def test_it_fails_where_nothing_is_summed_up(monkeypatch):
    monkeypatch.setattr(hvd, "allreduce", lambda array, **_: array)
    with pytest.raises(AssertionError, match="come apart"):
        run(monkeypatch)


def test_the_code_of_the_page():
    page = (ROOT / "docs" / "numpy.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, {})
