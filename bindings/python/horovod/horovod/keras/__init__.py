"""hvd for Keras under Horovod's name: everything of `hvd.keras`. The order of arguments of DistributedOptimizer and
BestModelCheckpoint is not that of `horovod.tensorflow.keras`. Of optimizers with `backward_passes_per_step`,
`iterations` counts every pass."""

from __future__ import annotations

import functools as _functools
from collections.abc import Sequence
from typing import Any

import hvd.keras as _hvd
from horovod.common import basics as _basics
from horovod.keras import callbacks as _callbacks
from horovod.keras import functions as _functions
from hvd.keras import *  # noqa: F403
from hvd.keras.optimizer import counting_passes as _counting_passes

__all__ = list(_hvd.__all__)

callbacks = _callbacks  # type: ignore[misc]
init = _basics.init
allgather = _functions.allgather
allreduce = _functions.allreduce
broadcast = _functions.broadcast
reducescatter = _functions.reducescatter


def DistributedOptimizer(  # type: ignore[no-redef]
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = _hvd.Average,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    **further: Any,
) -> Any:
    """As `hvd.keras.DistributedOptimizer`, whose further arguments it takes by keyword."""
    return _counting_passes(
        _hvd.DistributedOptimizer(
            optimizer,
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            num_groups=num_groups,
            groups=groups,
            **further,
        )
    )


@_functools.wraps(_hvd.PartialDistributedOptimizer)  # type: ignore[no-redef]
def PartialDistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
    return _counting_passes(_hvd.PartialDistributedOptimizer(*args, **kwargs))
