"""hvd.spark and horovod.spark with the real PySpark: an application in this process, and then one on two executors."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

os.environ["PYSPARK_PYTHON"] = sys.executable  # of the executors' processes

import pyspark
from pyspark.ml.functions import array_to_vector
from pyspark.sql import Row, SparkSession

import horovod.spark
import horovod.spark.common.backend
import hvd.spark
from hvd.exceptions import RankFailedError
from hvd.spark import blocks, channel, engine, feeding, output, roles, shared_memory, sweep
from launching import PROGRAMS, ROOT, run_command

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::FutureWarning")]

# What executors do not find under the name of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

LIMIT_S = 120


def new_session(master: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "2",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    }
    if active := SparkSession.getActiveSession():
        active.stop()
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module")
def session():
    session = new_session("local[5, 2]")
    yield session
    if SparkSession.getActiveSession() is not None:
        SparkSession.getActiveSession().stop()


# ---- connections


def test_connections_take_only_those_that_know_the_key() -> None:
    served = []

    def serve(connection: channel.Connection) -> None:
        frame = connection.receive()
        served.append(bytes(frame.data))
        connection.send(frame.kind + 1, frame.data, b"!", number=frame.number)

    key = channel.new_key()
    listener = channel.Listener(key, serve, "127.0.0.1")
    address = channel.Address("127.0.0.1", listener.port)
    with socket.create_connection(address) as silent, socket.create_connection(address) as noisy:
        noisy.sendall(os.urandom(200))
        with pytest.raises(ConnectionError, match="does not answer as hvd does"):
            channel.connect(address, channel.new_key(), "the driver")
        data = os.urandom(3 << 20)
        connection = channel.connect(address, key, "the driver")
        connection.send(3, data, number=7)
        assert connection.receive() == (4, data + b"!", 7)
        with pytest.raises(channel.Closed):
            connection.receive()
        silent.close()
    assert served == [data]
    listener.close()
    with pytest.raises(ConnectionError, match=r"the driver cannot be reached at 127.0.0.1:\d+ from "):
        channel.connect(address, key, "the driver")


@pytest.mark.parametrize("is_closed", [False, True], ids=["cannot encode", "closed"])
def test_a_stream_that_takes_no_output_ends_nothing(is_closed) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = output.Console(1, "127.0.0.1", shown, None)
    reporter = output.Reporter(console.reporting, 0, "here")
    try:
        if is_closed:
            shown.close()
        reporter._connection.send(output._STDOUT, "höher\n".encode())
        reporter._connection.send(output._STDOUT, b"higher\n")
        reporter.end()
        assert console.wait_for_start(10) == 1 and console.wait_for_ends(10)
        assert console.lost() == [] and console.failures == {}
        assert is_closed or shown.buffer.getvalue() == b"[0]<stdout>:higher\n"
    finally:
        console.close()


# ---- from feeding tasks into a rank, without Spark


def send_blocks(link, numbers, last=None) -> int:
    """Sends a block for each number; two of them exceed a slot. The process is killed after the block `last`."""

    def blocks(room):
        for number in numbers:
            data = pickle.dumps([number, bytes(3 << 20 if number in (7, 70) else 10_000)])
            if number % 2:
                part = room(len(data))
                part[:] = data
                yield [part]
            else:
                yield [data]
            if number == last:
                os.kill(os.getpid(), signal.SIGKILL)

    return feeding.send_partition(link, 0, blocks)


def rows_of(receiver, epoch: int, count: int | None = None) -> list[int]:
    """The numbers of all blocks, or of the next ones."""
    found: list[int] = []
    while len(found) != count and (block := receiver.take(epoch)) is not None:
        rows = blocks.Rows()
        if rows.add(block):
            receiver.give_back(block)
        found.append(rows.take(2)[0])
    return found


@pytest.mark.parametrize("is_shared", [True, False])
def test_blocks_reach_a_rank_once_whichever_process_is_killed(monkeypatch, is_shared: bool) -> None:
    opened, shared = shared_memory.opened, []

    def open_if_shared(offer):
        shared.append(opened(offer) if is_shared else None)
        return shared[-1]

    monkeypatch.setattr(shared_memory, "opened", open_if_shared)
    receiver = feeding.Receiver(key := channel.new_key())
    link = feeding.Link([channel.Address("127.0.0.1", receiver.port)], key, 3)
    killed = multiprocessing.get_context("fork").Process(target=send_blocks, args=(link, range(200), 90))
    killed.start()  # before its epoch begins here
    try:
        receiver.begin(2, range(1))
        receiver.begin(3, range(1))
        found = rows_of(receiver, 3, 50)
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(send_blocks, link, range(200))
            assert found + rows_of(receiver, 3) == list(range(200))
            assert again.result(LIMIT_S) == 200
        killed.join(LIMIT_S)
        assert killed.exitcode == -signal.SIGKILL
        assert [one is not None for one in shared] == [is_shared] * 2
    finally:
        killed.kill()
        receiver.close()


def test_an_offer_of_another_host_is_not_taken() -> None:
    """Another process has that pid, or another file has that descriptor."""
    offered = shared_memory.Offered()
    assert offered.offer is not None and shared_memory.opened(offered.offer) is not None
    assert shared_memory.opened({**offered.offer, "name": "hvd-feed-other"}) is None
    offered.close()
    assert shared_memory.opened(offered.offer) is None and shared_memory.opened(None) is None


# ---- run


def add_up(factor: int) -> tuple[int, int, float, str]:
    import hvd

    hvd.init()
    print(f"hello from {hvd.rank()}")
    os.system("echo from a child >&2")
    total = hvd.allreduce(np.full(3, factor * (hvd.rank() + 1.0)), op=hvd.Sum)
    return hvd.rank(), hvd.size(), float(total[0]), os.environ.get("GREETING", "")


def test_results_come_by_rank_and_output_is_tagged(session) -> None:
    out, err = io.StringIO(), io.StringIO()
    results = hvd.spark.run(add_up, (2,), num_proc=3, env={"GREETING": "hi"}, stdout=out, stderr=err)
    assert results == [(rank, 3, 12.0, "hi") for rank in range(3)]
    assert sorted(out.getvalue().splitlines()) == [f"[{rank}]<stdout>:hello from {rank}" for rank in range(3)]
    assert sorted(err.getvalue().splitlines()) == [f"[{rank}]<stderr>:from a child" for rank in range(3)]
    # The same processes join another job, with other ranks.
    assert [result[:3] for result in hvd.spark.run(add_up, (1,), num_proc=2)] == [(0, 2, 3.0), (1, 2, 3.0)]


def test_a_rank_that_raises_is_the_cause_for_all(session) -> None:
    def train() -> None:
        import hvd

        if hvd.rank() == 1:
            raise KeyError("no such column")
        hvd.allreduce(np.ones(3))

    with pytest.raises(KeyError, match="no such column") as raised:
        hvd.spark.run(train, num_proc=3)
    assert isinstance(raised.value.__cause__, RankFailedError) and raised.value.__cause__.rank == 1
    assert "in train" in str(raised.value.__cause__)
    assert len("".join(traceback.format_exception(raised.value))) < 3000


def test_ranks_that_do_not_notice_a_failure_are_ended(session, monkeypatch) -> None:
    def train() -> None:
        import hvd

        if hvd.rank() == 0:
            raise ValueError("bad data")
        time.sleep(LIMIT_S)

    monkeypatch.setattr("hvd.spark.run_function._END_AFTER_FAILURE_S", 0.5)
    start = time.monotonic()
    with pytest.raises(ValueError, match="bad data"):
        hvd.spark.run(train, num_proc=2)
    assert time.monotonic() - start < LIMIT_S / 2


def test_a_rank_that_dies_is_named(session) -> None:
    def train() -> None:
        import hvd

        if hvd.rank() == 1:
            os._exit(3)
        hvd.allreduce(np.ones(3))

    with pytest.raises(RankFailedError, match=r"rank 1 of 2 \(127.0.0.1\) was lost: Python worker exited") as raised:
        hvd.spark.run(train, num_proc=2)
    assert len(str(raised.value)) < 200


def test_a_rank_that_cannot_join_holds_up_nobody(session) -> None:
    """It is in a job already: a task before has left one behind."""

    def leave_a_job_behind(_):
        import hvd

        hvd.init()
        return [os.getpid()]

    def train() -> None:
        pass

    session.sparkContext.parallelize(range(2), 2).mapPartitions(leave_a_job_behind).collect()
    with pytest.raises(ValueError, match="rank 0 of 1 of another job"):
        hvd.spark.run(train, num_proc=5)
    session.sparkContext.parallelize(range(5), 5).foreachPartition(lambda _: __import__("hvd").shutdown())


def test_errors_before_anything_starts(session, monkeypatch) -> None:
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"9 ranks need as many slots at once, but .* have 5"):
        hvd.spark.run(add_up, (1,), num_proc=9)
    with pytest.raises(ValueError, match="must be at least 1, not"):
        hvd.spark.run(add_up, (1,), num_proc=0)
    assert time.monotonic() - start < LIMIT_S  # and not after start_timeout, ten minutes
    assert engine.active().default_parallelism() == 5
    dynamic = session.sparkContext.getConf().set("spark.dynamicAllocation.enabled", "true")
    monkeypatch.setattr(session.sparkContext, "getConf", lambda: dynamic)
    with pytest.raises(ValueError, match=r"set spark.dynamicAllocation.enabled=false"):
        hvd.spark.run(add_up, (1,), num_proc=2)


def test_ranks_that_do_not_start_in_time(session) -> None:
    release = Path(f"/tmp/hvd-spark-release-{os.getpid()}")

    def hold(_):
        deadline = time.monotonic() + LIMIT_S
        while not release.exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    context = session.sparkContext
    holder = threading.Thread(target=lambda: context.parallelize(range(4), 4).foreachPartition(hold))
    holder.start()
    try:
        deadline = time.monotonic() + LIMIT_S
        while context.statusTracker().getActiveStageIds() == []:
            assert time.monotonic() < deadline, "the tasks that hold the slots have not started"
            time.sleep(0.05)
        with pytest.raises(TimeoutError, match="0 of 3 ranks have started in 1 s: other jobs hold slots"):
            hvd.spark.run(add_up, (1,), num_proc=3, start_timeout=1)
    finally:
        release.touch()
        holder.join()
        release.unlink()


def test_ranks_are_numbered_by_host() -> None:
    assert engine.ranks_by_host(["b", "a", "b", "c", "a"]) == [0, 2, 1, 4, 3]


def broadcast_to_those_that_have_joined() -> str:
    import hvd

    hvd.init()
    found = "broadcast"
    if hvd.rank() == 0:
        try:
            hvd.broadcast(np.ones(1), 0)
        except hvd.HorovodInternalError:
            found = "failed"
    hvd.join()
    return found


def test_horovods_names(session) -> None:
    def devices() -> list[str]:
        from horovod.spark.task import get_available_devices

        return get_available_devices()

    with pytest.warns(UserWarning, match="use_mpi has no effect"):
        assert horovod.spark.run(devices, num_proc=1, use_mpi=True) == [[]]
    backend = horovod.spark.common.backend.SparkBackend(2, env={"GREETING": "hi"}, verbose=0)
    assert backend.num_processes() == 2
    assert [result[3] for result in backend.run(add_up, args=(1,))] == ["hi", "hi"]
    # As with horovod's init(): see docs/horovod.md.
    assert horovod.spark.run(broadcast_to_those_that_have_joined, num_proc=2)[0] == "failed"
    assert hvd.spark.run(broadcast_to_those_that_have_joined, num_proc=2)[0] == "broadcast"
    assert horovod.spark.conf.SPARK_CONF_ALWAYS_RESTART_FAILED_TASK == ("spark.task.maxFailures", "2147483647")


# ---- feed


def read_epochs(feed, epochs: int, uneven: str = "repeat") -> list[list[tuple[int, ...]]]:
    """The numbers in the batches of each epoch."""
    import hvd

    hvd.init()
    found = []
    for _ in range(epochs):
        batches = list(feed.batches(8, uneven))
        assert all(batch.dtype == np.int64 for batch in batches)
        found.append([tuple(map(int, batch)) for batch in batches])
    return found


def read_until_join(feed) -> tuple[int, int, float, int]:
    """Rows, their sum, steps, and the rank that came last."""
    import hvd

    hvd.init()
    rows = total = steps = 0
    for batch in feed.batches(8, "join"):
        rows, total, steps = rows + len(batch), total + int(batch.sum()), steps + 1
        assert hvd.allreduce(np.ones(1), op=hvd.Sum, name="step")[0] in (1, 2)
    return rows, total, float(steps), feed.last_rank


def numbers_of(epochs_by_rank, epoch: int) -> list[int]:
    return sorted(number for epochs in epochs_by_rank for batch in set(epochs[epoch]) for number in batch)


def test_rows_of_an_rdd_reach_the_ranks_once_each_epoch(session) -> None:
    rows = session.sparkContext.parallelize(range(100), 7).map(lambda number: number * 3)
    feed = hvd.spark.feed(rows)
    by_rank = hvd.spark.run(read_epochs, (feed, 2), num_proc=3)
    for epoch in range(2):
        assert numbers_of(by_rank, epoch) == [number * 3 for number in range(100)]
        assert len({len(epochs[epoch]) for epochs in by_rank}) == 1  # 3, 2 and 2 partitions, and equally many steps
    # Spark's own bytes of rows that it has pickled already; another job of the same feed; what is left is dropped.
    feed = hvd.spark.feed(session.sparkContext.parallelize(range(100), 7))
    assert numbers_of(hvd.spark.run(read_epochs, (feed, 1), num_proc=2), 0) == list(range(100))
    stopped = hvd.spark.run(read_epochs, (feed, 2, "stop"), num_proc=3)
    assert {len(epochs[1]) for epochs in stopped} == {4}
    joined = hvd.spark.run(read_until_join, (feed,), num_proc=2)
    assert [(rows, steps) for rows, _, steps, _ in joined] == [(57, 8.0), (43, 6.0)]  # 4 and 3 partitions
    assert [last_rank for *_, last_rank in joined] == [0, 0]
    assert sum(total for _, total, *_ in joined) == sum(range(100))
    feed.close()


def test_rows_of_a_frame_come_as_columns(session) -> None:
    def read(feed):
        found = []
        for batch in feed.batches(16):
            np.testing.assert_array_equal(batch["vector"], batch["pair"])
            found.append((batch["id"].tolist(), batch["vector"].shape, list(batch["name"])))
        return found

    frame = session.range(0, 40, 1, 3).selectExpr("id", "array(id, id + 1) as pair", "concat('row ', id) as name")
    frame = frame.withColumn("vector", array_to_vector(frame.pair.cast("array<double>")))
    feed = hvd.spark.feed(frame.repartition(3, "id"))
    batches = [batch for of_rank in hvd.spark.run(read, (feed,), num_proc=2) for batch in of_rank]
    ids = [number for numbers, _, _ in batches for number in numbers]
    assert sorted(set(ids)) == list(range(40))
    assert all(shape == (len(numbers), 2) for numbers, shape, _ in batches)
    assert all(names == [f"row {number}" for number in numbers] for numbers, _, names in batches)


def test_an_epoch_whose_iterator_is_left_open_is_dropped(session) -> None:
    def read(feed) -> tuple[int, int, str]:
        left = feed.rows()
        first = next(left)
        rest = sum(len(row) > 0 for row in feed.rows())
        try:
            return len(first), rest, f"{sum(1 for _ in left)} further rows"
        except RuntimeError as error:
            return len(first), rest, str(error)

    feed = hvd.spark.feed(session.sparkContext.range(100, numSlices=1).map(lambda number: bytes(1 << 20)))
    ((first, rest, error),) = hvd.spark.run(read, (feed,), num_proc=1)
    assert (first, rest) == (1 << 20, 100) and "another one of this feed has begun" in error


def test_the_example_learns(session, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "spark"))
    import digits

    cloudpickle.register_pickle_by_value(digits)
    assert digits.run(session, ranks=2, epochs=2) > 0.75


def test_a_feeding_task_that_is_tried_again_goes_on_where_it_was(session) -> None:
    def read(feed) -> list[int]:
        return [int(row) for row in feed.rows()]

    def long(number: int) -> str:  # ten rows are a block
        return str(number).rjust(100_000)

    def fail_once(partition: int, rows, is_equal: bool):
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        for number in rows:
            if partition == 1 and number == 140 and attempt == 0:
                raise OSError("a disk that fails once")
            yield long(number if is_equal else number + attempt)

    rows = session.sparkContext.parallelize(range(200), 2)
    feed = hvd.spark.feed(rows.mapPartitionsWithIndex(lambda partition, rows: fail_once(partition, rows, True)))
    assert hvd.spark.run(read, (feed,), num_proc=2) == [list(range(100)), list(range(100, 200))]
    feed = hvd.spark.feed(rows.mapPartitionsWithIndex(lambda partition, rows: fail_once(partition, rows, False)))
    with pytest.raises(hvd.spark.FeedError, match="partition 1 was computed again, and its rows are not those"):
        hvd.spark.run(read, (feed,), num_proc=2)


def test_a_slow_rank_holds_its_tasks_up(session) -> None:
    def read(feed, produced: str) -> int:
        rows = feed.rows()
        next(rows)
        deadline = time.monotonic() + LIMIT_S
        while os.path.getsize(produced) < 64 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # for what is too much
        ahead = os.path.getsize(produced)
        return ahead + 0 * sum(1 for _ in rows)

    def produce(rows, produced: str):
        for _ in rows:
            with open(produced, "ab") as file:
                file.write(b".")
            yield bytes(1 << 20)

    path = f"/tmp/hvd-spark-produced-{os.getpid()}"
    feed = hvd.spark.feed(session.sparkContext.range(300, numSlices=1).mapPartitions(lambda rows: produce(rows, path)))
    try:
        (ahead,) = hvd.spark.run(read, (feed, path), num_proc=1)
        assert 64 <= ahead < 120 and os.path.getsize(path) == 300
    finally:
        os.unlink(path)


def test_feeds_that_cannot_begin_or_go_on(session, monkeypatch) -> None:
    def fail(number: int) -> int:
        if number == 0:
            raise ArithmeticError("bad row")
        return number

    context = session.sparkContext
    for data, message in (
        (context.parallelize(range(4), 2), "2 partitions do not feed 3 ranks"),
        (context.parallelize(range(4), 4).map(fail), "the rows has failed: ArithmeticError: bad row"),
        (context.parallelize(range(4), 4).map(threading.Lock().locked), "the rows has failed: .*cannot pickle"),
    ):
        with pytest.raises(hvd.spark.FeedError, match=message):
            hvd.spark.run(read_epochs, (hvd.spark.feed(data), 1), num_proc=3)
    told = "hold all 5 slots of this application, and feeding needs one"
    with monkeypatch.context() as patch, pytest.raises(hvd.spark.FeedError, match=told):
        patch.setattr("hvd.spark.feeds._SLOT_S", 0.1)
        hvd.spark.run(read_epochs, (hvd.spark.feed(context.parallelize(range(9), 9)), 1), num_proc=5)
    with pytest.raises(ValueError, match="a rank has got no rows"):
        hvd.spark.run(read_epochs, (hvd.spark.feed(context.parallelize([1, 2], 4)), 1), num_proc=2)
    with pytest.raises(TypeError, match="not from a list"):
        hvd.spark.feed([1, 2, 3])


# ---- cluster


def test_a_cluster_trains_and_answers_as_tfclusters_do(session) -> None:
    def work(args, context):
        if context.job_name == "evaluator":
            return "evaluated"
        import hvd

        hvd.init()
        servers = hvd.ps.connect()
        table = servers.table("sums", width=1, optimizer=hvd.ps.Add())
        feed, count = context.get_data_feed(), 0
        while not feed.should_stop():
            batch = feed.next_batch(16)
            if batch and isinstance(batch[0], str):
                feed.batch_results([text.upper() for text in batch])
            elif batch:
                count += len(batch)
                table.push([0], np.array([[sum(batch)]], dtype=np.float32))
        total = int(table.pull([0])[0, 0]) if hvd.rank() == 0 and hvd.barrier() is None else hvd.barrier()
        servers.close()
        return context.job_name, context.task_index, hvd.size(), args, count, total

    def fail(word: str) -> str:
        raise FileNotFoundError(f"no row for {word}")

    context = session.sparkContext
    cluster = hvd.spark.cluster(work, "argument", num_workers=2, num_ps=1, evaluator=True)
    cluster.train(context.parallelize(range(100), 4), num_epochs=2)
    words = context.parallelize([f"word {number}" for number in range(50)], 3)
    answers = cluster.inference(words.filter(lambda word: not word.endswith("3")))
    assert answers.collect() == [f"WORD {number}" for number in range(50) if number % 10 != 3]
    with pytest.raises(Exception, match=r"no row for word (0|16|33)"):  # each is the first of a partition
        cluster.inference(words.map(fail)).collect()
    chief, worker, evaluator = cluster.shutdown(timeout=LIMIT_S)
    assert chief[:4] == ("chief", 0, 2, "argument") and worker[:4] == ("worker", 0, 2, "argument")
    assert evaluator == "evaluated"
    assert chief[4] + worker[4] == 200 and chief[5] == 9900


def test_a_batch_has_the_columns_that_were_asked_for() -> None:
    def batch(rows, mapping):
        feed = roles.DataFeed(None, mapping)
        feed._rows, feed._is_at_end = [(row, None, False) for row in rows], True
        return feed.next_batch(5)

    rows = [Row(size=1, weight=2.0), Row(size=3, weight=4.0)]
    assert batch(rows, {"weight": "w"}) == {"w": [2.0, 4.0]}
    assert batch(rows, {"weight": "w", "size": "s"}) == {"w": [2.0, 4.0], "s": [1, 3]}
    assert batch([(1, 2.0), (3, 4.0)], {"size": "s", "weight": "w"}) == {"w": [2.0, 4.0], "s": [1, 3]}
    assert batch([], {"weight": "w"}) == {"w": []}


def test_a_cluster_that_fails_says_why(session, monkeypatch) -> None:
    monkeypatch.setattr(roles, "_start_tensorboard", lambda folder: pytest.fail("started before what may fail"))
    lock = threading.Lock()
    with pytest.raises(TypeError, match="pickle"):
        hvd.spark.cluster(lambda args, context: lock, num_workers=2, tensorboard="logs")

    def work(args, context):
        feed = context.get_data_feed()
        while not feed.should_stop():
            if feed.next_batch(4) and context.job_name == "worker":
                raise ArithmeticError("a bad batch")

    boards: list[subprocess.Popen] = []

    def start_board(folder: str) -> subprocess.Popen:
        boards.append(subprocess.Popen(["sleep", "1000"]))
        return boards[-1]

    monkeypatch.setattr(roles, "_start_tensorboard", start_board)
    cluster = hvd.spark.cluster(work, num_workers=2, tensorboard="logs")
    with pytest.raises(ArithmeticError, match="a bad batch"):
        for _ in range(1000):
            cluster.train(session.sparkContext.parallelize(range(1000), 4))
    assert boards[0].wait(LIMIT_S) == -signal.SIGTERM  # without shutdown
    with pytest.raises(ArithmeticError, match="a bad batch"):
        cluster.shutdown(timeout=LIMIT_S)
    reader = hvd.spark.cluster(lambda args, context: context.executor_id, num_workers=2, input_mode="files")
    with pytest.raises(ValueError, match="the workers read files"):
        reader.train(session.sparkContext.parallelize(range(2), 2))
    assert reader.shutdown(timeout=LIMIT_S) == [0, 1]


def test_tensorboard_ends_with_the_cluster(session, monkeypatch) -> None:
    board = subprocess.Popen(["sleep", "1000"])
    monkeypatch.setattr(roles, "_start_tensorboard", lambda folder: board)

    def work(args, context):
        feed, count = context.get_data_feed(), 0
        while not feed.should_stop():
            count += len(feed.next_batch(4))
        return count

    cluster = hvd.spark.cluster(work, num_workers=2, tensorboard="logs")
    cluster.train(session.sparkContext.parallelize(range(20), 4))
    assert board.poll() is None
    assert sum(cluster.shutdown(timeout=LIMIT_S)) == 20
    assert board.wait(LIMIT_S) == -signal.SIGTERM


def train_to_three(folder: str, context) -> tuple[float, int, int]:
    """Fits a mean, and writes it after each step; the chief's process is killed once."""
    import hvd

    hvd.init()
    is_chief, checkpoint, killed = context.job_name == "chief", Path(folder, "checkpoint"), Path(folder, "killed")
    mean, steps = map(float, checkpoint.read_text().split()) if checkpoint.exists() else (0.0, 0.0)
    mean, steps = hvd.broadcast_object((mean, steps))
    feed, rows = context.get_data_feed(), 0
    while True:
        batch = feed.next_batch(10)
        share = hvd.allreduce(np.array([sum(batch), len(batch)], dtype=np.float64), op=hvd.Sum, name="share")
        if share[1] == 0:
            return mean, int(steps), rows
        mean, steps, rows = mean + 0.2 * (share[0] / share[1] - mean), steps + 1, rows + len(batch)
        if is_chief:
            Path(folder, "unfinished").write_text(f"{mean} {steps}")
            Path(folder, "unfinished").rename(checkpoint)
            if steps == 5 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def test_a_cluster_goes_on_when_its_chief_is_killed(session, tmp_path, capfd) -> None:
    rows = session.sparkContext.parallelize([3.0] * 80, 4)
    cluster = hvd.spark.cluster(train_to_three, str(tmp_path), num_workers=2, restarts=1)
    cluster.train(rows, num_epochs=4)
    (mean, steps, rows_of_chief), (mean_of_worker, _, rows_of_worker) = cluster.shutdown(timeout=LIMIT_S)
    assert (tmp_path / "killed").exists() and mean == mean_of_worker == pytest.approx(3 * (1 - 0.8**steps))
    # Whole epochs, those that were not used before; after five steps from the checkpoint.
    fed = rows_of_chief + rows_of_worker
    assert fed in (160, 240, 320) and steps >= 5 + fed / 20
    assert "all roles are started again, because the process of chief 0 died (signal 9)" in capfd.readouterr().err
    for left in ("killed", "checkpoint"):
        (tmp_path / left).unlink()
    cluster = hvd.spark.cluster(train_to_three, str(tmp_path), num_workers=2)
    with pytest.raises(RankFailedError, match=r"the process of chief 0 died \(signal 9\)"):
        cluster.train(rows, num_epochs=4)
        cluster.shutdown(timeout=LIMIT_S)


