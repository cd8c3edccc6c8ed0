"""How rows get from Spark's partitions into ranks while they are made.

A rank listens; a Spark job of its own, beside the one whose tasks are the ranks, sends each partition to one rank, over
a connection of its own. It finds the rank by address, wherever Spark runs the task. Rows travel in *blocks*, pickled or
in Arrow's format, numbered in each partition: a task that is tried again learns how many blocks the rank has, computes
them anew without sending them, and goes on behind them. A checksum over all of them shows whether they are the same
rows.

If the task and the rank are on one host, blocks go through shared memory (`shared_memory`), and only their descriptions
over the connection.

A rank reads a connection only while it has room (`Receiver.capacity`), so that a rank that is slow slows its tasks
down.

The driver (`Coordinator`) knows where the ranks listen, and tells them when an epoch begins and how many partitions it
has. A rank has reached its end when each of its own partitions is complete.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

from hvd.exceptions import HorovodInternalError
from hvd.spark import channel, shared_memory

_WANT, _START, _FAILED, _CLOSE, _USED = range(5)  # between a rank and the driver
_BEGIN, _RESUME, _BLOCK, _FILLED, _READ, _END, _DONE, _RESULTS = range(5, 13)  # between a task and a rank

_SUMMED_BYTES = 4096
_MOST_SPARES = 8
_SPARE_BYTES = 1 << 20  # at least: smaller ones are cheap
_BEGINNING_S = 60.0  # that a task waits for the driver's message to the rank that the epoch begins
_SILENT_ATTEMPT_S = 600.0  # that another attempt of a task waits for an earlier one that is still connected


class Link(NamedTuple):
    """What a feeding task has to know; travels in its closure."""

    addresses: list[channel.Address]  # by rank
    key: bytes
    epoch: int


# A block: each part holds rows.
Parts = Sequence[Union[bytes, memoryview]]
# Returns memory of so many bytes for the next part of a block; writing the part there saves a copy.
Room = Callable[[int], memoryview]

_NUMBER = struct.Struct(">I")


def _lengths(parts: Parts) -> bytes:
    return struct.pack(f">{len(parts) + 1}I", len(parts), *map(len, parts))


def _split(view: memoryview, lengths: memoryview) -> list[memoryview]:
    """Consecutive parts of these lengths."""
    ends = list(itertools.accumulate(struct.unpack(f">{len(lengths) // _NUMBER.size}I", lengths)))
    return [view[start:end] for start, end in zip([0, *ends], ends)]


def _parts_of(data: bytearray) -> list[memoryview]:
    """The parts of a frame, which holds their number, their lengths, and their bytes."""
    view = memoryview(data)
    (count,) = _NUMBER.unpack_from(view)
    start = _NUMBER.size * (count + 1)
    return _split(view[start:], view[_NUMBER.size : start])


# ---- in a feeding task


def send_partition(link: Link, partition: int, blocks: Callable[[Room], Iterator[Parts]]) -> int:
    """Returns when the rank has all blocks of this partition; how many they are.

    Args:
        blocks: called with a `Room`, yields the blocks. It may write the parts of a block into memory from there, all
            of them or none. A block's memory may be reused once the next block is requested.

    Raises:
        ConnectionError: the rank was lost.
        ValueError: the rank has other blocks, of an earlier attempt at this partition.
    """
    rank = partition % len(link.addresses)
    connection = channel.connect(link.addresses[rank], link.key, f"rank {rank}")
    offered = shared_memory.Offered()
    try:
        begin = {"epoch": link.epoch, "partition": partition, "memory": offered.offer}
        connection.send(_BEGIN, json.dumps(begin).encode())
        has = json.loads(connection.receive().data)
        sender = _Sender(connection, offered.slots if has["shares"] else None)
        offered.close()
        count = _send_behind(sender, blocks(sender.room), has, partition)
        sender.end()
        return count
    except ConnectionError as error:
        raise ConnectionError(f"rank {rank} was lost while it was fed partition {partition}: {error}") from None
    finally:
        offered.close()
        connection.close()


class _Sender:
    """Sends blocks to a rank: in slots of shared memory; in frames if no memory is shared or the block exceeds a
    slot."""

    def __init__(self, connection: channel.Connection, slots: shared_memory.Slots | None) -> None:
        self._connection = connection
        self._slots = slots
        self._free = list(range(shared_memory.SLOTS))  # last in, first out: that slot is still in the CPU's caches
        self._slot = -1  # being filled; -1: none
        self._view = memoryview(bytearray(shared_memory.SLOT_BYTES if slots is None else 0))
        self._end = 0  # of the parts in it

    def room(self, size: int) -> memoryview:
        self._take_slot()
        start, self._end = self._end, self._end + size
        return self._view[start : self._end] if self._end <= len(self._view) else memoryview(bytearray(size))

    def _take_slot(self) -> None:
        if self._slots is None or self._slot >= 0:
            return
        while not self._free or self._connection.has_input():
            self._free.append(self._connection.receive().number)
        self._slot = self._free.pop()
        self._view = self._slots[self._slot]

    def send(self, block: Parts, checksum: int) -> None:
        size = sum(map(len, block))
        if self._slots is None or size > shared_memory.SLOT_BYTES:
            self._connection.send(_BLOCK, _lengths(block), *block, number=checksum)
        else:
            if self._end == 0:
                for part in block:
                    self.room(len(part))[:] = part
            self._connection.send(_FILLED, _NUMBER.pack(self._slot), _lengths(block), number=checksum)
            self._slot = -1
        self._end = 0

    def skip(self) -> None:
        """Drops the block: the rank has it already."""
        self._end = 0

    def end(self) -> None:
        """Returns when the rank has all blocks."""
        self._connection.send(_END)
        while self._connection.receive().kind != _DONE:
            pass


def _send_behind(sender: _Sender, blocks: Iterator[Parts], has: dict[str, Any], partition: int) -> int:
    if has["done"]:
        return int(has["blocks"])
    count = checksum = 0
    for block in blocks:
        count += 1
        for part in block:
            checksum = _checksum(part, checksum)
        if count > has["blocks"]:
            sender.send(block, checksum)
        elif count == has["blocks"] and checksum != has["checksum"]:
            break
        else:
            sender.skip()
    if count < has["blocks"] or (count == has["blocks"] and checksum != has["checksum"]):
        raise ValueError(
            f"partition {partition} was computed again, and its rows are not those that were fed before: feed data "
            "that computes equally each time (sort it, give random functions a seed), or checkpoint it before"
        )
    return count


def _checksum(part: bytes | memoryview, before: int) -> int:
    """Of both ends and the length of what is long: rows in another order, or made at random, differ there, and a sum
    over all bytes would take a third of a task's time."""
    if len(part) <= 2 * _SUMMED_BYTES:
        return zlib.crc32(part, before)
    before = zlib.crc32(part[-_SUMMED_BYTES:], zlib.crc32(part[:_SUMMED_BYTES], before))
    return zlib.crc32(_NUMBER.pack(len(part)), before)


