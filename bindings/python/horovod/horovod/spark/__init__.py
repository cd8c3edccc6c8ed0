"""`horovod.spark`: ranks as tasks of a Spark application, see `hvd.spark`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import hvd.spark
from horovod.spark import conf, task

__all__ = ["conf", "run", "run_elastic", "task"]


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: int | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: set[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Calls a function on `num_proc` ranks, the tasks of one barrier stage; see `hvd.spark.run`, which does it.

    Args:
        use_mpi, extra_mpi_args, nics, executable: without effect; a warning says so. use_gloo: the default.
        others: as for `hvd.spark.run`.
    """
    _warn(use_mpi=use_mpi, extra_mpi_args=extra_mpi_args, nics=nics, executable=executable)
    return hvd.spark.run(
        fn,
        args,
        kwargs,
        num_proc,
        start_timeout,
        env={"HVD_JOIN_SCOPE": "allreduce", **(env or {})},  # the job is joined before `init()`, which sets this
        stdout=stdout,
        stderr=stderr,
        verbose=verbose,
        prefix_output_with_timestamp=prefix_output_with_timestamp,
    )


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: int | None = None,
    elastic_timeout: int | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: set[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls a function on ranks that come and go with their executors; see `hvd.spark.run_elastic`, which does it.

    Args:
        nics: without effect; a warning says so.
        min_np, max_np: the older names of min_num_proc and max_num_proc.
        others: as for `hvd.spark.run_elastic`.
    """
    _warn(nics=nics)
    return hvd.spark.run_elastic(
        fn,
        args,
        kwargs,
        num_proc,
        min_np if min_num_proc is None else min_num_proc,
        max_np if max_num_proc is None else max_num_proc,
        start_timeout,
        elastic_timeout,
        reset_limit,
        env=env,
        stdout=stdout,
        stderr=stderr,
        verbose=verbose,
        prefix_output_with_timestamp=prefix_output_with_timestamp,
    )


def _warn(**without_effect: Any) -> None:
    for name, value in without_effect.items():
        if value:
            warnings.warn(f"horovod.spark: {name} has no effect: the ranks are Spark's own processes", stacklevel=3)
