"""The least time that anybody could need. Pure; times in microseconds."""

from __future__ import annotations

from .cases import MB, Place

LINK_GIGABITS = 1.0  # a second, in each direction, of every host in the lab

# Bytes that hvd's allreduce between two ranks moves, for each byte of the tensor and rank. A chunk is read and written
# into the shared window, read from both windows, and its sum is written: 3 reads, 2 writes. All of them count as long
# as the data fit into a cache. Beyond, chunks stay in the cache from the first copy to the last, and only the first
# read and the last write reach the memory.
BYTES_MOVED = {4 * MB: 5.0, 64 * MB: 2.0}
BYTES_OF_A_COPY = 2.0  # a read and a write


def copies_needed(size: int) -> float:
    """How many copies of the tensor take as long as moving those bytes; of the sizes in BYTES_MOVED."""
    return BYTES_MOVED[size] / BYTES_OF_A_COPY


def wire_time(place: Place, size: int) -> float:
    """2 (H - 1) / H * S / B: what each host must send, if every host sends as little as it can."""
    sent = 2 * (place.hosts - 1) / place.hosts * size
    return sent * 8 / (LINK_GIGABITS * 1e9) * 1e6


# A machine on which a rank copies fewer bytes than this from memory, in GB/s, while another one does so too, is bound
# by memory: only moving less would help there.
MEMORY_BOUND_GBPS = 8.0


def copied_gbps(size: int, copy_us: float) -> float:
    return size / copy_us / 1e3
