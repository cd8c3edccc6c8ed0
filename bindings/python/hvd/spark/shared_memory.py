"""Memory that a feeding task and its rank share if they are on one host: slots that hold a block each.

The task creates it as an anonymous file (memfd), and waits until the rank has opened it through the task's entry in
/proc. Nothing is left behind, whichever process is killed, at whatever time. The memory itself holds no locks or flags:
over their connection the task tells the rank which slot it has filled, and the rank tells the task which it has read.
"""

from __future__ import annotations

import mmap
import os
import secrets
from typing import Union

SLOT_BYTES = 5 << 18  # a block of 1 MB, and the part by which it exceeds that
SLOTS = 64  # as many blocks as a rank buffers; pages that were never written take no memory

Offer = dict[str, Union[int, str]]  # what the task tells the rank, as JSON


class Slots:
    def __init__(self, descriptor: int) -> None:
        self._memory = memoryview(mmap.mmap(descriptor, SLOTS * SLOT_BYTES))

    def __getitem__(self, slot: int) -> memoryview:
        return self._memory[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]


class Offered:
    """In a task: memory that its rank can open until `close()`.

    Attributes:
        offer: for the rank; None if the system has no memfd, or forbids it.
        slots: the memory; valid after `close()`, too.
    """

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self.slots: Slots | None = None
        self._descriptor = -1
        if not hasattr(os, "memfd_create"):
            return
        name = f"hvd-feed-{secrets.token_hex(16)}"
        try:
            self._descriptor = os.memfd_create(name)
            os.ftruncate(self._descriptor, SLOTS * SLOT_BYTES)
            self.slots = Slots(self._descriptor)
            self.offer = {"pid": os.getpid(), "descriptor": self._descriptor, "name": name}
        except OSError:  # forbidden in some containers
            self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def opened(offer: Offer | None) -> Slots | None:
    """In a rank: the memory that a task offers. None if the task is on another host, or not visible from here."""
    if offer is None:
        return None
    path = f"/proc/{int(offer['pid'])}/fd/{int(offer['descriptor'])}"
    try:
        # The random name shows that this process is the task, not one with the same pid on another host or container.
        if not os.readlink(path).startswith(f"/memfd:{offer['name']}"):
            return None
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return Slots(descriptor)
    except OSError:  # no address space is left
        return None
    finally:
        os.close(descriptor)
