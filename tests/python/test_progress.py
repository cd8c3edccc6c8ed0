"""hvd.tqdm: one bar with the steps of all ranks."""

from __future__ import annotations

import io
import sys

import pytest

import hvd
from hvd import objects

LONG_S = 120  # nobody is as late


def bar_of(*given, **options):
    """With what it has written; numbers come as fast as they can, and the bar ends with the last one."""
    written = io.StringIO()
    return hvd.tqdm(*given, file=written, interval_s=0.001, timeout_s=LONG_S, **options), written


@pytest.mark.ranks(2)
def test_rank_0_shows_the_steps_of_all_ranks():
    own = [50, 150][hvd.rank()]
    bar, written = bar_of(range(own), desc="training")
    assert list(bar) == list(range(own)) and len(bar) == own
    if hvd.rank() == 0:
        last = written.getvalue().split("\r")[-1]
        assert last.startswith("training: 100%") and "200/200" in last
    else:
        assert written.getvalue() == ""


@pytest.mark.ranks(2)
def test_a_length_that_is_not_known_until_the_end():
    class Stream(list):
        def __len__(self):  # as a DataLoader of a stream
            raise TypeError("no len()")

    bar, _ = bar_of(Stream([1, 2, 3]))
    assert list(bar) == [1, 2, 3]


@pytest.mark.ranks(2)
def test_no_step_waits_for_another_rank():
    if hvd.rank() == 1:
        objects.broadcast_object(None, name="progress.made")  # rank 0 has made all of its steps
    bar, written = bar_of(total=1000)
    if hvd.rank() == 0:
        for _ in range(1000):
            bar.update()
        objects.broadcast_object(None, name="progress.made")
    bar.update(5)
    bar.close()
    assert ("1010/2000" in written.getvalue()) == (hvd.rank() == 0)


@pytest.mark.ranks(2)
def test_a_rank_may_leave_its_loop_and_not_know_its_total():
    bar, written = bar_of(iter(range(50)))
    steps = iter(bar)
    for step in steps:
        if step == 9 and hvd.rank() == 1:
            break
    steps.close()
    if hvd.rank() == 0:
        assert "59it" in written.getvalue().split("\r")[-1]


@pytest.mark.ranks(1)
def test_one_rank_has_tqdms_own():
    bar, written = bar_of(range(3))
    assert list(bar) == [0, 1, 2]
    bar.set_postfix(loss=1)
    assert "3/3" in written.getvalue()


@pytest.mark.quick
def test_without_a_job_it_is_tqdms_own():
    written = io.StringIO()
    with hvd.tqdm(total=7, file=written) as bar:
        bar.update(7)
    assert "7/7" in written.getvalue()
    with pytest.raises(TypeError, match="give it an iterable"):
        next(iter(bar))


@pytest.mark.quick
def test_without_tqdm_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="pip install tqdm"):
        hvd.tqdm(range(3))


@pytest.mark.ranks(2)
def test_steps_made_before_count_on_every_rank():
    bar, written = bar_of(total=10, initial=5)
    bar.update(5)
    bar.close()
    assert ("20/20" in written.getvalue().split("\r")[-1]) == (hvd.rank() == 0)


@pytest.mark.ranks(2)
def test_where_there_is_no_terminal_none_disables_it():
    bar, written = bar_of(range(3), disable=None)
    assert list(bar) == [0, 1, 2] and written.getvalue() == ""


@pytest.mark.quick
def test_it_is_called_and_asked_as_tqdm_is():
    bar, written = bar_of(iter(range(3)), "epoch 1", 3)
    assert bar and len(bar) == 3 and list(bar) == [0, 1, 2]
    assert "epoch 1: 100%" in written.getvalue()
    assert bar_of()[0] and not bar_of(total=0)[0]
    line = io.StringIO()
    hvd.tqdm.write("a line", file=line)
    assert line.getvalue() == "a line\n"
