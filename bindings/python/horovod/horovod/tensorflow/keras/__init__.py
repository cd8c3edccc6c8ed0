"""hvd for tf.keras under Horovod's name: everything of `hvd.keras`. Of a DistributedOptimizer with
`backward_passes_per_step`, `iterations` counts every pass."""

from __future__ import annotations

import functools
from typing import Any

import hvd.keras as _hvd
from horovod.common import basics as _basics
from horovod.keras import functions as _functions
from horovod.tensorflow.keras import callbacks as _callbacks
from hvd.keras import *  # noqa: F403
from hvd.keras import __all__ as __all__
from hvd.keras.optimizer import counting_passes as _counting_passes

callbacks = _callbacks  # type: ignore[misc]
init = _basics.init
allgather = _functions.allgather
allreduce = _functions.allreduce
broadcast = _functions.broadcast
reducescatter = _functions.reducescatter


@functools.wraps(_hvd.DistributedOptimizer)  # type: ignore[no-redef]
def DistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
    return _counting_passes(_hvd.DistributedOptimizer(*args, **kwargs))


@functools.wraps(_hvd.PartialDistributedOptimizer)  # type: ignore[no-redef]
def PartialDistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
    return _counting_passes(_hvd.PartialDistributedOptimizer(*args, **kwargs))
