"""`hvd.spark.run_elastic`: ranks at places that Spark's tasks keep, started and watched by hvdrun on the driver.

The tasks of a plain Spark job keep a place each (`hvd.cluster.Place`), where an agent of hvdrun listens. Spark gives a
lost task another executor, where its next attempt is a new place: hvdrun lets ranks join there.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

from hvd import rendezvous
from hvd.cluster import JobToken, Place, PlaceAddress, PlacesJob
from hvd.exceptions import RankFailedError
from hvd.spark import channel, engine, run_function

T = TypeVar("T")

_PLACE, _ENDS, _END, _AGAIN = range(4)

_ELASTIC_TIMEOUT_S = 600.0
_JOB_END_S = 5.0  # from the end of an agent to the end of the job, if it ends with it
_ENDS_S = 30.0  # that places take to hand over what the ranks have left


def run_elastic(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    prefix_output_with_timestamp: bool = False,
) -> list[T]:
    """Calls a function on ranks that may come and go with their executors, as an elastic job of hvdrun: it trains under
    `elastic.run` of its framework.

    A rank is a process beside its task. When an executor is lost, the others go on, and Spark starts the task again, on
    another one: set spark.task.maxFailures high (`horovod.spark.conf.SPARK_CONF_ALWAYS_RESTART_FAILED_TASK`).

    Args:
        fn, args, kwargs, env, stdout, stderr, prefix_output_with_timestamp: see `hvd.spark.run`.
        num_proc: ranks that the job begins with; by default `SparkContext.defaultParallelism`.
        min_num_proc, max_num_proc: the fewest with which it goes on, and the most that it may have; by default
            num_proc.
        start_timeout: seconds until there must be `num_proc` places; see `hvd.spark.run`.
        elastic_timeout: seconds that it waits for `min_num_proc` ranks after a loss; by default
            HOROVOD_ELASTIC_TIMEOUT, or else 600.
        reset_limit: how often the ranks may change before the job fails; any number of times by default.
        verbose: 2: hvdrun says what it does.

    Returns:
        What the function returned, on the ranks of the last epoch; see `hvd.run`.

    Raises:
        RuntimeError, ValueError, TimeoutError: as `hvd.spark.run`, and with Spark Connect.
        Exception, RankFailedError: as `hvd.run` of an elastic job.
    """
    spark = engine.classic("hvd.spark.run_elastic")
    size = spark.default_parallelism() if num_proc is None else num_proc
    least, most = min_num_proc or size, max_num_proc or max(size, min_num_proc or 0)
    if not 1 <= least <= size <= most:
        raise ValueError(
            f"min_num_proc is {least}, num_proc is {size}, max_num_proc is {most}: expected 1 <= min_num_proc <= "
            "num_proc <= max_num_proc (num_proc is SparkContext.defaultParallelism by default)"
        )
    timeout_s = run_function.start_timeout_s(start_timeout)
    job = PlacesJob(fn, args, kwargs)
    with _kept_places(spark, job.token, most) as places:
        found = places.wait_for(size, timeout_s)
        if places.failure:
            raise RankFailedError(f"the Spark job that keeps places for the ranks has failed: {places.failure}")
        if found < size:
            raise TimeoutError(
                f"{found} of {size} tasks have started in {timeout_s:g} s: there are too few slots, or other jobs hold "
                "them (start_timeout, HOROVOD_SPARK_START_TIMEOUT)"
            )
        return job.run(
            size,
            places,
            min_np=least,
            max_np=most,
            env={**run_function.environment(), **(env or {})},
            start_timeout=timeout_s,
            verbose=verbose >= 2,
            options=_options(elastic_timeout, reset_limit, prefix_output_with_timestamp),
            stdout=stdout,
            stderr=stderr,
        )


def _options(elastic_timeout: float | None, reset_limit: int | None, with_time: bool) -> list[str]:
    if elastic_timeout is None:
        elastic_timeout = rendezvous.seconds_in_environment(["HOROVOD_ELASTIC_TIMEOUT"], _ELASTIC_TIMEOUT_S)
    options = ["--tag-output", "--elastic-timeout", f"{elastic_timeout:g}"]
    options += ["--timestamp-output"] if with_time else []
    return options if reset_limit is None else [*options, "--reset-limit", str(reset_limit)]


@contextlib.contextmanager
def _kept_places(spark: engine.Classic, token: JobToken, count: int) -> Iterator[_KeptPlaces]:
    """A Spark job whose tasks keep places while the body runs."""
    places, job = _KeptPlaces(spark.host), spark.job()
    task = PlaceTask(token, channel.Address(spark.host, places.port), places.key)
    tasks = spark.context.parallelize(range(count), count).mapPartitions(task)

    def keep() -> None:
        try:
            job.run(tasks.collect, "hvd.spark.run_elastic")
        except engine.StageError as error:  # later on its places are gone, which hvdrun notices
            places.fail(str(error))

    keeping = threading.Thread(target=keep, name="hvd-places", daemon=True)
    keeping.start()
    try:
        yield places
    finally:
        places.release()
        keeping.join(_JOB_END_S)
        job.cancel()
        places.close()


@dataclass
class _Kept:
    place: PlaceAddress
    connection: channel.Connection
    ends: dict[str, bytes] | None = None
    is_gone: bool = False


class _KeptPlaces:
    """On the driver: the places, as their tasks tell of them (`hvd.cluster.Places`)."""

    def __init__(self, host: str) -> None:
        self.key = channel.new_key()
        self._kept: list[_Kept] = []
        self._job_has_ended = threading.Event()
        self.failure = ""  # of the Spark job
        self._changed = threading.Condition()
        self._listener = channel.Listener(self.key, self._serve)
        self.port = self._listener.port

    def wait_for(self, count: int, timeout_s: float) -> int:
        """Until there are so many; returns how many there are."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._usable()) >= count or self.failure, timeout_s)
            return len(self._usable())

    def fail(self, cause: str) -> None:
        """The Spark job has failed: no further place will come."""
        with self._changed:
            self.failure = cause
            self._changed.notify_all()

    def addresses(self) -> Sequence[PlaceAddress]:
        with self._changed:
            return [kept.place for kept in self._usable()]

    def ends(self) -> Iterable[Mapping[str, bytes]]:
        self.release()
        with self._changed:
            self._changed.wait_for(
                lambda: all(kept.is_gone or kept.ends is not None for kept in self._kept), timeout=_ENDS_S
            )
            return [kept.ends for kept in self._kept if kept.ends is not None]

    def release(self) -> None:
        """The job has ended: the tasks may end."""
        with self._changed:
            was_set = self._job_has_ended.is_set()
            self._job_has_ended.set()
            kept = [] if was_set else list(self._kept)
        for one in kept:
            with contextlib.suppress(OSError):
                one.connection.send(_END)

    def close(self) -> None:
        self._listener.close()

    def _usable(self) -> list[_Kept]:
        return [kept for kept in self._kept if not kept.is_gone and kept.ends is None]

    def _serve(self, connection: channel.Connection) -> None:
        told = json.loads(connection.receive().data)
        kept = _Kept(PlaceAddress(told["name"], told["address"]), connection)
        with self._changed:
            self._kept.append(kept)
            self._changed.notify_all()
            has_ended = self._job_has_ended.is_set()
        try:
            if has_ended:
                connection.send(_END)
            ends = pickle.loads(connection.receive().data)
            with self._changed:
                kept.ends = ends
                self._changed.notify_all()
            # An agent that has ended before its job was killed: another attempt of the task has a new one.
            connection.send(_END if self._job_has_ended.wait(_JOB_END_S) else _AGAIN)
        finally:
            with self._changed:
                kept.is_gone = True
                self._changed.notify_all()


# ---- in a task


@dataclass(frozen=True)
class PlaceTask:
    """What a task does: it keeps a place."""

    token: JobToken
    driver: channel.Address
    key: bytes

    def __call__(self, _: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"task-{context.taskAttemptId()}"
        connection = channel.connect(self.driver, self.key, "the driver")
        try:
            with Place(self.token, connection.local_host) as place:
                self._keep(place, name, connection)
        finally:
            connection.close()
        return iter(())

    def _keep(self, place: Place, name: str, connection: channel.Connection) -> None:
        connection.send(_PLACE, json.dumps({"name": name, "address": place.address}).encode())
        released = threading.Event()

        def hand_over() -> None:
            while not released.is_set() and not place.wait(0.2):
                pass
            place.wait(_JOB_END_S)  # its ranks may be about to end
            with contextlib.suppress(OSError):
                connection.send(_ENDS, pickle.dumps(place.ends()))

        handing = threading.Thread(target=hand_over, name="hvd-place", daemon=True)
        handing.start()
        answer = connection.receive().kind
        if handing.is_alive():  # the job has ended before its agent
            released.set()
            handing.join()
            answer = connection.receive().kind
        if answer == _AGAIN:
            raise RuntimeError(f"the agent of {name} has ended before the job")
