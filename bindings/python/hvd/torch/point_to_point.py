"""Messages from one rank of a torch process group to another one.

hvd has collectives only, so these go through torch's store: correct, in order, and slow, since rank 0's store holds
every byte on its way. For small things between two ranks; what moves much belongs into a collective.
"""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict

import torch
import torch.distributed as dist
from torch.distributed import Store

_PIECE = 4 << 20  # bytes; a store takes 8 MiB at most under one key


class Mailbox:
    """What a rank sends to, and gets from, the others of its group. Numbered per pair and tag, so order is kept."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store, self._rank = store, rank
        self._receiving: Store | None = None
        self._sent: defaultdict[tuple[int, int], itertools.count[int]] = defaultdict(itertools.count)
        self._received: defaultdict[tuple[int, int], itertools.count[int]] = defaultdict(itertools.count)

    def send(self, data: torch.Tensor, destination: int, tag: int) -> None:
        """Leaves the bytes of a flat uint8 tensor in the store."""
        number = next(self._sent[destination, tag])
        content = data.numpy().tobytes()
        for start in range(0, max(1, len(content)), _PIECE):
            key = _key(self._rank, destination, tag, number, start)
            self._store.set(key, content[start : start + _PIECE])  # type: ignore[arg-type]

    def expect(self, data: torch.Tensor, source: int, tag: int) -> Arrival:
        """The next message from there, which is to fill a flat uint8 tensor."""
        if self._receiving is None:
            # A connection of its own: whoever waits in the store holds up everybody else on the same one.
            self._receiving = self._store.clone()  # type: ignore[attr-defined]
        number = next(self._received[source, tag])
        starts = range(0, max(1, data.numel()), _PIECE)
        return Arrival(self._receiving, [_key(source, self._rank, tag, number, start) for start in starts], data)


def _key(source: int, destination: int, tag: int, number: int, start: int) -> str:
    return f"{source}-{destination}/{tag}/{number}/{start}"


class Arrival:
    """A message that is on its way; waits as the runtime's own operations do."""

    device = -1

    def __init__(self, store: Store, keys: list[str], data: torch.Tensor) -> None:
        self._store, self._keys, self._data = store, keys, data

    def poll(self) -> bool:
        return not self._keys or self._store.check(self._keys)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        limit = datetime.timedelta(seconds=1e9 if timeout_seconds is None else max(timeout_seconds, 0.001))
        try:
            self._store.wait(self._keys, limit)
        except dist.DistStoreError:
            return False
        return True

    def take(self) -> None:
        """Fills the tensor. ValueError if the message has another length."""
        content = b"".join(self._store.get(key) for key in self._keys)
        for key in self._keys:
            self._store.delete_key(key)
        if len(content) != self._data.numel():
            raise ValueError(f"a message of {len(content)} bytes, received into {self._data.numel()} bytes")
        if content:
            self._data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self._keys = []
