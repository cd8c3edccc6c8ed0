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

__version__: str = _native.version()

__all__ = [
    "__version__",
    "algorithm_table",
    "cross_rank",
    "cross_size",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "rank",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