# ---- experiments


def test_a_sweep_has_its_best_trial_first(session, tmp_path) -> None:
    def train(rate: float, width: int, log_dir: str) -> dict[str, float]:
        import hvd

        hvd.init()
        print(f"rate {rate}")
        if rate == 0.1 and width == 8:
            raise FloatingPointError("diverged")
        return {"loss": float(hvd.allreduce(np.array([rate * width]), op=hvd.Sum)[0]), "size": hvd.size()}

    space = {"rate": [0.1, 0.01, 1], "width": [8, 4]}
    table = hvd.spark.experiments(train, space, parallel=2, num_proc=2, metric="loss", log_dir=str(tmp_path))
    rows = table.collect()
    assert [(row.rate, row.width, row.value) for row in rows] == [
        (0.01, 4, 0.08),
        (0.01, 8, 0.16),
        (0.1, 4, 0.8),
        (1.0, 4, 8.0),
        (1.0, 8, 16.0),
        (0.1, 8, None),
    ]
    assert rows[-1].error == "FloatingPointError: diverged" and rows[0].results == '{"loss": 0.08, "size": 2}'
    assert sorted(Path(rows[0].log_dir, "output").read_text().splitlines()) == [
        "[0]<stdout>:rate 0.01",
        "[1]<stdout>:rate 0.01",
    ]
    assert {path.name for path in Path(rows[0].log_dir).iterdir()} == {"output", "parameters.json", "result.json"}


