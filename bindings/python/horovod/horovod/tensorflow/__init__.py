"""hvd for TensorFlow under Horovod's name. Everything of `hvd.tensorflow`, which says what each function does; and
where Horovod refuses what hvd can do, and scripts may count on it, the same error (`horovod.tensorflow.mpi_ops`).

Names are looked up when they are used, since some import Keras.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import tensorflow as tf

import hvd.tensorflow as _hvd
from horovod.common.util import check_extension as check_extension
from horovod.common.util import gpu_available as gpu_available
from horovod.tensorflow import elastic as elastic
from horovod.tensorflow.mpi_ops import _allreduce as _allreduce
from horovod.tensorflow.mpi_ops import _grouped_allreduce as _grouped_allreduce
from horovod.tensorflow.mpi_ops import _grouped_reducescatter as _grouped_reducescatter
from horovod.tensorflow.mpi_ops import _reducescatter as _reducescatter
from horovod.tensorflow.mpi_ops import check_num_rank_power_of_2 as check_num_rank_power_of_2
from horovod.tensorflow.mpi_ops import grouped_reducescatter as grouped_reducescatter
from horovod.tensorflow.mpi_ops import handle_average_backwards_compatibility as handle_average_backwards_compatibility
from horovod.tensorflow.mpi_ops import init as init
from horovod.tensorflow.mpi_ops import reducescatter as reducescatter
from horovod.tensorflow.util import _cache as _cache
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly
from horovod.tensorflow.util import _make_subgraph as _make_subgraph
from horovod.tensorflow.util import refs_to_vars as refs_to_vars
from horovod.tensorflow.util import vars_to_refs as vars_to_refs
from hvd.tensorflow.optimizer import _DistributedOptimizer as _DistributedOptimizer

__all__ = list(_hvd.__all__)
_LegacyOptimizer = tf.compat.v1.train.Optimizer
_SUBMODULES = ("compression", "functions", "gradient_aggregation", "mpi_ops", "sync_batch_norm", "util")


@functools.wraps(_hvd.DistributedOptimizer)
def DistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
    made = _hvd.DistributedOptimizer(*args, **kwargs)
    if isinstance(made, _DistributedOptimizer):
        made._aggregation.counts_passes = True
        return made
    from hvd.keras.optimizer import counting_passes

    return counting_passes(made)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"horovod.tensorflow.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'horovod.tensorflow' has no attribute {name!r}")
    return getattr(_hvd, name)
