"""hvd.spark and horovod.spark with the real PySpark: an application in this process, and then one on two executors."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

os.environ["PYSPARK_PYTHON"] = sys.executable  # of the executors' processes

import pyspark
from pyspark.sql import SparkSession

import horovod.spark
import horovod.spark.common.backend
import hvd.spark
from hvd.exceptions import RankFailedError
from hvd.spark import engine

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
        "spark.task.maxFailures": "3",
    }
    if active := SparkSession.getActiveSession():
        active.stop()
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module")
def session():
    session = new_session("local[5, 3]")
    yield session
    if SparkSession.getActiveSession() is not None:
        SparkSession.getActiveSession().stop()


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
    with pytest.raises(ValueError, match="at least one rank"):
        hvd.spark.run(add_up, (1,), num_proc=0)
    assert time.monotonic() - start < 5
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
        while context.statusTracker().getActiveStageIds() == []:
            time.sleep(0.05)
        with pytest.raises(TimeoutError, match="0 of 3 ranks have started in 1 s: other jobs hold slots"):
            hvd.spark.run(add_up, (1,), num_proc=3, start_timeout=1)
    finally:
        release.touch()
        holder.join()
        release.unlink()


def test_ranks_are_numbered_by_host() -> None:
    assert engine.ranks_by_host(["b", "a", "b", "c", "a"]) == [0, 2, 1, 4, 3]


def test_horovods_names(session) -> None:
    def devices() -> list[str]:
        from horovod.spark.task import get_available_devices

        return get_available_devices()

    with pytest.warns(UserWarning, match="use_mpi has no effect"):
        assert horovod.spark.run(devices, num_proc=1, use_mpi=True) == [[]]
    backend = horovod.spark.common.backend.SparkBackend(2, env={"GREETING": "hi"}, verbose=0)
    assert backend.num_processes() == 2
    assert [result[3] for result in backend.run(add_up, args=(1,))] == ["hi", "hi"]
    assert horovod.spark.conf.SPARK_CONF_ALWAYS_RESTART_FAILED_TASK == ("spark.task.maxFailures", "2147483647")


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
    with pytest.raises(RankFailedError, match=r"rank \d of 4 \(127.0.0.1\) was lost: ExecutorLostFailure"):
        hvd.spark.run(kill_the_executor, num_proc=4, start_timeout=LIMIT_S)


def test_without_a_session() -> None:
    SparkSession.getActiveSession().stop()
    with pytest.raises(RuntimeError, match="Could not find an active SparkContext"):
        hvd.spark.run(add_up, (1,))
