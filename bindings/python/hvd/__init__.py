"""hvd: collective communication for training.

Use the package of your framework, which has everything that scripts need::

    import hvd.torch as hvd

This one only says where a process stands in its job, for programs that use no framework.
"""

from hvd import _native
from hvd.basics import (
    algorithm_table,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    metrics,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set

__version__: str = _native.version()

__all__ = [
    "ProcessSet",
    "__version__",
    "add_process_set",
    "algorithm_table",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "rank",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
