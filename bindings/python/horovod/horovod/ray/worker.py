"""What the actors of `RayExecutor` offer to scripts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from hvd.ray.worker import Worker

__all__ = ["BaseHorovodWorker"]


class BaseHorovodWorker(Worker):
    """A rank, or outside of an executor an object that scripts derive actors of their own from."""

    def __init__(
        self, world_rank: int = 0, world_size: int = 1, job: str = "", variables: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(world_rank, world_size, job, variables or {})

    def hostname(self) -> str:
        return socket.gethostname()

    def node_id(self) -> str:
        """Ray's name for the machine."""
        return str(ray.get_runtime_context().get_node_id())

    def get_gpu_ids(self) -> list[int | str]:
        return self.gpus()

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        self.set_variables({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if executable_cls is not None:
            self.make_executable(executable_cls, executable_args or (), executable_kwargs or {})