def infer_partition(link: Link, partition: int, blocks: Iterator[Parts]) -> Iterator[bytes]:
    """Sends blocks, and yields pickled lists of results, in the order of the rows, while they come."""
    rank = partition % len(link.addresses)
    connection = channel.connect(link.addresses[rank], link.key, f"rank {rank}")
    failures: list[BaseException] = []

    def send() -> None:
        try:
            for block in blocks:
                connection.send(_BLOCK, _lengths(block), *block)
            connection.send(_END)
        except BaseException as error:  # of the rows, or of the connection, which the receiver has, too
            failures.append(error)
            connection.close()

    try:
        connection.send(_BEGIN, json.dumps({"epoch": -1, "partition": partition}).encode())
        connection.receive()
        sender = threading.Thread(target=send, name="hvd-rows", daemon=True)
        sender.start()
        while (frame := connection.receive()).kind == _RESULTS:
            yield bytes(frame.data)
        sender.join()
    except OSError as error:
        if failures and not isinstance(failures[0], ConnectionError):
            raise failures[0] from None
        raise ConnectionError(f"rank {rank} was lost while it was fed partition {partition}: {error}") from None
    finally:
        connection.close()


# ---- in a rank


class Block(NamedTuple):
    parts: list[memoryview]
    size: int
    asker: Asker | None = None  # who waits for results, one for each row
    data: bytearray | None = None  # the frame that the parts belong to
    is_read: Callable[[], None] | None = None  # of parts in shared memory: called when they are no longer needed


class Asker:
    """A task that waits for the results of the rows it has sent."""

    def __init__(self, connection: channel.Connection) -> None:
        self._connection = connection
        self._blocks = 0  # sent, and not answered in whole
        self._has_all = False
        self._changed = threading.Condition()

    def expect(self) -> None:
        with self._changed:
            self._blocks += 1

    def answer(self, results: bytes, is_whole_block: bool) -> None:
        with contextlib.suppress(OSError):  # a task that was lost asks again
            self._connection.send(_RESULTS, results)
        if is_whole_block:
            with self._changed:
                self._blocks -= 1
                self._changed.notify_all()

    def wait_for_all(self, is_closed: Callable[[], bool]) -> None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._blocks == 0, timeout=1):
                if is_closed():
                    raise ConnectionError("the rank has ended")