def test_a_sweep_of_given_trials(session, capsys, monkeypatch) -> None:
    def train(kind: str, depth: int | None = None) -> float:
        print(kind)
        return float(depth or 0)

    # The active session of Spark Connect is one of this thread only.
    active, caller = engine.active, threading.get_ident()
    monkeypatch.setattr(engine, "active", lambda: active() if threading.get_ident() == caller else None)
    table = hvd.spark.experiments(train, [{"kind": "tree", "depth": 3}, {"kind": "line"}], maximize=True)
    assert [(row.trial, row.kind, row.depth, row.value) for row in table.collect()] == [
        (0, "tree", 3, 3.0),
        (1, "line", None, 0.0),
    ]
    assert "trial 1 [0]<stdout>:line" in capsys.readouterr().out
    with pytest.raises(ValueError, match="the space is empty"):
        hvd.spark.experiments(train, {"kind": []})
    with pytest.raises(ValueError, match="8 ranks need as many slots"):
        hvd.spark.experiments(train, [{"kind": "tree"}], parallel=4, num_proc=2)


def test_a_sweep_over_numbers_of_numpy() -> None:
    trials = [sweep.Trial(number, {"width": width}) for number, width in enumerate(np.arange(8, 10))]
    trials[0].note({"loss": np.float32(0.5)}, "loss")
    rows, schema = sweep._table(trials)
    assert schema["width"].dataType.typeName() == "long" and [row[1] for row in rows] == [8, 9]
    assert rows[0][2:4] == (0.5, '{"loss": 0.5}')


