"""hvd.mxnet, with the MXNet of an environment of its own, which .ci/setup.sh makes."""

from __future__ import annotations

import re

import pytest

from launching import PROGRAMS, PYTHON_WITH_MXNET, ROOT, hvdrun, run_command

CHECKS = [
    check
    for program in ("mxnet_collectives.py", "mxnet_training.py")
    for check in re.findall(r"^def (check_\w+)", (PROGRAMS / program).read_text(), re.MULTILINE)
]
LOSES_RANK_1 = CHECKS[-1]

pytestmark = pytest.mark.xdist_group(name="mxnet")


def run_with_mxnet(*arguments, cwd=None):
    assert PYTHON_WITH_MXNET.exists(), f"{PYTHON_WITH_MXNET} is missing: tests/run.sh makes it"
    # One worker of the engine: an operation that waited in it would keep all others from running.
    environment = {"MXNET_CPU_WORKER_NTHREADS": "1", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "20"}
    return run_command([hvdrun(), "-np", "2", str(PYTHON_WITH_MXNET), *arguments], environment, 240, cwd)


@pytest.fixture(scope="module")
def job():
    return run_with_mxnet(str(PROGRAMS / "mxnet_checks.py"))


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(job, check):
    for rank in range(1 if check == LOSES_RANK_1 else 2):
        assert f"{rank} {check} passed" in job.output, job.output


def test_the_example(tmp_path):
    job = run_with_mxnet(str(ROOT / "examples" / "mxnet" / "spirals.py"), "--reference", cwd=tmp_path)
    assert job.returncode == 0, job.output
    assert float(re.search(r"accuracy ([\d.]+)%", job.output)[1]) > 95, job.output
    assert "differ from those of one process by at most" in job.output