@dataclass
class _Progress:
    """What the rank has of a partition."""

    blocks: int = 0
    checksum: int = 0
    done: bool = False
    is_fed: bool = False  # by a task that is connected now


class FeedError(HorovodInternalError):
    """The rows do not come any more: the Spark job that makes them has failed, or the driver or another rank is gone.
    In an elastic job the epoch begins anew, as after other failed operations."""


class Receiver:
    """Takes blocks from feeding tasks; one thread of the rank takes them out."""

    capacity = 64 << 20  # bytes of blocks that wait to be taken

    def __init__(self, key: bytes) -> None:
        self._changed = threading.Condition()
        self._epoch = -1
        self._partitions: dict[int, _Progress] = {}
        self._blocks: deque[Block] = deque()
        self._bytes = 0
        self._spares: list[bytearray] = []
        self._drops = False  # nobody takes the rest of this epoch
        self.error: str | None = None
        self._is_closed = False  # no further epoch begins
        self._is_shut = False
        self._used = -1  # the last epoch that `wait_for_use` has returned
        self._listener = channel.Listener(key, self._serve)
        self.port = self._listener.port

    def begin(self, epoch: int, own_partitions: range) -> None:
        with self._changed:
            self._epoch = epoch
            self._partitions = {partition: _Progress() for partition in own_partitions}
            self._drops = False
            self.error = None
            self._changed.notify_all()

    def fail(self, error: str) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def end(self) -> None:
        """No further epoch will begin."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def drop_the_rest(self, epoch: int) -> None:
        """Discards the blocks of this epoch that have come or are still to come. Does nothing if another has begun."""
        with self._changed:
            if epoch != self._epoch:
                return
            self._drops = True
            dropped = list(self._blocks)
            self._blocks.clear()
            self._bytes = 0
            self._changed.notify_all()
        for block in dropped:
            self.give_back(block)

    def take(self, epoch: int | None = None) -> Block | None:
        """The next block. None at the end of this epoch, or without an epoch, once none begins any more. FeedError if
        no block can come."""
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self.error or self._is_over(epoch))
            if self._blocks:
                block = self._blocks.popleft()
                self._bytes -= block.size
                self._changed.notify_all()
                return block
            if self._is_over(epoch):
                return None
            raise FeedError(self.error)

    def wait_for_use(self) -> int | None:
        """Called by the thread that takes blocks, once it has used all that it took. Waits until `take` would return,
        or until all blocks of the epoch have been used: returns the epoch then, once."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._blocks or self.error or self._is_closed or (self._used < self._epoch and self._has_all())
            )
            if self._blocks or self.error or self._used == self._epoch or not self._has_all():
                return None
            self._used = self._epoch
            return self._epoch

    def give_back(self, block: Block) -> None:
        """Its bytes are not needed any more. Memory that is used again need not be zeroed by the system."""
        if block.is_read is not None:
            block.is_read()
        elif block.data is not None and len(self._spares) < _MOST_SPARES and len(block.data) >= _SPARE_BYTES:
            block.parts.clear()  # a bytearray with exported views cannot be resized
            self._spares.append(block.data)

    def _spare(self) -> bytearray | None:
        try:
            return self._spares.pop()
        except IndexError:
            return None

    def is_complete(self) -> bool:
        """Whether all partitions of this epoch have come."""
        with self._changed:
            return self._has_all()

    def _has_all(self) -> bool:
        return all(one.done for one in self._partitions.values())

    def is_empty(self) -> bool:
        """Whether `take` would wait now."""
        with self._changed:
            return not self._blocks

    def _is_over(self, epoch: int | None) -> bool:
        if epoch is None:
            return self._is_closed
        return self._is_closed or (self._epoch == epoch and self._has_all())

    def close(self) -> None:
        self._is_shut = True
        self.end()
        self._listener.close()

    def _serve(self, connection: channel.Connection) -> None:
        begin = json.loads(connection.receive().data)
        if begin["epoch"] < 0:
            self._serve_asker(connection)
            return
        progress = self._claim(begin["epoch"], begin["partition"])
        if progress is None:
            return
        try:
            slots = shared_memory.opened(begin["memory"])
            has = {"blocks": progress.blocks, "checksum": progress.checksum, "done": progress.done}
            connection.send(_RESUME, json.dumps({**has, "shares": slots is not None}).encode())
            while (frame := connection.receive(self._spare() if slots is None else None)).kind != _END:
                self._put(_block_of(frame, slots, connection), begin["epoch"])
                progress.blocks += 1
                progress.checksum = frame.number
            # Before the rank may go on, and leave. A task that does not get it tries again, and sends no rows.
            connection.send(_DONE)
            progress.done = True
        finally:
            with self._changed:
                progress.is_fed = False
                self._changed.notify_all()

    def _claim(self, epoch: int, partition: int) -> _Progress | None:
        """Waits until the epoch has begun here, too, and for an earlier attempt that is still connected: it may come to
        its end (speculation), or be lost."""
        with self._changed:
            self._changed.wait_for(lambda: self._epoch >= epoch or self._is_closed, _BEGINNING_S)
            progress = self._partitions.get(partition) if epoch == self._epoch else None
            if progress is None:
                return None
            self._changed.wait_for(lambda: not progress.is_fed or self._is_closed, _SILENT_ATTEMPT_S)
            if progress.is_fed or self._is_closed:
                return None
            progress.is_fed = True
            return progress

    def _serve_asker(self, connection: channel.Connection) -> None:
        asker = Asker(connection)
        connection.send(_RESUME)
        while (frame := connection.receive()).kind == _BLOCK:
            asker.expect()
            self._put(Block(_parts_of(frame.data), len(frame.data), asker), None)
        asker.wait_for_all(lambda: self._is_shut)
        connection.send(_DONE)

    def _put(self, block: Block, epoch: int | None) -> None:
        """epoch: the block's; None: it belongs to none, and is not dropped."""

        def is_dropped() -> bool:
            return epoch is not None and (self._drops or epoch != self._epoch)

        with self._changed:
            # One block always fits, whatever its size.
            self._changed.wait_for(lambda: self._bytes < self.capacity or is_dropped() or self._is_closed)
            if not is_dropped():
                self._blocks.append(block)
                self._bytes += block.size
                self._changed.notify_all()
                return
        self.give_back(block)


