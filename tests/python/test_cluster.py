"""hvd.cluster: processes of somebody else's engine, which live on when their task ends, become ranks of one job after
the other. The engine is multiprocessing here, and its processes serve all tests of this file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

import hvd
from hvd import cluster, process_set
from hvd.exceptions import HorovodInternalError, RankFailedError
from hvd.outcome import Outcome

SIZE = 3
TIME_LIMIT_S = 300
LINGER_S = 3.4  # where a launcher sees processes end, a rank waits a little longer for the one that failed
VARIABLES = ("HOROVOD_", "HVD_", "RANK", "WORLD_SIZE", "MASTER_")


def hvd_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}


def serve(rank, words, tasks, outcomes):
    """A process of the engine: one call after the other, until it is told to end."""

    def broadcast(word):
        if rank == 0:
            for _ in range(SIZE - 1):
                words.put(word)
            return word
        return words.get(timeout=TIME_LIMIT_S)

    before = hvd_variables()
    while (task := tasks.get()) is not None:
        outcome = cluster.call(task, (), {}, rank, SIZE, broadcast, {"HVD_START_TIMEOUT": "20"})
        is_clean = not hvd.is_initialized() and hvd_variables() == before
        outcomes.put((rank, outcome, is_clean))


class Engine:
    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.outcomes = context.Queue()
        self.words = context.Queue()
        self.tasks = [context.Queue() for _ in range(SIZE)]
        self.processes = [
            context.Process(target=serve, args=(rank, self.words, self.tasks[rank], self.outcomes))
            for rank in range(SIZE)
        ]
        for process in self.processes:
            process.start()

    def start(self, fn):
        for queue in self.tasks:
            queue.put(fn)

    def collect(self, count=SIZE) -> dict[int, Outcome]:
        found = {}
        for _ in range(count):
            rank, outcome, is_clean = self.outcomes.get(timeout=TIME_LIMIT_S)
            assert is_clean, f"rank {rank} has left something behind"
            found[rank] = outcome
        return found

    def run(self, fn):
        self.start(fn)
        return cluster.results(self.collect(), SIZE)

    def end(self):
        for queue in self.tasks:
            queue.put(None)
        for process in self.processes:
            process.join(10)
            process.kill()


@pytest.fixture(scope="module")
def engine():
    found = Engine()
    yield found
    found.end()


def sum_of_ranks() -> float:
    hvd.init()
    return float(hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Sum, name="sum")[0])


def place():
    return hvd.rank(), hvd.size(), os.environ["HOROVOD_RANK"], os.environ["RANK"], os.environ["MASTER_ADDR"]


def join_twice() -> list[float]:
    first = sum_of_ranks()
    hvd.shutdown()
    return [first, sum_of_ranks()]


def fail_on_last() -> None:
    if hvd.rank() == SIZE - 1:
        raise KeyError("no such sample")
    hvd.allreduce(np.zeros(1), name="for ever")


def fail_with_own_words() -> None:
    try:
        fail_on_last()
    except HorovodInternalError as error:
        raise RuntimeError("training has ended") from error


def exit_on_first() -> None:
    if hvd.rank() == 0:
        raise SystemExit(3)
    hvd.barrier()


def die_on_first() -> None:
    if hvd.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.barrier()


def fail_before_an_optimizer() -> None:
    if hvd.rank() == 0:
        raise KeyError("no such sample")
    optimizer_name()


def optimizer_name() -> str:
    return process_set.numbered_name(hvd.global_process_set, "optimizer")


def sum_in_torch_group() -> tuple[int, float]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("hvd")
    tensor = torch.tensor([float(hvd.rank())])
    dist.all_reduce(tensor)
    return dist.get_world_size(), tensor.item()


def fail_in_torch_group() -> None:
    sum_in_torch_group()
    fail_on_last()


def test_ranks_meet_and_leave(engine):
    assert engine.run(sum_of_ranks) == [3.0] * SIZE
    assert engine.run(place) == [(rank, SIZE, str(rank), str(rank), "127.0.0.1") for rank in range(SIZE)]
    assert engine.run(join_twice) == [[3.0, 3.0]] * SIZE


@pytest.mark.parametrize("fn", [fail_on_last, fail_with_own_words])
def test_the_exception_of_a_rank_is_raised_once_more(engine, fn):
    for _ in range(5):  # a loaded machine may be slow; a wait is there each time
        begin = time.monotonic()
        with pytest.raises(KeyError, match="no such sample") as found:
            engine.run(fn)
        if time.monotonic() - begin < LINGER_S:
            break
    else:
        pytest.fail("the others have waited for the process that failed, which goes on")
    cause = found.value.__cause__
    assert isinstance(cause, RankFailedError) and cause.rank == SIZE - 1
    assert "rank 2 of 3 failed" in str(cause) and "fail_on_last" in str(cause)
    assert engine.run(sum_of_ranks) == [3.0] * SIZE


def test_the_others_know_why(engine):
    engine.start(fail_on_last)
    text = engine.collect()[0].failure.traceback
    assert "KeyError: 'no such sample'" in text and "rank 2" in text


def test_sys_exit_is_a_failure(engine):
    with pytest.raises(RankFailedError, match=r"rank 0 of 3 failed:(.|\n)*SystemExit: 3"):
        engine.run(exit_on_first)


def test_optimizers_are_counted_anew_in_each_job(engine):
    with pytest.raises(KeyError, match="no such sample"):
        engine.run(fail_before_an_optimizer)
    assert engine.run(optimizer_name) == ["optimizer0"] * SIZE


def test_a_torch_group_ends_with_its_job(engine):
    with pytest.raises(KeyError, match="no such sample"):
        engine.run(fail_in_torch_group)
    for _ in range(2):
        assert engine.run(sum_in_torch_group) == [(SIZE, 3.0)] * SIZE


def test_no_second_job():
    hvd.init()
    try:
        with pytest.raises(ValueError, match="rank 0 of 1 of another job"), cluster.joined(1, 2, lambda word: word):
            pass
        assert hvd.is_initialized()
    finally:
        hvd.shutdown()


def test_outcomes_that_are_missing(engine):
    outcomes = {0: Outcome.of_result(1), 2: Outcome.of_result(2)}
    with pytest.raises(RankFailedError, match="no result of ranks: 1") as found:
        cluster.results(outcomes, SIZE)
    assert found.value.rank == 1


def test_a_killed_rank(engine):
    """The last test: the engine is one process short."""
    engine.start(die_on_first)
    outcomes = engine.collect(SIZE - 1)
    with pytest.raises(RankFailedError, match="rank 0 of 3 was killed by SIGKILL") as found:
        cluster.results(outcomes, SIZE, {0: "was killed by SIGKILL"})
    assert found.value.rank == 0
    assert all(outcome.failure.is_consequence for outcome in outcomes.values())
