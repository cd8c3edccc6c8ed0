"""hvd for JAX. One import:

>>> import hvd.jax as hvd
>>> hvd.init()
>>> params = hvd.broadcast_tree(params)
>>> optimizer = hvd.DistributedGradientTransformation(optax.adam(1e-3))

Each process has arrays of its own: `jax.distributed` is not needed.
"""

from hvd import basics as _basics
from hvd import checkpoint
from hvd.basics import *  # noqa: F403
from hvd.collectives import barrier
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from hvd.jax import elastic
from hvd.jax.collectives import (
    allgather,
    allreduce,
    allreduce_tree,
    alltoall,
    broadcast,
    broadcast_tree,
    grouped_allreduce,
    reducescatter,
    remove_process_set,
)
from hvd.jax.compression import Compression
from hvd.jax.leaving import shutdown
from hvd.jax.loss import data_parallel
from hvd.jax.optimizer import DistributedGradientTransformation
from hvd.jax.ordering import jit
from hvd.objects import allgather_object, broadcast_object
from hvd.process_set import ProcessSet, add_process_set, global_process_set
from hvd.progress import tqdm
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedGradientTransformation",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_tree",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_tree",
    "checkpoint",
    "data_parallel",
    "elastic",
    "global_process_set",
    "grouped_allreduce",
    "jit",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "tqdm",
]
__all__ += [name for name in _basics.__all__ if name != "shutdown"]