def _block_of(frame: channel.Frame, slots: shared_memory.Slots | None, connection: channel.Connection) -> Block:
    if frame.kind == _BLOCK:
        return Block(_parts_of(frame.data), len(frame.data), data=frame.data)
    assert slots is not None
    (slot,) = _NUMBER.unpack_from(frame.data)
    parts = _split(slots[slot], memoryview(frame.data)[2 * _NUMBER.size :])

    def is_read() -> None:
        with contextlib.suppress(OSError):  # the task has ended
            connection.send(_READ, number=slot)

    return Block(parts, sum(map(len, parts)), is_read=is_read)


class Inlet:
    """A rank's side of a feed: its receiver, and its connection to the driver."""

    def __init__(self, address: channel.Address, key: bytes) -> None:
        self.receiver = Receiver(key)
        self._driver = channel.connect(address, key, "the driver")
        self._started: deque[int] = deque()
        self._size = 1
        self._rank = 0
        self.is_closed = False
        self._is_gone = False  # the driver
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, name="hvd-feed", daemon=True).start()
        _open.add(self)

    def ask(self, rank: int, size: int) -> None:
        """Tells the driver where this rank listens, and that it waits for an epoch."""
        self._rank, self._size = rank, size
        if self._is_gone:
            raise FeedError("the driver is gone, or has ended the feed")
        self.receiver.error = None
        place = {"rank": rank, "size": size, "host": self._driver.local_host, "port": self.receiver.port}
        try:
            self._driver.send(_WANT, json.dumps(place).encode())
        except OSError as error:
            raise FeedError(f"the driver is gone: {error}") from None

    def next_epoch(self) -> int:
        """Waits for its start; FeedError if it cannot start."""
        with self._changed:
            self._changed.wait_for(lambda: self._started or self.receiver.error)
            if not self._started:
                raise FeedError(self.receiver.error)
            return self._started.popleft()

    def tell_used(self) -> None:
        """Called once all rows taken so far have been used: tells the driver when that was a whole epoch. Waits until
        there is a block to take, or none will come."""
        while (epoch := self.receiver.wait_for_use()) is not None:
            with contextlib.suppress(OSError):  # `take` will say that the driver is gone
                self._driver.send(_USED, number=epoch)

    def _listen(self) -> None:
        try:
            while (frame := self._driver.receive()).kind != _CLOSE:
                if frame.kind == _FAILED:
                    self.receiver.fail(frame.data.decode())
                else:
                    start = json.loads(frame.data)
                    self.receiver.begin(start["epoch"], range(self._rank, start["partitions"], self._size))
                    self._started.append(start["epoch"])
                with self._changed:
                    self._changed.notify_all()
            self.receiver.end()
        except OSError:
            self._is_gone = True
            self.receiver.fail("the driver is gone, or has ended the feed")
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        self.is_closed = True
        _open.discard(self)
        if self.receiver.is_complete():
            with contextlib.suppress(OSError):
                self._driver.send(_CLOSE)
        self._driver.close()
        self.receiver.close()


