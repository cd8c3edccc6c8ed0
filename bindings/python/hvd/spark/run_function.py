"""`hvd.spark.run`: a function on several ranks, which are the tasks of one barrier stage."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

import cloudpickle

from hvd import cluster, rendezvous
from hvd.exceptions import InitError, RankFailedError, RankLostError
from hvd.outcome import Outcome
from hvd.spark import engine, feeding, output

T = TypeVar("T")

_START_TIMEOUT_S = 600.0
_END_AFTER_FAILURE_S = 10.0  # for ranks that do not notice that another one has failed; then their tasks are cancelled
_LAST_LINES_S = 5.0


def run(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    *,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    prefix_output_with_timestamp: bool = False,
) -> list[T]:
    """Calls a function on `num_proc` ranks, the tasks of one barrier stage of the active Spark session, and returns
    when all have ended.

    `hvd.init()` in the function finds the job joined. Ranks are numbered host by host. What they print appears on the
    driver as it comes, each line behind its rank: `[1]<stdout>:...`. With Spark Connect it goes to the executors'
    logs.

    Args:
        fn: called as `fn(*args, **kwargs)` on every rank. It travels by cloudpickle; modules that it imports must be
            installed on the executors, or be sent with `SparkContext.addPyFile`.
        args, kwargs: anything that cloudpickle can write.
        num_proc: number of ranks, each of which takes a slot; by default `SparkContext.defaultParallelism`.
        start_timeout: seconds until all ranks must have started, for executors that come late and slots that other jobs
            hold; by default HOROVOD_SPARK_START_TIMEOUT, or else 600. No effect with Spark Connect: Spark itself gives
            up when a job has had no slots for ten minutes.
        env: variables for the ranks.
        stdout, stderr: streams for what the ranks print, instead of this process's own.
        verbose: 2 or more: prints how many ranks are started.
        prefix_output_with_timestamp: the tags begin with the time.

    Returns:
        What the function returned, by rank.

    Raises:
        RuntimeError: there is no active session.
        ValueError: arguments that make no sense, fewer slots than ranks, or dynamic allocation, which barrier stages
            do not have.
        TimeoutError: not all ranks have started in time.
        Exception: the one that the function raised on the rank where it was raised first. Its cause, a
            `RankFailedError`, names the rank and has its traceback.
        RankFailedError: a rank was lost, with its executor for instance, or called `sys.exit()`.
    """
    spark = engine.active()
    size = spark.default_parallelism() if num_proc is None else num_proc
    if size < 1:
        raise ValueError(f"num_proc must be at least 1, not {size}")
    if verbose >= 2:
        print(f"hvd.spark: starting {size} ranks")
    return run_on(
        spark,
        fn,
        args,
        kwargs,
        size,
        start_timeout,
        env=env,
        stdout=stdout,
        stderr=stderr,
        with_time=prefix_output_with_timestamp,
    )


def run_on(
    spark: engine.Classic | engine.Connect,
    fn: Callable[..., T],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    size: int,
    start_timeout: float | None,
    *,
    env: Mapping[str, str] | None,
    stdout: TextIO | None,
    stderr: TextIO | None,
    with_time: bool = False,
) -> list[T]:
    """Like `run`, but callable from any thread: the session need not be the one that is active there."""
    timeout_s = start_timeout_s(start_timeout)
    spark.require_slots(size, timeout_s)
    call = cloudpickle.dumps((fn, tuple(args), dict(kwargs or {})))
    console = None
    if spark.host is not None:
        console = output.Console(size, spark.host, stdout, stderr, with_time)
    task = RankTask(call, dict(env or {}), None if console is None else console.reporting)
    return run_stage(spark, task, size, console, timeout_s)


def start_timeout_s(given: float | None) -> float:
    if given is not None:
        return given
    return rendezvous.seconds_in_environment(["HOROVOD_SPARK_START_TIMEOUT"], _START_TIMEOUT_S)


def run_stage(
    spark: engine.Classic | engine.Connect,
    task: engine.Task,
    size: int,
    console: output.Console | None,
    timeout_s: float,
) -> list[Any]:
    """What the tasks of a barrier stage leave, by rank: each returns its rank and its pickled outcome. Raises as
    `run`."""
    job = spark.job()
    watch = _Watch(console, job, size, timeout_s)
    outcomes: dict[int, Outcome] = {}
    lost: dict[int, str] = {}
    try:
        outcomes = {rank: pickle.loads(data) for rank, data in job.run(spark.stage(task, size), "hvd.spark.run")}
        if console is not None:
            console.wait_for_ends(_LAST_LINES_S)
            outcomes = {rank: outcomes[rank] for rank in [*console.failures, *outcomes]}
    except engine.StageError as error:
        failures = {} if console is None else dict(console.failures)
        outcomes = {rank: pickle.loads(data) for rank, data in failures.items()}
        is_own = any(one.failure is not None and not one.failure.is_consequence for one in outcomes.values())
        if "ExecutorLostFailure" in str(error) and not is_own:
            # Its ranks' processes may live on for seconds; those that Spark kills now are not to blame.
            raise RankLostError(f"an executor with ranks was lost: {error}") from None
        if console is not None:
            lost = {rank: f"({where}) was lost: {error}" for rank, where in console.lost()[:1]}
        watch.raise_if_late()
        if not outcomes and not lost:
            raise RankFailedError(f"the ranks' stage has failed: {error}") from None
    finally:
        if console is not None:
            console.close()
    return cluster.results(outcomes, size, lost)


class _Watch:
    """Cancels a job whose ranks do not all start in time, or do not end after one has failed."""

    def __init__(self, console: output.Console | None, job: Any, size: int, timeout_s: float) -> None:
        self._size = size
        self._timeout_s = timeout_s
        self._started: int | None = None
        if console is not None:
            threading.Thread(target=self._watch, args=(console, job), name="hvd-ranks", daemon=True).start()

    def _watch(self, console: output.Console, job: Any) -> None:
        started = console.wait_for_start(self._timeout_s)
        if started < self._size and not console.failures:
            self._started = started
            job.cancel()
        elif console.wait_for_failure() and not console.wait_for_ends(_END_AFTER_FAILURE_S):
            job.cancel()

    def raise_if_late(self) -> None:
        if self._started is not None:
            raise TimeoutError(
                f"{self._started} of {self._size} ranks have started in {self._timeout_s:g} s: other jobs hold slots, "
                "or executors do not come (start_timeout, HOROVOD_SPARK_START_TIMEOUT)"
            )


# ---- in a task


@dataclass(frozen=True)
class RankTask:
    """What a task of the stage does: it is a rank of the job."""

    call: bytes
    env: dict[str, str]
    reporting: output.Reporting | None

    def __call__(self) -> tuple[int, bytes]:
        task = engine.this_task()
        reporter = None
        if self.reporting is not None:
            reporter = output.Reporter(self.reporting, task.rank, task.host)
        with reporter.capturing() if reporter is not None else contextlib.nullcontext():
            outcome = _be_rank(task, self.call, self.env)
        data = pickle.dumps(outcome)
        if reporter is not None:
            reporter.end(data if outcome.failure is not None else b"")
        return task.rank, data


def _be_rank(task: engine.RankTask, call: bytes, env: Mapping[str, str]) -> Outcome:
    broadcast = _Broadcast(task)
    try:
        return cluster.call(_call, (call,), {}, task.rank, task.size, broadcast, {**environment(), **env})
    finally:
        broadcast.give_up()
        feeding.close_all()


def _call(data: bytes) -> Any:
    fn, args, kwargs = cloudpickle.loads(data)
    return fn(*args, **kwargs)


def environment() -> dict[str, str]:
    # YARN kills containers for address space that they have reserved, used or not.
    return {"HVD_ARENA_LIMIT": "0"} if "CONTAINER_ID" in os.environ and "HVD_ARENA_LIMIT" not in os.environ else {}


class _Broadcast:
    """Broadcasts rank 0's rendezvous info to all tasks of the stage. Spark's allGather takes a second, and all tasks
    must call it: a rank that fails earlier reports that there."""

    def __init__(self, task: engine.RankTask) -> None:
        self._task = task
        self._is_due = task.size > 1

    def __call__(self, info: bytes | None) -> bytes:
        if self._task.size == 1:
            assert info is not None
            return info
        self._is_due = False
        texts = self._task.gather("" if info is None else info.hex())
        if "-" in texts:
            raise InitError("another rank failed before it could join")
        return bytes.fromhex(texts[0])

    def give_up(self) -> None:
        """Called at the end: calls allGather if this rank has not, because the others wait for it."""
        if self._is_due:
            self._is_due = False
            self._task.gather("-")
