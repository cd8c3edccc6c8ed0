"""TensorFlow and Keras scripts written for Horovod, started as their users start them."""

from __future__ import annotations

import re
import sys

import pytest

from launching import PROGRAMS, run_command


@pytest.mark.parametrize("script", ["horovod_tensorflow2.py", "horovod_keras.py", "horovod_tensorflow1.py"])
def test_a_script_runs_unchanged(script):
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable, str(PROGRAMS / script)]
    job = run_command(command, {"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert job.returncode == 0, job.output
    assert sorted(re.findall(r"rank \d of 2 is fine", job.output)) == ["rank 0 of 2 is fine", "rank 1 of 2 is fine"]