# ---- run_elastic


def process_of_this_task() -> int:
    """Spark's Python process above this rank: the nearest ancestor that runs pyspark."""
    pid = os.getpid()
    while "pyspark" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def count_to(folder: str, last: int) -> tuple[int, list[int]]:
    """Counts to `last`, and until two ranks are back after one of them has lost its task."""
    import hvd
    from hvd import elastic

    hvd.init()
    print("started")
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, count=0, sizes=[])

    def loop(state):
        while state.count < last or state.sizes[-1] < 2:
            state.sizes.append(int(hvd.allreduce(np.ones(1), op=hvd.Sum, name="size")[0]))
            state.count += 1
            state.commit()
            if hvd.rank() == 1 and not os.path.exists(f"{folder}/killed"):
                Path(f"{folder}/killed").touch()
                os.kill(process_of_this_task(), signal.SIGKILL)
            time.sleep(0.01)
        return state.count, state.sizes

    return elastic.run_fn(loop, elastic.join_anew)(state)


def test_an_elastic_job_goes_on_when_a_task_is_lost(session, tmp_path) -> None:
    out, err = io.StringIO(), io.StringIO()
    results = horovod.spark.run_elastic(
        count_to, (str(tmp_path), 50), num_proc=2, min_np=1, start_timeout=LIMIT_S, stdout=out, stderr=err
    )
    assert (tmp_path / "killed").exists()
    assert len(results) == 2 and results[0] == results[1], err.getvalue()
    assert results[0][0] >= 50 and results[0][1][0] == 2 and 1 in results[0][1]
    assert "[0]<stdout>:started" in out.getvalue()


