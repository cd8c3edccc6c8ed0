"""PyTorch Lightning, Accelerate and Transformers' Trainer over hvd: the programs of their pages, whoever starts the
ranks."""

from __future__ import annotations

import sys

import pytest

from launching import PROGRAMS, hvdrun, run_command

PROGRAM = str(PROGRAMS / "training_page.py")
BY = {
    "hvdrun": [hvdrun(), "-np", "2", sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "python": [sys.executable],
}


PAGES = {
    "lightning": ("lightning.md", {"torchrun": ["pytorch_lightning"]}, ("HvdStrategy", "DDPStrategy")),
    "huggingface": ("huggingface.md", {"python": ["starts"]}, ("Accelerate", "Trainer")),
}
# Importing a tool takes seconds. hvd has code of its own for Lightning alone: the others find its process group.
ONCE = ("lightning", "hvdrun")
ALL = [(tool, launcher) for tool in PAGES for launcher in BY]
AGAIN = [pytest.param(*pair, marks=pytest.mark.long) for pair in ALL if pair != ONCE]


@pytest.mark.parametrize(("tool", "launcher"), [ONCE, *AGAIN])
def test_two_ranks_train_as_over_gloo(tool, launcher, tmp_path):
    page, specially, compared = PAGES[tool]
    command = [*BY[launcher], PROGRAM, page, *specially.get(launcher, [])]
    job = run_command(command, {"HF_HUB_OFFLINE": "1"}, cwd=tmp_path)
    assert job.returncode == 0, job.output
    for rank in range(2):
        for name in compared:
            assert f"rank {rank} of 2: {name} as over gloo" in job.output, job.output
