"""hvd for MXNet 1.9. One import, under the name that scripts use:

>>> import hvd.mxnet as hvd
>>> hvd.init()
>>> hvd.broadcast_parameters(network.collect_params())
>>> trainer = hvd.DistributedTrainer(network.collect_params(), "sgd", {"learning_rate": 0.1})
"""

from hvd import basics as _basics
from hvd.basics import *  # noqa: F403
from hvd.collectives import barrier
from hvd.exceptions import HorovodInternalError
from hvd.mxnet.collectives import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)
from hvd.mxnet.compression import Compression
from hvd.mxnet.functions import broadcast_parameters
from hvd.mxnet.leaving import shutdown
from hvd.mxnet.optimizer import DistributedOptimizer
from hvd.mxnet.trainer import DistributedTrainer
from hvd.objects import allgather_object, broadcast_object
from hvd.process_set import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.progress import tqdm
from hvd.reduce_op import Adasum, Average, Max, Min, Product, Sum

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "tqdm",
]
__all__ += [name for name in _basics.__all__ if name not in __all__]
