"""Batch normalisation over all ranks' batches, with both Kerases."""

from __future__ import annotations

import importlib.util

import pytest

from launching import PROGRAMS, run_job


@pytest.mark.parametrize(
    "ranks, keras", [pytest.param(1, "keras", marks=pytest.mark.long), (2, "keras"), (2, "tf_keras")]
)
def test_sync_batch_norm(ranks, keras):
    if importlib.util.find_spec(keras) is None:
        pytest.skip(f"{keras} is not installed")
    environment = {"TF_USE_LEGACY_KERAS": str(int(keras == "tf_keras")), "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment |= {"HVD_STALL_SHUTDOWN_TIME_SECONDS": "20"}
    job = run_job(ranks, [str(PROGRAMS / "sync_batch_norm.py")], environment)
    assert job.returncode == 0, job.output
    assert all(f"rank {rank} of {ranks} is fine with {keras}" in job.output for rank in range(ranks)), job.output
