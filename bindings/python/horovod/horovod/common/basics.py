"""Joining and leaving the job, and where this process stands in it; see `hvd.basics`."""

from __future__ import annotations

import functools
from typing import Any

import hvd.basics
from hvd import process_set, reduce_op


@functools.wraps(hvd.basics.init)
def init(*args: Any, **kwargs: Any) -> None:
    hvd.basics.init_with({"HVD_JOIN_SCOPE": "allreduce"}, *args, **kwargs)


class HorovodBasics:
    """The functions of `hvd.basics` as methods, and the reduce operations as attributes.

    Horovod makes one for each framework, and gives it the framework's own library. hvd has one runtime for all, and
    nothing to be told.
    """

    init = staticmethod(init)

    def __init__(self, *library: str) -> None:
        del library

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """The ranks of all process sets, by number; other packages ask for them by this name."""
        return process_set.registered()

    def _process_set_size(self, process_set_id: int) -> int:
        """The number of ranks in the process set of this number; ValueError if there is none."""
        process_set.require_registered(process_set_id)
        return len(process_set.registered()[process_set_id])

    def _process_set_rank(self, process_set_id: int) -> int:
        """This process's number within the process set; ValueError if it is not a member, or there is no such set."""
        process_set.require_registered(process_set_id)
        ranks = process_set.registered()[process_set_id]
        if hvd.basics.rank() not in ranks:
            raise ValueError(f"rank {hvd.basics.rank()} is not in process set {process_set_id}, which has {ranks}")
        return ranks.index(hvd.basics.rank())

    def __getattr__(self, name: str) -> Any:
        for module in (hvd.basics, reduce_op):
            if not name.startswith("_") and hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"HorovodBasics has no attribute {name!r}")
