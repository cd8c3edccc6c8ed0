"""The example for FSDP2, as a user runs it."""

from __future__ import annotations

import re

import pytest

from launching import ROOT, run_job

EXAMPLE = str(ROOT / "examples" / "torch" / "fsdp2.py")


@pytest.mark.long
def test_two_ranks_learn_with_half_of_the_parameters_each():
    job = run_job(2, [EXAMPLE, "--steps", "41"])
    assert job.returncode == 0, job.output
    everything, own = map(int, re.search(r"(\d+) parameters, (\d+) of them on rank 0 of 2", job.output).groups())
    assert everything / 2 <= own < everything * 0.51
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", job.output)]
    assert len(losses) == 3 and losses[-1] < 0.75 * losses[0]
