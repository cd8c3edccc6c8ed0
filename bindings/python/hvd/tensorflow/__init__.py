"""hvd for TensorFlow. One import, under the name that scripts use:

>>> import hvd.tensorflow as hvd
>>> hvd.init()
>>> tape = hvd.DistributedGradientTape(tape)
>>> hvd.broadcast_variables(model.variables, root_rank=0)

Keras models and optimizers: `hvd.tensorflow.keras`, which is `hvd.keras`.
"""

import importlib
from typing import TYPE_CHECKING

from hvd import basics as _basics
from hvd import checkpoint
from hvd.basics import *  # noqa: F403
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum
from hvd.tensorflow import derivatives as derivatives  # registers them
from hvd.tensorflow import elastic
from hvd.tensorflow.aggregation import LocalGradientAggregationHelper
from hvd.tensorflow.collectives import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from hvd.tensorflow.compression import Compression
from hvd.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from hvd.tensorflow.optimizer import DistributedOptimizer
from hvd.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape

if TYPE_CHECKING:
    from hvd.tensorflow import ps as ps
    from hvd.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "LocalGradientAggregationHelper",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "checkpoint",
    "elastic",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "size_op",
]
__all__ += _basics.__all__


def __getattr__(name: str) -> object:
    if name in ("data", "ps"):  # needed by few programs
        return importlib.import_module(f"hvd.tensorflow.{name}")
    # Needs Keras, which takes seconds to import, and which programs without it need not have.
    if name == "SyncBatchNormalization":
        from hvd.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
