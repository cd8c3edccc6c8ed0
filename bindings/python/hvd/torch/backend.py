"""How torch.distributed comes to its process groups of hvd: makes sure that both see the same job, and lets ranks find
each other where torch's own variables are missing but hvd knows the job. hvd_torch_autoload registers what is here.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist
from torch.distributed import Store
from torch.distributed.constants import default_pg_timeout

from hvd import _native, basics, torch_variables
from hvd import process_set as sets
from hvd.objects import broadcast_object
from hvd.process_set import ProcessSet, add_process_set, global_process_set
from hvd.torch.process_group import HvdProcessGroup

# Groups


def make_group(options: Any, _: object) -> HvdProcessGroup:
    """What torch calls on the members of a group; all ranks are, of the default group."""
    ranks = list(options.global_ranks_in_group)
    if not basics.is_initialized():
        _join(options.group_rank, options.group_size, options.store)
    if not ranks:
        _require_same_job(options.group_rank, options.group_size)
        ranks = list(range(options.group_size))
        _forget_layouts()
    process_set = _known_set(ranks)
    if process_set is None:
        raise ValueError(
            f"a group of the ranks {ranks} of {basics.size()} cannot be made by its members alone: hvd makes it with "
            'all ranks of the job. That needs PyTorch 2.13 and "hvd" as the backend of the default group; or else '
            "hvd.add_process_set of these ranks before, on all ranks"
        )
    return HvdProcessGroup(process_set, options.group_id, options.store, options.timeout, _set_of)


def _forget_layouts() -> None:
    """PyTorch (2.13) caches layouts of DTensors together with this process's coordinates in their mesh, and reuses them
    for a later mesh of the same shape, in which an elastic job may have given the process other coordinates."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import debug

    clear = getattr(debug, "_clear_sharding_prop_cache", None)  # not in older PyTorch, nor documented
    if clear is not None:
        clear()


def _set_of(ranks: Sequence[int], group_name: str) -> ProcessSet:
    """The process set of a new group. On all ranks of the job, unless torch was told to synchronise locally."""
    if list(ranks) != sorted(ranks):
        raise ValueError(f"a group of the ranks {list(ranks)}: hvd orders the ranks of a group; use sort_ranks=True")
    known = _known_set(ranks)
    if known is not None:
        return known
    if not group_name.isdigit():  # torch counts the groups that all ranks make; the others get a hash
        raise ValueError(
            f"use_local_synchronization=True for the ranks {list(ranks)}: hvd makes a process set with all ranks of "
            "the job; leave it out, or call hvd.add_process_set of these ranks before, on all ranks"
        )
    return add_process_set(ranks)


def _known_set(ranks: Sequence[int]) -> ProcessSet | None:
    if list(ranks) == global_process_set.ranks:
        return global_process_set
    return next((one for one in sets._registered if one.ranks == list(ranks)), None)


def _join(rank: int, size: int, store: Store) -> None:
    """Joins the job that torch describes: the launcher's, or else one whose rendezvous is torch's store."""
    try:
        launcher, launched_rank, launched_size, _ = _native.launch()
    except ValueError:  # variables that hvd cannot make sense of, but torch can
        launcher, launched_rank, launched_size = "none", 0, 1
    if launcher != "none" or size == 1:
        if (launched_rank, launched_size) != (rank, size):
            raise _other_job(rank, size, launched_rank, launched_size)
        basics.init()
        basics.leave_standby()
        return

    def carried(info: bytes | None) -> bytes:
        if info is None:
            return store.get("hvd")
        store.set("hvd", info)  # type: ignore[arg-type]
        return info

    _native.init_with(rank, size, 0, carried)
    if rank == 0:
        store.delete_key("hvd")


def _require_same_job(rank: int, size: int) -> None:
    if (basics.rank(), basics.size()) != (rank, size):
        raise _other_job(rank, size, basics.rank(), basics.size())


def _other_job(rank: int, size: int, this_rank: int, own_size: int) -> ValueError:
    return ValueError(
        f"torch.distributed takes this process for rank {rank} of {size}, hvd for rank {this_rank} of {own_size}: "
        "leave rank and world_size to the launcher, and call hvd.init() after init_process_group, if at all"
    )


# Rendezvous


def rendezvous(
    url: str, timeout: datetime.timedelta = default_pg_timeout, **_: object
) -> Iterator[tuple[Store, int, int]]:
    """The job as hvd knows it, with a store that rank 0 runs at a port which hvd tells the others."""
    basics.init()
    basics.leave_standby()
    rank, size = basics.rank(), basics.size()
    query = parse_qs(urlparse(url).query)
    asked = int(query.get("rank", [rank])[0]), int(query.get("world_size", [size])[0])
    if asked != (rank, size):
        raise _other_job(*asked, rank, size)
    store = dist.TCPStore("127.0.0.1", 0, None, True, timeout, wait_for_workers=False) if rank == 0 else None
    host, port = broadcast_object((torch_variables.local_address(), store.port) if store else None, 0)
    if store is None:
        store = dist.TCPStore(host, port, None, False, timeout, wait_for_workers=False)
    else:
        _served.append(store)
    yield store, rank, size
    raise RuntimeError("a process group that hvd has started is not started again: start the job again")


_served: list[Store] = []  # rank 0's, which others may ask when it has left its group


def is_launched() -> bool:
    """Whether hvd knows a job of which torch's variables do not tell."""
    return basics.is_initialized() or "HVD_RANK" in os.environ or _native.launch()[0] != "none"
