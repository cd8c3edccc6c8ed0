"""Spark as what starts ranks: stages whose tasks run at once (barrier stages), the slots there are for them, and the
end.

Two forms of it: a classic session, whose driver is this process, and a session of Spark Connect, whose driver is a
server.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Task = Callable[[], tuple[int, bytes]]  # returns a rank and what came of it

_SETTLED_AFTER_S = 30.0  # without a new executor
_POLL_S = 0.1
_numbers = itertools.count()


class StageError(Exception):
    """A stage has failed. The text is Spark's reason, without its stack traces."""


def active() -> Classic | Connect:
    """The session in which this process works. RuntimeError if there is none."""
    from pyspark import SparkContext
    from pyspark.sql.utils import is_remote

    # Of Connect first: a server that was started for this process has a context in it.
    session = _connect_session() if is_remote() else None
    if session is not None:
        return Connect(session)
    context = SparkContext._active_spark_context
    if context is not None:
        return Classic(context)
    raise RuntimeError(
        "Could not find an active SparkContext: make a session before, SparkSession.builder.getOrCreate()"
    )


def classic(caller: str) -> Classic:
    """Like `active`, for what needs the driver in this process. RuntimeError with Spark Connect."""
    spark = active()
    if not isinstance(spark, Classic):
        raise RuntimeError(
            f"{caller} needs a classic session, whose driver is this process, and not Spark Connect: of hvd.spark only "
            "run and experiments work with that"
        )
    return spark


def _connect_session() -> Any:
    try:
        from pyspark.sql.connect.session import SparkSession
    except ImportError:  # grpcio is not installed, for instance
        return None
    return SparkSession.getActiveSession()


class Classic:
    """This process is the driver: executors connect to it."""

    def __init__(self, context: Any) -> None:
        self.context = context

    @property
    def host(self) -> str:
        """The driver's, as the executors know it."""
        return str(self.context.getConf().get("spark.driver.host"))

    def default_parallelism(self) -> int:
        return int(self.context.defaultParallelism)

    def sql_session(self) -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()

    def require_slots(self, count: int, timeout_s: float) -> None:
        """Raises ValueError if this application will not have so many. Executors that were asked for and have not come
        yet are waited for."""
        configuration = self.context.getConf()
        if configuration.get("spark.dynamicAllocation.enabled", "false") == "true":
            raise ValueError(
                "ranks run in a barrier stage, which Spark does not combine with dynamic allocation: set "
                "spark.dynamicAllocation.enabled=false and spark.executor.instances"
            )
        ends_at = time.time() + timeout_s
        came_at = self.context.startTime / 1000
        slots = self.slots()
        while slots < count:
            is_settled = slots > 0 and time.time() > came_at + _SETTLED_AFTER_S and not self._has_promised(count)
            if is_settled or self.context.master.startswith("local[") or time.time() > ends_at:
                raise ValueError(
                    f"{count} ranks need as many slots at once, but the executors of this application have {slots} "
                    "(their cores divided by spark.task.cpus): ask for fewer ranks or more executors"
                )
            time.sleep(_POLL_S)
            before, slots = slots, self.slots()
            came_at = time.time() if slots > before else came_at

    def slots(self) -> int:
        """How many tasks can run at once, whatever runs now."""
        context = self.context._jsc.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))

    def _has_promised(self, count: int) -> bool:
        get = self.context.getConf().get
        cores, cpus = int(get("spark.executor.cores", "1")), int(get("spark.task.cpus", "1"))
        return int(get("spark.executor.instances", "0")) * (cores // cpus) >= count

    def stage(self, task: Task, size: int) -> Callable[[], list[tuple[int, bytes]]]:
        """An action that returns what the tasks of one barrier stage return, which run at once."""

        def run_partition(_: Iterator[Any]) -> Iterator[tuple[int, bytes]]:
            yield task()

        stage = self.context.parallelize(range(size), size).barrier().mapPartitions(run_partition)
        return lambda: list(stage.collect())

    def job(self) -> Job:
        return Job(self.context)


class Job:
    """A Spark job that can be cancelled from other threads."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._tag = f"hvd-{next(_numbers)}"

    def run(self, action: Callable[[], Any], description: str) -> Any:
        """Runs an action in this thread, as this job. StageError if it fails."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        before = self._context.getLocalProperty("spark.job.description")
        self._context.setLocalProperty("spark.job.description", before or description)
        self._context.addJobTag(self._tag)
        try:
            return action()
        except (Py4JError, PySparkException) as error:
            raise StageError(reason_of(str(error))) from None
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        finally:
            self._context.removeJobTag(self._tag)
            self._context.setLocalProperty("spark.job.description", before)

    def cancel(self) -> None:
        self._context.cancelJobsWithTag(self._tag)


class Connect:
    """The driver is a server: this process sees results, and nothing of the ranks while they run."""

    def __init__(self, session: Any) -> None:
        self.session = session

    host = None

    def default_parallelism(self) -> int:
        from pyspark.sql import functions

        numbers = self.session.range(0, 1 << 16).select(functions.spark_partition_id().alias("number"))
        rows = numbers.agg(functions.max("number")).collect()
        return int(rows[0][0]) + 1

    def sql_session(self) -> Any:
        return self.session

    def require_slots(self, count: int, timeout_s: float) -> None:
        """Only Spark knows: it tries for ten minutes (spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures)."""

    def stage(self, task: Task, size: int) -> Callable[[], list[tuple[int, bytes]]]:
        def run_partition(_: Iterator[Any]) -> Iterator[Any]:
            import pyarrow

            rank, outcome = task()
            columns = [pyarrow.array([rank], pyarrow.int32()), pyarrow.array([outcome], pyarrow.binary())]
            yield pyarrow.RecordBatch.from_arrays(columns, names=["rank", "outcome"])

        frame = self.session.range(0, size, 1, size)
        frame = frame.mapInArrow(run_partition, "rank int, outcome binary", barrier=True)
        return lambda: [(row["rank"], bytes(row["outcome"])) for row in frame.collect()]

    def job(self) -> ConnectJob:
        return ConnectJob(self.session)


class ConnectJob:
    def __init__(self, session: Any) -> None:
        self._session = session
        self._tag = f"hvd-{next(_numbers)}"

    def run(self, action: Callable[[], Any], description: str) -> Any:
        from pyspark.errors import PySparkException

        self._session.addTag(self._tag)
        try:
            return action()
        except PySparkException as error:
            raise StageError(reason_of(str(error))) from None
        except BaseException:
            self.cancel()
            raise
        finally:
            self._session.removeTag(self._tag)

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)


