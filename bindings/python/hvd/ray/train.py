"""hvd in Ray Train: what a trainer's workers do before and after the user's function."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig

from hvd import cluster, rendezvous
from hvd.ray import rendezvous_store

_ANSWER_TIMEOUT_S = 60  # of workers that are there, and have to import hvd


@dataclass
class HvdConfig(BackendConfig):
    """The workers of a trainer as ranks of a job, by the number of their world rank: `hvd.init()` in the training
    function joins it. They leave it when the function ends; if it raises an exception, the others' operations fail with
    that cause, and Ray's FailureConfig decides what follows.

    To be given to `DataParallelTrainer(backend_config=)`, `TorchTrainer(torch_config=)`, `JaxTrainer(jax_config=)` or
    `TensorflowTrainer(tensorflow_config=)`, which then set up no communication of their own.

    Args:
        timeout_s: seconds that `hvd.init()` waits for the other ranks (HVD_START_TIMEOUT).
    """

    timeout_s: float = 30
    backend: str = "hvd"  # TorchTrainer chooses where there is none

    @property
    def backend_cls(self) -> type[Backend]:
        return _HvdBackend

    @property
    def train_func_context(self) -> Any:
        return _membership

    def to_dict(self) -> dict[str, Any]:
        return {"backend": self.backend, "timeout_s": self.timeout_s}


class _HvdBackend(Backend):
    share_cuda_visible_devices = True  # as local ranks count them

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Each group of workers is a job, also the one that takes the place of a failed one."""
        assert isinstance(backend_config, HvdConfig)
        job, size = rendezvous_store.new_job(), len(worker_group)
        arguments = [(job, rank, size, backend_config.timeout_s) for rank in range(size)]
        told = [worker_group.execute_single_async(each[1], _remember_place, *each) for each in arguments]
        ray.get(told, timeout=_ANSWER_TIMEOUT_S)


_place: rendezvous.Rendezvous | None = None
_variables: dict[str, str] = {}


def _remember_place(job: str, rank: int, size: int, timeout_s: float) -> None:
    """On a worker."""
    global _place, _variables
    _place = rendezvous_store.place_in(job, rank, size)
    _variables = {"HVD_START_TIMEOUT": str(timeout_s)}


def _membership() -> AbstractContextManager[None]:
    """On a worker, around the training function."""
    if _place is None:  # ScalingConfig(num_workers=0): the function runs in the driver, a job of one
        return contextlib.nullcontext()
    return cluster.member(_place, _variables)
