"""`hvd.spark.feed`: rows of an RDD or a DataFrame into the ranks while Spark makes them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from hvd import basics, collectives
from hvd.reduce_op import Max
from hvd.spark import blocks, channel, engine, feeding

Uneven = Literal["repeat", "stop", "join"]

_SLOT_S = 30.0  # that a feed waits for a slot
_MOST_REPEATED = 8  # batches that are kept for it


def feed(data: Any) -> Feed:
    """Gives ranks the rows of an RDD or a DataFrame, while a Spark job makes them; nothing is written before.

    Call it on the driver, and pass what it returns to the ranks, as an argument of `hvd.spark.run`, where it is a
    `RankFeed`::

        feed = hvd.spark.feed(frame.select("features", "label"))
        hvd.spark.run(train, args=(feed,), num_proc=4)

    Partition p goes to rank p modulo the number of ranks: there must be as many partitions as ranks, better several
    times as many. The job that makes the rows needs slots besides those of the ranks. Each epoch computes the data
    again: cache it, or not. A task that Spark tries again goes on behind the rows that its rank has; that needs
    partitions that are computed equally each time, which is checked.

    Raises:
        TypeError: it is neither an RDD nor a DataFrame.
        RuntimeError: there is no active session, or it is one of Spark Connect, whose driver is not here.
    """
    return Feed(blocks.Source(data), engine.classic("hvd.spark.feed"))


class Feed:
    """On the driver: runs the jobs that feed the ranks, one for each epoch. To the ranks it travels as a `RankFeed`."""

    def __init__(self, source: blocks.Source, spark: engine.Classic) -> None:
        self._source = source
        self._spark = spark
        self._lock = threading.Lock()
        self._job: engine.Job | None = None
        self._thread: threading.Thread | None = None
        self._coordinator = feeding.Coordinator(spark.host, self._start, self._cancel)

    def __reduce__(self) -> tuple[Any, ...]:
        return RankFeed, (self._coordinator.address, self._coordinator.key, self._source.is_arrow)

    def close(self) -> None:
        """Ends what is still fed. Feeds that are not closed end with the process."""
        self._cancel()
        self._coordinator.close()

    def _start(self) -> None:
        with self._lock:
            before, job = self._thread, self._spark.job()
            self._job = job
            self._thread = threading.Thread(target=self._run, args=(job, before), name="hvd-epoch", daemon=True)
            self._thread.start()

    def _run(self, job: engine.Job, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            run_epoch(self._spark, job, self._source, self._coordinator)
        except Exception as error:  # also what cannot be pickled, and py4j's: the ranks wait for rows
            self._coordinator.fail(f"the Spark job that makes the rows has failed: {error}")

    def _cancel(self) -> None:
        with self._lock:
            if self._job is not None:
                self._job.cancel()


def run_epoch(spark: engine.Classic, job: engine.Job, source: blocks.Source, coordinator: feeding.Coordinator) -> int:
    """Feeds all rows once, and returns the number of the epoch. StageError if Spark cannot make them, ValueError if it
    cannot begin."""
    link = coordinator.next_epoch()
    ranks = len(link.addresses)
    partitions, send = job.run(lambda: source.prepare(link), "hvd.spark: preparing rows")
    if partitions < ranks:
        raise ValueError(f"{partitions} partitions do not feed {ranks} ranks: repartition({ranks}) or more")
    _require_free_slot(spark, ranks)
    coordinator.start(link.epoch, partitions)
    job.run(send, "hvd.spark: feeding rows")
    return link.epoch


def _require_free_slot(spark: engine.Classic, ranks: int) -> None:
    """Besides those of the ranks, which Spark's own count may not have yet."""
    tracker, ends_at = spark.context.statusTracker(), time.monotonic() + _SLOT_S
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        active = sum(stage.numActiveTasks for stage in stages if stage is not None)
        busy, slots = max(active, ranks), spark.slots()
        if busy < slots:
            return
        if time.monotonic() > ends_at:
            raise ValueError(f"ranks and other tasks hold all {slots} slots of this application, and feeding needs one")
        time.sleep(0.1)


