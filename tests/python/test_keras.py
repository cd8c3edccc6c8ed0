"""hvd.keras on every Keras there is: the programs say what is checked. Importing TensorFlow takes seconds, so that one
job for each Keras runs all programs, the one that loses a rank at its end."""

from __future__ import annotations

import functools
import importlib.util
from importlib.metadata import version

import pytest

from launching import Job, in_turn, run_job

# What must be installed, and the environment.
KERASES = {
    "tensorflow": (["keras", "tensorflow"], {"KERAS_BACKEND": "tensorflow"}),
    "torch": (["keras", "torch"], {"KERAS_BACKEND": "torch"}),
    "jax": (["keras", "jax"], {"KERAS_BACKEND": "jax"}),
    "tf_keras": (["tf_keras", "tensorflow"], {"TF_USE_LEGACY_KERAS": "1"}),
}
QUIETLY = {"TF_CPP_MIN_LOG_LEVEL": "3", "HVD_STALL_SHUTDOWN_TIME_SECONDS": "90"}

TRAINING = "keras_training.py"


def training(checks: str) -> str:
    return " ".join([TRAINING, *(f"check_{check}" for check in checks.split())])


def training_without(checks: str) -> str:
    return " ".join([TRAINING, *(f"--without check_{check}" for check in checks.split())])


# All checks run on PyTorch, but one: it takes longer to import its compiler than for all others.
TRAINING_WITH_TORCH = training_without("jit_compile")
# TensorFlow traces each model's step, for a second: without what has no code of its own there.
TRAINING_WITH_TENSORFLOW = training_without(
    "arguments saving checkpoints learning_rates best_model metric_average local_layers_of_other_shapes"
)
# JAX compiles each model's step.
TRAINING_WITH_JAX = training(
    "passes_under_loss_scaling broadcast broadcast_of_no_variables learning_rates values elastic"
)
# What Keras 2 does in another way than Keras 3.
TRAINING_WITH_TF_KERAS = training(
    "gradients_that_an_optimizer_computes loss_scaling passes_under_loss_scaling legacy_optimizers"
)
KILLED = "keras_loses_a_rank.py"
# What Keras 2 does not have.
SCHEDULE = ["keras_schedule.py"] if importlib.util.find_spec("keras") and version("keras")[0] != "2" else []
OF_BOTH = ["keras_of_both.py"] if importlib.util.find_spec("tf_keras") else []
PROGRAMS_OF = {
    "tensorflow": ["sync_batch_norm.py", *OF_BOTH, *SCHEDULE, TRAINING_WITH_TENSORFLOW, KILLED],
    "torch": [*SCHEDULE, TRAINING_WITH_TORCH],
    "jax": [*SCHEDULE, TRAINING_WITH_JAX, KILLED],
    "tf_keras": [TRAINING_WITH_TF_KERAS],
}


def environment_of(keras: str) -> dict[str, str]:
    needed, variables = KERASES[keras]
    for package in needed:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return variables | QUIETLY


@functools.cache
def job_of(keras: str) -> Job:
    return run_job(2, in_turn(*PROGRAMS_OF[keras]), environment_of(keras), limit_s=1200)


def of_each_keras(*programs: str):
    pairs = [(keras, program) for keras in KERASES for program in PROGRAMS_OF[keras] if program in programs]
    marked = [pytest.param(*pair, marks=pytest.mark.xdist_group(f"keras {pair[0]}")) for pair in pairs]
    return pytest.mark.parametrize(("keras", "program"), marked)


@of_each_keras(
    TRAINING_WITH_TENSORFLOW,
    TRAINING_WITH_TORCH,
    TRAINING_WITH_JAX,
    TRAINING_WITH_TF_KERAS,
    "sync_batch_norm.py",
    *SCHEDULE,
    *OF_BOTH,
)
def test_two_ranks(keras: str, program: str):
    job = job_of(keras)
    assert job.output.count(f"{program} has ended") == 2, job.output[-6000:]
    if program == "sync_batch_norm.py":
        assert all(f"rank {rank} of 2 is fine with keras" in job.output for rank in range(2)), job.output


@of_each_keras(KILLED)
def test_a_rank_is_killed_during_fit(keras: str, program: str):
    job = job_of(keras)
    assert job.returncode != 0 and "rank 0 noticed after" in job.output, job.output[-6000:]


@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "keras"),
    [(ranks, keras) for ranks in (1, 2, 4) for keras in KERASES if (ranks, keras) != (2, "torch")],
)
def test_all_of_the_training(ranks: int, keras: str):
    program = TRAINING_WITH_TORCH if keras == "torch" else TRAINING
    job = run_job(ranks, in_turn(program), environment_of(keras), limit_s=1200)
    assert job.returncode == 0 and job.output.count(f"{program} has ended") == ranks, job.output[-6000:]


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "keras"), [(1, "tensorflow"), (2, "tf_keras")])
def test_sync_batch_norm(ranks: int, keras: str):
    job = run_job(ranks, in_turn("sync_batch_norm.py"), environment_of(keras))
    package = KERASES[keras][0][0]
    assert all(f"rank {rank} of {ranks} is fine with {package}" in job.output for rank in range(ranks)), job.output


@pytest.mark.long
def test_a_training_step_that_pytorch_compiles():
    job = run_job(2, in_turn("keras_training.py check_jit_compile"), environment_of("torch"))
    assert job.returncode == 0 and "passed: check_jit_compile" in job.output, job.output[-6000:]


@pytest.mark.long
@pytest.mark.parametrize("keras", ["torch", "tf_keras"])
def test_a_rank_is_killed_during_fit_on_the_others(keras: str):
    job = run_job(2, in_turn(KILLED), environment_of(keras))
    assert job.returncode != 0 and "rank 0 noticed after" in job.output, job.output[-6000:]
