"""`hvd bench --training`: how spans divide a thread's time, and what is printed."""

import itertools
import re

import pytest

from hvd.tools import training_step
from hvd.tools.training_step import BACKWARD, COMMUNICATING, DISTRIBUTED, FORWARD, HOOKS, PLAIN, UPDATE, Spans

pytestmark = pytest.mark.quick


@pytest.fixture
def spans(monkeypatch):
    """On a clock that goes on by 1 ns whenever it is read, and by what tick() is given."""
    clock = itertools.count(1)
    monkeypatch.setattr(training_step.time, "monotonic_ns", lambda: next(clock))
    spans = Spans()
    spans.tick = lambda count: [next(clock) for _ in range(count)]
    return spans


def test_the_inner_span_has_the_time(spans):
    inner = spans.around(HOOKS, lambda: spans.tick(10))
    spans.around(BACKWARD, lambda: (spans.tick(5), inner(), spans.tick(3), inner()))()
    spans.tick(2)
    spans.switch()
    assert spans.nanoseconds == {FORWARD: 4, BACKWARD: 11, HOOKS: 22}


def test_a_span_ends_with_an_exception(spans):
    with pytest.raises(ZeroDivisionError):
        spans.around(UPDATE, lambda: 1 // 0)()
    spans.tick(5)
    spans.switch()
    assert spans.nanoseconds == {FORWARD: 7, UPDATE: 1}


def test_a_pass_begins_to_communicate_once(spans):
    wait = spans.around(COMMUNICATING, lambda: spans.tick(1))
    backward = spans.around(BACKWARD, lambda: (wait(), wait()))
    backward()
    backward()
    assert len(spans.began) == 2 and spans.began[0] < spans.began[1]


def test_the_table_has_two_columns_for_each_rank():
    threads = {"training": {"cpu": 1e-3, "queued": 0.0, "turns": 0.5}}
    sides = {
        PLAIN: {"step": 0.001, "spans": {FORWARD: 0.0006, BACKWARD: 0.0004}, "threads": threads},
        DISTRIBUTED: {"step": 0.002, "spans": {FORWARD: 0.0006, COMMUNICATING: 0.0014}, "threads": threads},
    }
    what = dict.fromkeys(("version", "torch", "cpus", "threads", "workload", "batch", "steps", "rounds"), 1)
    lines = training_step.table({**what, "ranks": 2, "parameters": 1, "by_rank": [sides, sides]}).splitlines()
    assert len({len(line) for line in lines[2:]}) == 1
    rows = dict(re.fullmatch(r"(\S.*?) {2,}(.*)", line.strip()).groups() for line in lines[4:])
    assert rows["the step"].split() == ["1000", "2000"] * 2
    assert rows["handing over, moving, adding, waking"].split() == ["0", "1400"] * 2
    assert rows["training: turns on a CPU"].split() == ["0.5"] * 4
    assert not {"hooks: a gradient is ready", "hvd: on a CPU"} & rows.keys()
