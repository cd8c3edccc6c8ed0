"""Rank 0's rendezvous info, by which the other ranks find it, in the key-value store of Ray's head.

Every process of the cluster is connected to that store: no actor has to be started for it, and none can die. The info
holds the job key, and is deleted once the ranks have joined. Anyone who may run code in the Ray cluster can read it;
they can run code in the ranks, too.
"""

from __future__ import annotations

import itertools
import time
import uuid

from ray.experimental import internal_kv

from hvd import rendezvous
from hvd.exceptions import InitError

_NAMESPACE = b"hvd"
_FAILED = "failed"
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.02  # between two queries for the info


def new_job() -> str:
    """A name for a job, under which its rendezvous info is found."""
    return uuid.uuid4().hex


def place_in(job: str, rank: int, size: int) -> rendezvous.Rendezvous:
    broadcast = _Broadcast(job, rank, size)
    return rendezvous.Rendezvous(rank, size, 0, broadcast, broadcast.forget)


class _Broadcast:
    """Broadcasts a job's rendezvous info, which differs each time that its ranks join."""

    def __init__(self, job: str, rank: int, size: int) -> None:
        self._job = job
        self._rank = rank
        self._size = size
        self._times = itertools.count()
        self._key = b""

    def __call__(self, info: bytes | None) -> bytes:
        self._key = _key(self._job, str(next(self._times)))
        if info is None:
            return self._await()
        internal_kv._internal_kv_put(self._key, info, namespace=_NAMESPACE)
        return info

    def _await(self) -> bytes:
        timeout_s = rendezvous.start_timeout_s()
        deadline = time.monotonic() + timeout_s
        pause = _SHORTEST_PAUSE_S
        while True:
            if info := internal_kv._internal_kv_get(self._key, namespace=_NAMESPACE):
                return info
            if reason := internal_kv._internal_kv_get(_key(self._job, _FAILED), namespace=_NAMESPACE):
                raise InitError(reason.decode())
            if time.monotonic() > deadline:
                raise InitError(
                    f"rank 0 of {self._size} has not come to hvd.init() within {timeout_s:g} s (HVD_START_TIMEOUT): "
                    f"rank {self._rank} has waited for it"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def forget(self) -> None:
        """Called once all have joined, and so have read the info."""
        if self._rank == 0:
            internal_kv._internal_kv_del(self._key, namespace=_NAMESPACE)


def fail(job: str, reason: str) -> None:
    """Makes ranks that wait for this job's info raise an InitError with the reason."""
    internal_kv._internal_kv_put(_key(job, _FAILED), reason.encode(), namespace=_NAMESPACE)


def forget(job: str) -> None:
    internal_kv._internal_kv_del(_key(job, ""), del_by_prefix=True, namespace=_NAMESPACE)


def _key(job: str, what: str) -> bytes:
    return f"{job}/{what}".encode()
