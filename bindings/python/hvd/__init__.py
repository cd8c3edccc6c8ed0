"""hvd: collective communication for training.

Use the package of your framework, which has everything that scripts need::

    import hvd.torch as hvd

This one says where a process stands in its job, for programs that use no framework, and starts jobs from a Python
session: `hvd.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hvd import _native
from hvd.basics import (
    algorithm_table,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    metrics,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.progress import tqdm

if TYPE_CHECKING:
    from hvd.run_function import run

__version__: str = _native.version()


def __getattr__(name: str) -> Any:
    """`run` brings along what starting processes needs, which the ranks of a job do without."""
    if name != "run":
        raise AttributeError(f"module 'hvd' has no attribute {name!r}")
    from hvd.run_function import run

    return run


__all__ = [
    "ProcessSet",
    "__version__",
    "add_process_set",
    "algorithm_table",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "run",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "tqdm",
]
