"""hvd.keras on every Keras there is: the programs say what is checked. Importing TensorFlow takes seconds, so that each
is one job."""

from __future__ import annotations

import importlib.util

import pytest

from launching import PROGRAMS, run_job

# What must be installed, and the environment.
KERASES = {
    "tensorflow": (["keras", "tensorflow"], {"KERAS_BACKEND": "tensorflow"}),
    "torch": (["keras", "torch"], {"KERAS_BACKEND": "torch"}),
    "tf_keras": (["tf_keras", "tensorflow"], {"TF_USE_LEGACY_KERAS": "1"}),
}
QUIETLY = {"TF_CPP_MIN_LOG_LEVEL": "3", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "20"}


def environment_of(keras: str) -> dict[str, str]:
    needed, variables = KERASES[keras]
    for package in needed:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return variables | QUIETLY


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("keras", KERASES)
def test_training(ranks: int, keras: str):
    # PyTorch takes longer to import its compiler than for all other checks.
    without = ["--without", "check_jit_compile"] if keras == "torch" else []
    job = run_job(ranks, [str(PROGRAMS / "keras_training.py"), *without], environment_of(keras), limit_s=1200)
    assert job.returncode == 0, job.output[-6000:]
    assert f"passed: {'check_alone' if without else 'check_jit_compile'}" in job.output  # the last one


@pytest.mark.long
def test_a_training_step_that_pytorch_compiles():
    job = run_job(2, [str(PROGRAMS / "keras_training.py"), "check_jit_compile"], environment_of("torch"))
    assert job.returncode == 0 and "passed: check_jit_compile" in job.output, job.output[-6000:]


@pytest.mark.parametrize(
    "keras", ["tensorflow", *(pytest.param(other, marks=pytest.mark.long) for other in ("torch", "tf_keras"))]
)
def test_a_rank_is_killed_during_fit(keras: str):
    job = run_job(2, [str(PROGRAMS / "keras_loses_a_rank.py")], environment_of(keras))
    assert job.returncode != 0 and "rank 0 noticed after" in job.output, job.output[-6000:]


@pytest.mark.skipif(not importlib.util.find_spec("tf_keras"), reason="tf_keras is not installed")
def test_models_of_both():
    job = run_job(2, [str(PROGRAMS / "keras_of_both.py")], QUIETLY | {"KERAS_BACKEND": "tensorflow"})
    assert job.returncode == 0 and job.output.count("both work") == 2, job.output[-6000:]
