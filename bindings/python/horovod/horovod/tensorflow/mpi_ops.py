"""The collectives of `hvd.tensorflow`, also under the private names that scripts use, and what differs from Horovod's:

- `reducescatter` and its kin know Average and Sum only. hvd has the other operations, too.
- While ranks have joined, other collectives than allreduce fail (HVD_JOIN_SCOPE); in hvd those go on that can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow as tf

import hvd.tensorflow as _hvd
from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.refusals import averages_and_sums_only as _averages_and_sums_only
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from hvd.reduce_op import resolve_op as handle_average_backwards_compatibility
from hvd.tensorflow import (
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
)

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]


_basics = _HorovodBasics()
init = _basics.init


def _refuse(text: str) -> NoReturn:
    raise tf.errors.AbortedError(None, None, f"hvd: {text}")


reducescatter = _averages_and_sums_only(_hvd.reducescatter, _refuse)
grouped_reducescatter = _averages_and_sums_only(_hvd.grouped_reducescatter, _refuse)


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    return _hvd.allreduce(
        tensor,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
    )


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    return _hvd.grouped_allreduce(
        tensors,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
        name=name,
    )


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    return reducescatter(
        tensor,
        op=op,
        name=name,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    return grouped_reducescatter(
        tensors,
        op=op,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )


def _normalize_name(name: str) -> str:
    """With an underscore for whatever is neither a letter nor a digit."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
