"""A long training with Keras never stalls, however many threads TensorFlow has."""

import pytest

from launching import PROGRAMS, run_job


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2, 0])
def test_fit_goes_on(threads):
    job = run_job(2, [PROGRAMS / "keras_soak.py", str(threads), "200"], limit_s=1200)
    assert job.returncode == 0, job.output
    assert job.output.count(f"with {threads} threads") == 2