_open: weakref.WeakSet[Inlet] = weakref.WeakSet()


def close_all() -> None:
    """In a rank that leaves its job: Spark gives its process to other tasks."""
    for inlet in list(_open):
        inlet.close()


# ---- on the driver


class Coordinator:
    """Knows where the ranks of a job listen, and starts epochs.

    Args:
        host: the driver's address as the executors know it.
        wanted: called in a thread once all ranks of a job wait for an epoch.
        left: called when a rank has gone before it had all its rows.
    """

    def __init__(self, host: str, wanted: Callable[[], None], left: Callable[[], None]) -> None:
        self.key = channel.new_key()
        self._wanted = wanted
        self._left = left
        self._changed = threading.Condition()
        self._waiting: dict[int, tuple[dict[str, Any], channel.Connection]] = {}  # by rank
        self._addresses: list[channel.Address] = []
        self._connections: list[channel.Connection] = []
        self._users: dict[int, set[channel.Connection]] = {}  # by epoch: ranks that have used all of their rows
        self._epoch = 0
        self._listener = channel.Listener(self.key, self._serve)
        self.address = channel.Address(host, self._listener.port)

    def wait_for_ranks(self, timeout_s: float) -> bool:
        """Until all ranks of a job have said where they listen."""
        with self._changed:
            return self._changed.wait_for(lambda: self._connections, timeout_s) != []

    def next_epoch(self) -> Link:
        """To the ranks, for an epoch that may begin."""
        with self._changed:
            self._epoch += 1
            return Link(list(self._addresses), self.key, self._epoch)

    def start(self, epoch: int, partitions: int) -> None:
        """Begins the epoch on all ranks."""
        self._tell(_START, json.dumps({"epoch": epoch, "partitions": partitions}).encode())

    def is_used(self, epoch: int) -> bool:
        """Whether all ranks have used all their rows of an epoch, as far as they say so (`Inlet.tell_used`)."""
        with self._changed:
            return len(self._users.get(epoch, ())) == len(self._addresses)

    def forget_ranks(self) -> None:
        """Others will take the place of those that have said where they listen."""
        with self._changed:
            self._connections = []

    def link(self) -> Link:
        """To ranks that are asked for results."""
        with self._changed:
            return Link(list(self._addresses), self.key, -1)

    def fail(self, error: str) -> None:
        self._tell(_FAILED, error.encode())

    def finish(self) -> None:
        """No further epoch begins."""
        self._tell(_CLOSE)

    def _tell(self, kind: int, data: bytes = b"") -> None:
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.send(kind, data)

    def close(self) -> None:
        self._listener.close()

    def _serve(self, connection: channel.Connection) -> None:
        has_all = False
        try:
            while not has_all:
                frame = connection.receive()
                has_all = frame.kind == _CLOSE
                if frame.kind == _USED:
                    with self._changed:
                        self._users.setdefault(frame.number, set()).add(connection)
                elif not has_all and self._all_wait(json.loads(frame.data), connection):
                    self._wanted()
        finally:
            with self._changed:
                was_one = connection in self._connections
                self._waiting = {rank: one for rank, one in self._waiting.items() if one[1] is not connection}
                self._connections = [one for one in self._connections if one is not connection]
            if was_one and not has_all:
                self.fail("a rank has left before it had all its rows")
                self._left()

    def _all_wait(self, place: dict[str, Any], connection: channel.Connection) -> bool:
        with self._changed:
            self._waiting = {rank: one for rank, one in self._waiting.items() if one[0]["size"] == place["size"]}
            self._waiting[place["rank"]] = place, connection
            if len(self._waiting) < place["size"]:
                return False
            by_rank = [self._waiting[rank] for rank in range(place["size"])]
            self._waiting = {}
            self._addresses = [channel.Address(one["host"], one["port"]) for one, _ in by_rank]
            self._connections = [each for _, each in by_rank]
            self._changed.notify_all()
            return True