class RankTask(NamedTuple):
    """A task of a barrier stage, which is a rank."""

    rank: int
    size: int
    host: str
    gather: Callable[[str], list[str]]  # the texts of all tasks, in the order of partitions; the first is rank 0's


def this_task() -> RankTask:
    """Ranks are numbered host by host, in the order of the hosts' first partitions, so that partition 0 is rank 0."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    hosts = [info.address.rpartition(":")[0] or info.address for info in context.getTaskInfos()]
    partition = context.partitionId()
    return RankTask(ranks_by_host(hosts)[partition], len(hosts), hosts[partition], context.allGather)


def ranks_by_host(hosts: list[str]) -> list[int]:
    """The rank of each partition, given its host."""
    order = sorted(range(len(hosts)), key=lambda partition: (hosts.index(hosts[partition]), partition))
    ranks = [0] * len(hosts)
    for rank, partition in enumerate(order):
        ranks[partition] = rank
    return ranks


_REASONS = (
    r"ExecutorLostFailure \([^)]*\)(?: Reason: [^\n]*)?",
    r"Python worker exited unexpectedly(?: \([^)]*\))?",
    r"\[SPARK-\d+\][^\n]*",
    r"^(?:\w+\.)*\w*(?:Error|Exception|Failure|Exit)\b: (?!Traceback|Job aborted|An error occurred)[^\n]+",
    r"cancelled[^\n]*",
)


def reason_of(text: str) -> str:
    """The line of Spark's text that says what has happened."""
    for reason in _REASONS:
        found = [match for match in re.findall(reason, text, re.MULTILINE) if not match.startswith("py4j")]
        if found:
            return str(found[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark gives no reason"
