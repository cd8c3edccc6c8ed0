"""hvd for PyTorch. One import, under the name that scripts use:

>>> import hvd.torch as hvd
>>> hvd.init()
>>> optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
>>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)

It also makes hvd a backend of torch.distributed: init_process_group("hvd").
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import torch.distributed as _distributed

from hvd import basics as _basics
from hvd import checkpoint
from hvd.basics import *  # noqa: F403
from hvd.collectives import barrier, join
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from hvd.handles import poll, synchronize
from hvd.objects import allgather_object, broadcast_object
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.progress import tqdm
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum
from hvd.torch import compiled as compiled  # makes torch.ops.hvd
from hvd.torch import elastic
from hvd.torch.collectives import (
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    reducescatter_async,
)
from hvd.torch.compression import Compression
from hvd.torch.differentiable import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from hvd.torch.functions import broadcast_optimizer_state, broadcast_parameters
from hvd.torch.learning_rate import LinearScalingLR
from hvd.torch.memory import arena_usage, bucket_views, empty, empty_like
from hvd.torch.optimizer import DistributedOptimizer
from hvd.torch.sparse import sparse_allreduce_async
from hvd.torch.sync_batch_norm import SyncBatchNorm

if _distributed.is_available():
    import hvd_torch_autoload as _autoload
    from hvd.torch.ddp import ddp_hook as ddp_hook

    _autoload.register()

if _TYPE_CHECKING:
    from hvd.torch import ps


def __getattr__(name: str) -> _Any:
    if name != "ps":  # which brings NumPy along
        raise AttributeError(f"module 'hvd.torch' has no attribute {name!r}")
    import importlib

    return importlib.import_module("hvd.torch.ps")


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "LinearScalingLR",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "arena_usage",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "bucket_views",
    "checkpoint",
    "elastic",
    "empty",
    "empty_like",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "ps",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "sparse_allreduce_async",
    "synchronize",
    "tqdm",
]
__all__ += _basics.__all__
