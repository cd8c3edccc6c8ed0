"""hvd for PyTorch. One import, under the name that scripts use:

>>> import hvd.torch as hvd
>>> hvd.init()
>>> optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
>>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)
"""

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
from hvd.exceptions import HorovodInternalError
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum
from hvd.torch.collectives import (
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    barrier,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    join,
    reducescatter_async,
)
from hvd.torch.compression import Compression
from hvd.torch.differentiable import allgather, allreduce, alltoall, broadcast, grouped_allreduce, reducescatter
from hvd.torch.functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from hvd.torch.handles import poll, synchronize
from hvd.torch.memory import arena_usage, bucket_views, empty, empty_like
from hvd.torch.optimizer import DistributedOptimizer

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "algorithm_table",
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
    "cross_rank",
    "cross_size",
    "empty",
    "empty_like",
    "global_process_set",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "metrics",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