class RankFeed:
    """In a rank: its rows. An epoch begins when the first row or batch is requested of an iterator, which all ranks
    must do. Rows that are not taken are dropped when the iterator is closed or the next epoch begins; after that, an
    iterator of an earlier epoch raises RuntimeError.

    Attributes:
        last_rank: of an epoch that ended with a join, the rank that came last.

    Iterators raise FeedError if no further rows can come, for instance because Spark fails to compute them.
    """

    def __init__(self, address: channel.Address, key: bytes, is_arrow: bool) -> None:
        self._address = address
        self._key = key
        self._is_arrow = is_arrow
        self._inlet: feeding.Inlet | None = None
        self._epoch = -1  # whose rows are being taken
        self.last_rank = -1

    def rows(self) -> Iterator[Any]:
        """The rows themselves: those of the RDD, or dicts, in which vectors of Spark ML are dicts, too. Ranks have
        different numbers of them."""
        for batch in self._chunks():
            yield from batch if isinstance(batch, list) else batch.to_pylist()

    def batches(self, batch_size: int, uneven: Uneven = "repeat") -> Iterator[Any]:
        """Batches of NumPy arrays, whose first dimension is `batch_size`, and less at a rank's last: a dict by column's
        name for DataFrames and for rows that are dicts or Rows, a tuple for rows that are tuples, else an array.
        Columns of lists of one length have two dimensions; text and bytes are arrays of objects.

        Ranks do not have equally many rows. All of them end an epoch together, by `uneven`:

        - "repeat": a rank without further rows gets its last batches again, until all have had all their rows. Every
          rank makes equally many steps, so that models stay equal.
        - "stop": all end with the first that has no further rows; the rest is dropped.
        - "join": a rank without further rows waits in `hvd.join()` while others go on without it. Afterwards broadcast
          the model from `last_rank`: others have missed steps.

        Raises:
            ValueError: a rank has no rows at all; on every rank, with "repeat".
        """
        for batch in self._agreed(self._chunks(batch_size), uneven):
            yield blocks.as_arrays(batch)

    def torch(self, batch_size: int, uneven: Uneven = "repeat") -> Any:
        """An IterableDataset of such batches as tensors, for `DataLoader(dataset, batch_size=None)`. Each iteration is
        an epoch. Use no workers: the rows come to this process."""
        from hvd.spark.torch_dataset import FedDataset

        return FedDataset(lambda: self.batches(batch_size, uneven))

    def tf(self, batch_size: int, output_signature: Any, uneven: Uneven = "repeat") -> Any:
        """A tf.data.Dataset of such batches; each iteration is an epoch. output_signature: see
        `tf.data.Dataset.from_generator`."""
        import tensorflow as tf

        dataset = tf.data.Dataset.from_generator(
            lambda: self.batches(batch_size, uneven), output_signature=output_signature
        )
        return dataset.prefetch(1)

    def _chunks(self, size: int | None = None) -> Iterator[Any]:
        """One epoch, in lists or tables of so many rows, or else of as many as come together."""
        if size is not None and size < 1:
            raise ValueError(f"batch_size is {size}: at least one row")
        pending: blocks.Rows | blocks.Columns = blocks.Columns() if self._is_arrow else blocks.Rows()
        inlet = self._opened()
        inlet.receiver.drop_the_rest(self._epoch)
        inlet.ask(*((basics.rank(), basics.size()) if basics.is_initialized() else (0, 1)))
        epoch = self._epoch = inlet.next_epoch()
        try:
            while (block := self._next_block(inlet, epoch)) is not None:
                if pending.add(block):
                    inlet.receiver.give_back(block)
                while len(pending) >= (size or 1):
                    yield pending.take(size or len(pending))
            if len(pending) > 0:
                yield pending.take(len(pending))
        finally:
            inlet.receiver.drop_the_rest(epoch)

    def _next_block(self, inlet: feeding.Inlet, epoch: int) -> feeding.Block | None:
        if epoch != self._epoch:
            raise RuntimeError("this iterator's epoch has ended, because another one of this feed has begun")
        return inlet.receiver.take(epoch)

    def _opened(self) -> feeding.Inlet:
        if self._inlet is None or self._inlet.is_closed:
            self._inlet = feeding.Inlet(self._address, self._key)
        return self._inlet

    def _agreed(self, chunks: Iterator[Any], uneven: Uneven) -> Iterator[Any]:
        if uneven not in ("repeat", "stop", "join"):
            raise ValueError(f'uneven is {uneven!r}: "repeat", "stop" or "join"')
        if not basics.is_initialized() or basics.size() == 1 or uneven == "join":
            yield from chunks
            if uneven == "join" and basics.is_initialized():
                self.last_rank = collectives.join()
            return
        kept: list[Any] = []
        for step in itertools.count():
            batch = next(chunks, None)
            any_has, any_has_not = self._agree(batch is not None)
            if not any_has or (any_has_not and uneven == "stop"):
                chunks.close()  # type: ignore[attr-defined]
                return
            if any_has_not and step == 0:
                raise ValueError("a rank has got no rows: all of its partitions are empty (repartition the data)")
            if batch is not None:
                kept = [*kept[1 - _MOST_REPEATED :], batch]
            yield batch if batch is not None else kept[step % len(kept)]

    def _agree(self, has: bool) -> tuple[bool, bool]:
        """Whether any rank has a batch, and whether any has none."""
        answers = np.array([has, not has], dtype=np.int32)
        answers = collectives.allreduce(answers, op=Max, name=f"hvd.spark.feed.{self._address.port}")
        return bool(answers[0]), bool(answers[1])
