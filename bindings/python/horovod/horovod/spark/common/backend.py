"""Where an estimator trains: `SparkBackend` on the cluster whose session is active; others can be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import horovod.spark
from hvd.spark import engine

__all__ = ["Backend", "SparkBackend", "default_num_proc"]


def default_num_proc() -> int:
    """As many ranks as the active session runs tasks at once."""
    return engine.active().default_parallelism()


class Backend:
    """Runs a function on several ranks."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """Returns what the function returned, by rank."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """How many ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Ranks as tasks of the active session.

    Args:
        num_proc: number of ranks; by default the session's parallelism.
        env: variables for the ranks.
        run_kwargs: further arguments of `horovod.spark.run`.
    """

    def __init__(self, num_proc: int | None = None, env: Mapping[str, str] | None = None, **run_kwargs: Any) -> None:
        self._num_proc = num_proc or default_num_proc()
        self._env = dict(env or {})
        self._run_kwargs = run_kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        variables = {**self._env, **(env or {})}
        return horovod.spark.run(fn, args, kwargs, self._num_proc, env=variables, **self._run_kwargs)

    def num_processes(self) -> int:
        return self._num_proc
