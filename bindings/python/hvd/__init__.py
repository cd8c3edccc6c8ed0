"""hvd: collective communication for training.

Use the package of your framework, which has everything that scripts need::

    import hvd.torch as hvd

This one says where a process stands in its job, for programs that use no framework, and starts jobs from a Python
session: `hvd.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hvd import _native
from hvd import basics as _basics
from hvd.basics import *  # noqa: F403
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
    "global_process_set",
    "remove_process_set",
    "run",
    "tqdm",
]
__all__ += _basics.__all__
