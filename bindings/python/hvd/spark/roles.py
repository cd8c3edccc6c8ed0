"""`hvd.spark.cluster`: a function in roles on the executors, which the driver feeds, asks and ends, as
TensorFlowOnSpark does it.

The tasks of one barrier stage have the roles, in processes of their own: servers of `hvd.ps`, the chief (rank 0),
workers, and an evaluator, which is in no job. They find each other by TF_CONFIG, which also tells TensorFlow of its
cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle

from hvd import basics, failure
from hvd.exceptions import RankLostError
from hvd.outcome import Outcome
from hvd.spark import blocks, channel, engine, feeding, feeds, output, run_function

InputMode = Literal["spark", "files"]

_END_S = 3600.0
_EXIT_S = 10.0  # of a role's process, once its outcome is there, and of TensorBoard
_LATE_S = 30.0  # until the stage of a worker that was lost has ended


def start_cluster(
    fn: Callable[[Any, Context], Any],
    args: Any = None,
    *,
    num_workers: int | None = None,
    num_ps: int = 0,
    evaluator: bool = False,
    input_mode: InputMode = "spark",
    tensorboard: str | None = None,
    restarts: int = 0,
    start_timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> Cluster:
    """Starts `fn(args, context)` in roles on the executors, and returns while it runs.

    Args:
        fn: called on the chief, the workers and the evaluator; on servers too, whose call ends at `hvd.init()`, which
            serves there. It travels by cloudpickle.
        args: its first argument, anything that cloudpickle can write.
        num_workers: workers, the chief among them; by default one for each slot that is left, besides one that feeds.
        num_ps: servers of `hvd.ps`, tasks of their own.
        evaluator: a task of its own evaluates checkpoints meanwhile: `context.job_name` is "evaluator".
        input_mode: "spark": workers get the rows that `train` and `inference` bring, from `context.get_data_feed()`.
            "files": they read for themselves.
        tensorboard: a folder that the driver sees too: TensorBoard shows it while the cluster runs.
        restarts: how often all roles are started again, if the process or the executor of one of them is lost. The
            function must then begin with the chief's last checkpoint. An exception that it raises ends the cluster.
        start_timeout: see `hvd.spark.run`.
        env: variables for all of them.

    Raises:
        RuntimeError, ValueError: as `hvd.spark.run`, and with Spark Connect.
    """
    spark = engine.classic("hvd.spark.cluster")
    if input_mode not in ("spark", "files"):
        raise ValueError(f'input_mode is {input_mode!r}: "spark" or "files"')
    others = num_ps + evaluator
    feeding_slots = 1 if input_mode == "spark" else 0
    workers = spark.slots() - others - feeding_slots if num_workers is None else num_workers
    if workers < 1 or num_ps < 0:
        raise ValueError(f"{workers} workers and {num_ps} servers: at least one worker; ask for more executors")
    if restarts < 0:
        raise ValueError(f"restarts is {restarts}: how often roles are started again, at least 0")
    timeout_s = run_function.start_timeout_s(start_timeout)
    spark.require_slots(workers + others + feeding_slots, timeout_s)
    roles = Roles(workers, num_ps, evaluator)
    return Cluster(spark, fn, args, roles, input_mode, tensorboard, restarts, timeout_s, dict(env or {}))


@dataclass(frozen=True)
class Roles:
    workers: int
    servers: int
    evaluator: bool

    @property
    def tasks(self) -> int:
        return self.workers + self.servers + self.evaluator

    def of(self, number: int) -> tuple[str, int]:
        """The type and the index of a task; the chief is the first of all."""
        if number < self.workers:
            return ("chief", 0) if number == 0 else ("worker", number - 1)
        if number < self.workers + self.servers:
            return "ps", number - self.workers
        return "evaluator", 0

    def cluster_spec(self, addresses: Sequence[str]) -> dict[str, list[str]]:
        spec = {
            "chief": list(addresses[:1]),
            "worker": list(addresses[1 : self.workers]),
            "ps": list(addresses[self.workers : self.workers + self.servers]),
        }
        return {role: members for role, members in spec.items() if members}


@dataclass
class _Epoch:
    """Rows that the workers are to have."""

    source: blocks.Source
    number: int | None = None  # in which the workers have got them
    attempt: int = -1  # to which these workers belonged


class Cluster:
    """On the driver: a function that runs in roles, made by `hvd.spark.cluster`."""

    def __init__(
        self,
        spark: engine.Classic,
        fn: Callable[..., Any],
        args: Any,
        roles: Roles,
        input_mode: InputMode,
        tensorboard: str | None,
        restarts: int,
        timeout_s: float,
        env: dict[str, str],
    ) -> None:
        self._spark = spark
        self._roles = roles
        self._input_mode = input_mode
        self._restarts = restarts
        self._env = env
        self._call = cloudpickle.dumps((fn, args))  # before anything is started: it may fail
        self._coordinator = feeding.Coordinator(spark.host, lambda: None, self._lost_worker)
        self._feeding: engine.Job | None = None
        self._timeout_s = timeout_s
        self._epochs: list[_Epoch] = []  # that not all workers have used yet, as far as is known
        self._changed = threading.Condition()
        self._attempt = 0  # at running the roles
        self._has_ended = False
        self._results: list[Any] = []
        self._error: BaseException | None = None
        self._tensorboard = None if tensorboard is None else _start_tensorboard(tensorboard)
        atexit.register(self._end_tensorboard)
        threading.Thread(target=self._run, name="hvd-cluster", daemon=True).start()

    def _run(self) -> None:
        try:
            results = self._run_roles()
            while results is None:
                results = self._run_roles()
            self._results = [result for number, result in enumerate(results) if self._roles.of(number)[0] != "ps"]
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()
            self._lost_worker()
            self._end_tensorboard()

    def _end_tensorboard(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.terminate()
            try:
                self._tensorboard.wait(_EXIT_S)
            except subprocess.TimeoutExpired:
                self._tensorboard.kill()
                self._tensorboard.wait()
        atexit.unregister(self._end_tensorboard)

    def _run_roles(self) -> list[Any] | None:
        """What the function returned, by task. None if a role was lost, and all may be started again."""
        console = output.Console(self._roles.tasks, self._spark.host, None, None)
        env = {"HVD_JOB_KEY": secrets.token_hex(32), **self._env}
        coordinator = self._coordinator
        task = RoleTask(self._call, self._roles, env, console.reporting, coordinator.address, coordinator.key)
        try:
            return run_function.run_stage(self._spark, task, self._roles.tasks, console, self._timeout_s)
        except RankLostError as error:
            if self._attempt == self._restarts:
                raise
            print(f"hvd.spark.cluster: all roles are started again, because {error}", file=sys.stderr)
        self._coordinator.forget_ranks()
        with self._changed:
            self._attempt += 1
            self._changed.notify_all()
        self._lost_worker()
        return None

    def _lost_worker(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()

    def train(self, data: Any, num_epochs: int = 1) -> None:
        """Feeds the workers an RDD or a DataFrame, and returns when they have all of its rows, each on one of them.

        After a restart (`restarts`) it feeds again, from its first row, each epoch that some worker had not used in
        whole: rows may be seen twice, and none is lost but by steps that the checkpoint does not have.

        Raises:
            Exception: the function's own, if it has failed; see `hvd.spark.run`.
            FeedError: Spark cannot make the rows, or the function has ended before it had them.
        """
        source = blocks.Source(self._as_rows(data))
        for _ in range(num_epochs):
            self._require_ranks()
            self._epochs.append(_Epoch(source))
            self._feed_epochs()

    def _feed_epochs(self) -> None:
        """Until the workers of one attempt have got all rows that those before may not have used."""
        while True:
            self._epochs = [
                one for one in self._epochs if one.number is None or not self._coordinator.is_used(one.number)
            ]
            due = next((one for one in self._epochs if one.attempt != self._attempt), None)
            if due is None:
                return
            try:
                self._require_ranks()
                self._feed(due)
            except BaseException:
                self._epochs.remove(due)
                raise

    def _feed(self, epoch: _Epoch) -> None:
        """Feeds an epoch, unless the workers are lost and others come."""
        attempt = self._attempt
        self._feeding = self._spark.job()
        try:
            epoch.number = feeds.run_epoch(self._spark, self._feeding, epoch.source, self._coordinator)
            epoch.attempt = attempt
        except engine.StageError as error:
            if not self._has_restarted(attempt, _LATE_S):
                self._raise_if_failed()
                raise feeding.FeedError(f"the workers cannot be fed: {error}") from None
        finally:
            self._feeding = None

    def inference(self, data: Any) -> Any:
        """An RDD of what the workers answer to the rows of an RDD or a DataFrame, with `batch_results`: one result for
        each row, in the order of the rows. As every RDD, it is computed when an action asks for it. After a restart
        (`restarts`) call `inference` again: the RDD's action raises a ConnectionError."""
        self._require_ranks()
        return blocks.Source(self._as_rows(data)).asked(self._coordinator.link())

    def shutdown(self, timeout: float = _END_S) -> list[Any]:
        """Tells the workers that no rows come any more, waits until the function has ended everywhere, and returns what
        it returned: by worker, and the evaluator's last.

        Raises:
            Exception: the function's own; see `hvd.spark.run`.
            TimeoutError: it has not ended after `timeout` seconds.
        """
        try:
            self._await_end(timeout)
        finally:
            if self._has_ended:
                self._coordinator.close()
        self._raise_if_failed()
        return self._results

    def _await_end(self, timeout: float) -> None:
        ends_at = time.monotonic() + timeout
        attempt = -1
        while attempt != self._attempt:
            attempt = self._attempt
            if self._input_mode == "spark" and not self._has_ended:
                self._feed_epochs()
                self._wait_for_ranks()
                self._coordinator.finish()
            self._has_restarted(attempt, max(0, ends_at - time.monotonic()))
        if not self._has_ended:
            raise TimeoutError(f"the cluster's function has not ended after {timeout:g} s")

    def _as_rows(self, data: Any) -> Any:
        return data if hasattr(data, "mapPartitionsWithIndex") else data.rdd

    def _require_ranks(self) -> None:
        """Waits until the workers have asked for rows."""
        if self._input_mode != "spark":
            raise ValueError('the workers read files: start the cluster with input_mode="spark" to feed them')
        if self._wait_for_ranks():
            return
        self._raise_if_failed()
        if self._has_ended:
            raise feeding.FeedError("the function has ended without asking for rows (context.get_data_feed())")
        raise feeding.FeedError(f"the workers have not asked for rows in {self._timeout_s:g} s")

    def _wait_for_ranks(self) -> bool:
        """Until the workers have asked for rows: whether they have, before the function ended and in time."""
        ends_at = time.monotonic() + self._timeout_s
        while not self._coordinator.wait_for_ranks(0.1):
            if self._has_ended or time.monotonic() > ends_at:
                return False
        return True

    def _has_restarted(self, attempt: int, wait_s: float) -> bool:
        """Whether another attempt follows this one, which may be about to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self._attempt != attempt, wait_s)
            return self._attempt != attempt

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            raise self._error


def _start_tensorboard(folder: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--bind_all"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


# ---- in a task


@dataclass(frozen=True)
class RoleTask:
    """What a task of the stage does: it has one of the roles."""

    call: bytes
    roles: Roles
    env: dict[str, str]
    reporting: output.Reporting
    feed_address: channel.Address
    feed_key: bytes

    def __call__(self) -> tuple[int, bytes]:
        task = engine.this_task()
        reporter = output.Reporter(self.reporting, task.rank, task.host)
        with socket.create_server(("", 0)) as reserved:
            own = f"{task.rank} {task.host}:{reserved.getsockname()[1]}"
            by_rank = sorted(task.gather(own), key=lambda text: int(text.split()[0]))
        addresses = [text.split()[1] for text in by_rank]
        role, index = self.roles.of(task.rank)
        spec = self.roles.cluster_spec(addresses)
        context = Context(role, index, task.rank, spec, self.roles.workers, self.feed_address, self.feed_key)
        config = {"cluster": spec, "task": {"type": role, "index": index}}
        env = {**run_function.environment(), **self.env, "TF_CONFIG": json.dumps(config)}
        with reporter.capturing():
            outcome = _in_a_process(cloudpickle.dumps((self.call, context)), env, f"{role} {index}")
        data = pickle.dumps(outcome)
        reporter.end(data if outcome.failure is not None else b"")
        return task.rank, data


# Spark's own process has been in other jobs: by TF_CONFIG, and with servers, a process joins one job.
_START = "import sys; from hvd.spark import roles; roles.serve(int(sys.argv[1]))"
_SIZE = struct.Struct(">Q")


def _in_a_process(call: bytes, env: Mapping[str, str], name: str) -> Outcome:
    """What comes of a role in a process of its own, which ends with this one."""
    read_end, write_end = os.pipe()
    path = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(write_end)],
        stdin=subprocess.PIPE,
        env={**os.environ, **env, "PYTHONPATH": path},
        pass_fds=[write_end],
    )
    os.close(write_end)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(_SIZE.pack(len(call)) + call)
            process.stdin.flush()
        with open(read_end, "rb") as pipe:
            data = pipe.read()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_S)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
    try:
        if not data:
            raise RankLostError(
                f"the process of {name} died ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
            )
    except RankLostError as error:
        return Outcome.of_failure(error)
    outcome: Outcome = pickle.loads(data)
    return outcome


def serve(result: int) -> None:
    """In that process: reads what to call from standard input, whose end is the end of the task, and writes the outcome
    to a descriptor."""
    (size,) = _SIZE.unpack(sys.stdin.buffer.read(_SIZE.size))
    call = sys.stdin.buffer.read(size)
    threading.Thread(target=_end_with_the_task, name="hvd-task", daemon=True).start()
    is_server = False
    try:
        pickled, context = cloudpickle.loads(call)
        is_server = context.job_name == "ps"
        fn, args = cloudpickle.loads(pickled)
        outcome = Outcome.of_result(fn(args, context))
    except BaseException as error:
        # hvd.init() in a server ends so, once the workers are done.
        if is_server and isinstance(error, SystemExit) and error.code in (0, None):
            outcome = Outcome.of_result(None)
        else:
            failure.tell(error)
            outcome = Outcome.of_failure(error)
    basics.shutdown()  # before the task can end, and this process with it
    with open(result, "wb") as pipe:
        pipe.write(pickle.dumps(outcome))


def _end_with_the_task() -> None:
    while os.read(sys.stdin.fileno(), 1):  # holds no lock of sys.stdin, without which the interpreter cannot end
        pass
    os._exit(1)


@dataclass
class Context:
    """Which role this task has.

    Attributes:
        job_name: "chief", "worker", "ps" or "evaluator".
        task_index: its number among those.
        executor_id: its number among all tasks of the cluster.
        cluster_spec: addresses by job_name, as in TF_CONFIG.
        num_workers: how many workers there are, the chief among them.
    """

    job_name: str
    task_index: int
    executor_id: int
    cluster_spec: dict[str, list[str]]
    num_workers: int
    feed_address: channel.Address
    feed_key: bytes

    def get_data_feed(self, train_mode: bool = True, input_mapping: Mapping[str, str] | None = None) -> DataFeed:
        """The rows that the driver brings. On a worker or the chief.

        Args:
            train_mode: without meaning; of TensorFlowOnSpark.
            input_mapping: columns, and the names by which a batch has them. Of rows without names of their own, tuples
                for instance, in the order of the fields.
        """
        inlet = feeding.Inlet(self.feed_address, self.feed_key)
        inlet.ask(self.executor_id, self.num_workers)
        return DataFeed(inlet, input_mapping)


class DataFeed:
    """On a worker: the rows that `train` and `inference` bring, until `shutdown`."""

    def __init__(self, inlet: feeding.Inlet, input_mapping: Mapping[str, str] | None) -> None:
        self._inlet = inlet
        self._names = input_mapping
        self._rows: list[tuple[Any, feeding.Asker | None, bool]] = []  # whom to answer; whether its block ends here
        self._unanswered: list[tuple[feeding.Asker | None, bool]] = []
        self._is_at_end = False

    def should_stop(self) -> bool:
        """Whether no rows come any more."""
        return self._is_at_end and not self._rows

    def next_batch(self, batch_size: int) -> Any:
        """The next rows, a list, or with an input_mapping a dict of lists by name. Waits for the first; fewer than
        `batch_size` if no more have come in a block, and none at the end.

        Raises:
            FeedError: Spark cannot make the rows, or the driver is gone.
        """
        while (
            len(self._rows) < batch_size
            and not self._is_at_end
            and not (self._rows and self._inlet.receiver.is_empty())
        ):
            self._take_block()
        taken, self._rows = self._rows[:batch_size], self._rows[batch_size:]
        self._unanswered += [(asker, ends) for _, asker, ends in taken if asker is not None]
        rows = [row for row, _, _ in taken]
        if self._names is None:
            return rows
        if rows and hasattr(rows[0], "__fields__"):  # of a DataFrame
            return {name: [row[column] for row in rows] for column, name in self._names.items()}
        columns = [list(column) for column in zip(*rows)] or [[] for _ in self._names]
        return dict(zip(self._names.values(), columns))

    def _take_block(self) -> None:
        if not self._rows:  # the function has used all that it got: it asks for more
            self._inlet.tell_used()
        block = self._inlet.receiver.take()
        if block is None:
            self._is_at_end = True
            return
        rows = blocks.Rows()
        rows.add(block)
        self._inlet.receiver.give_back(block)
        last = len(rows) - 1
        self._rows += [(row, block.asker, number == last) for number, row in enumerate(rows.take(len(rows)))]

    def batch_results(self, results: Iterable[Any]) -> None:
        """Answers the rows that came first and have no answer yet, one result for each.

        Raises:
            ValueError: there are more results than rows that want one.
        """
        answers = list(results)
        if len(answers) > len(self._unanswered):
            raise ValueError(f"{len(answers)} results for {len(self._unanswered)} rows: one for each row of a batch")
        asked, self._unanswered = self._unanswered[: len(answers)], self._unanswered[len(answers) :]
        start = 0
        for number, (asker, ends) in enumerate(asked, 1):
            is_last_for_asker = number == len(asked) or asked[number][0] is not asker
            if asker is not None and (ends or is_last_for_asker):
                asker.answer(pickle.dumps(answers[start:number]), ends)
                start = number

    def terminate(self) -> None:
        """Drops all rows that have come or come later: training is done."""
        self._rows = []
        while not self._is_at_end:
            self._inlet.tell_used()
            if (block := self._inlet.receiver.take()) is None:
                self._is_at_end = True
            elif block.asker is not None:
                raise ValueError("rows of an inference wait for results, and cannot be dropped")