def test_elastic_jobs_that_cannot_begin(session) -> None:
    with pytest.raises(TimeoutError, match=r"[0-5] of 6 tasks have started in 3 s"):
        hvd.spark.run_elastic(count_to, num_proc=6, start_timeout=3)
    with pytest.raises(ValueError, match="min_num_proc is 4, num_proc is 2, max_num_proc is 4: expected 1 <="):
        hvd.spark.run_elastic(count_to, num_proc=2, min_num_proc=4)


@pytest.mark.long
def test_spark_connect() -> None:
    done = run_command([sys.executable, str(PROGRAMS / "spark_connect.py")], limit_s=LIMIT_S)
    wanted = [
        "[(0, [11.0, 11.0, 11.0]), (1, [11.0, 11.0, 11.0])]",
        "'what rank 1 did' by rank 1 at once",
        "1.0 3.0",
    ]
    for name in ("feed", "run_elastic", "cluster"):
        wanted.append(f"hvd.spark.{name} needs a classic session, whose driver is this process, and not Spark Connect")
    assert done.returncode == 0 and [line for line in done.output.splitlines() if line in wanted] == wanted, done.output


# ---- on two executors; last, because an application of its own follows


def executor_of_this_task() -> int:
    """The pid of the JVM: the worker's parent is the daemon that it has started."""
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_two_executors(session) -> None:
    def train() -> tuple[str, int]:
        import hvd

        hvd.init()
        return os.environ["SPARK_EXECUTOR_DIRS"], hvd.local_size()

    def kill_the_executor() -> None:
        import hvd

        if hvd.rank() == 3:
            os.kill(executor_of_this_task(), signal.SIGKILL)
        hvd.allreduce(np.ones(3))

    new_session("local-cluster[2,2,1024]")
    found = hvd.spark.run(train, num_proc=4, start_timeout=LIMIT_S)
    assert len({executor for executor, _ in found}) == 2
    assert [local_size for _, local_size in found] == [4] * 4
    with pytest.raises(RankFailedError, match=r"an executor with ranks was lost: .*executor \d exited"):
        hvd.spark.run(kill_the_executor, num_proc=4, start_timeout=LIMIT_S)


def test_without_a_session() -> None:
    SparkSession.getActiveSession().stop()
    with pytest.raises(RuntimeError, match="Could not find an active SparkContext"):
        hvd.spark.run(add_up, (1,))
