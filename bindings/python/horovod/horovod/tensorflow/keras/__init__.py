"""hvd for tf.keras under Horovod's name: everything of `hvd.keras`. Of a DistributedOptimizer with
`backward_passes_per_step`, `iterations` counts every pass."""

from __future__ import annotations

import functools
from typing import Any

import hvd.keras as _hvd
from horovod.common import basics as _basics
from hvd.keras import *  # noqa: F403
from hvd.keras import __all__ as __all__
from hvd.keras.optimizer import counting_passes as _counting_passes

init = _basics.init


@functools.wraps(_hvd.DistributedOptimizer)  # type: ignore[no-redef]
def DistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
    return _counting_passes(_hvd.DistributedOptimizer(*args, **kwargs))


@functools.wraps(_hvd.PartialDistributedOptimizer)  # type: ignore[no-redef]
def PartialDistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
    return _counting_passes(_hvd.PartialDistributedOptimizer(*args, **kwargs))
