"""hvd top: rates and marks from two samples, without a job."""

from __future__ import annotations

import pytest

from hvd.tools import top

pytestmark = pytest.mark.quick

NAMES = ["rank", "host", "pid", "stopped", "operations", "bytes", "locked_steps", "rounds", "lock_state"]
NAMES += ["exposed_ns", "since_progress_ns", "submitted", "in_flight", "stalled"]


def sample(time, *ranks):
    """Of each rank what differs from nothing."""
    lines = ["\t".join(NAMES)]
    for number, values in enumerate(ranks):
        line = {**dict.fromkeys(NAMES, 0), "pid": 100, "rank": number, "host": f"h{number}", **values}
        lines.append("\t".join(str(line[name]) for name in NAMES))
    return top.read_table("\n".join(lines) + "\n", time)


def marks(*waiting, **values):
    """After a second in which the ranks have waited so long."""
    before = sample(0, *[values] * len(waiting))
    after = sample(1, *[{**values, "exposed_ns": int(share * 1e9)} for share in waiting])
    return [row.mark for row in top.rows_between(before, after)]


def test_rates_are_differences_by_time():
    then = {
        "operations": 100,
        "bytes": 10**6,
        "locked_steps": 5,
        "lock_state": 2,
        "exposed_ns": 10**9,
        "submitted": 100,
    }
    now = {**then, "operations": 300, "bytes": 5 * 10**6, "locked_steps": 25, "exposed_ns": 2 * 10**9, "submitted": 301}
    first, second = top.rows_between(sample(0, then, then), sample(2, now, {**now, "submitted": 298}))
    assert (first.operations, first.megabytes, first.steps, first.waiting) == (100, 2, 10, 0.5)
    assert (first.lock, first.behind, second.behind) == ("locked", 0, 3)


def test_without_a_lock_there_are_no_steps():
    row, *_ = top.rows_between(sample(0, {}), sample(1, {}))
    assert row.steps is None
    assert top.table([row]).splitlines()[1].split() == ["0", "h0", "-", "0", "0.0", "0", "-", "0", "0"]


def test_the_processes_of_an_elastic_job_have_a_rank_or_are_joining():
    text = "\t".join([*NAMES, "epoch", "epoch_rank"]) + "\n"
    for process, place in ((2, "5\t0"), (7, "-\t-")):
        text += f"{process}\th1\t" + "0\t" * (len(NAMES) - 2) + place + "\n"
    rows = top.rows_between(top.read_table(text, 0), top.read_table(text, 1))
    assert [row.place for row in rows] == ["0 of epoch 5", "joining"]
    heading, *lines = top.table(rows).splitlines()
    assert heading.split()[:4] == ["process", "host", "rank", "steps/s"]
    assert lines[0].split()[:6] == ["2", "h1", "0", "of", "epoch", "5"] and lines[1].split()[:3] == [
        "7",
        "h1",
        "joining",
    ]


def test_who_began_anew_has_no_negative_rates():
    row, *_ = top.rows_between(sample(0, {"operations": 500}), sample(1, {"operations": 3}))
    assert row.operations == 0


@pytest.mark.parametrize(
    "waiting, stragglers",
    [
        ((0.9, 0.02, 0.9, 0.88), [1]),
        ((0.9, 0.05), [1]),
        ((0.5, 0.4, 0.45), []),
        ((0.05, 0.0, 0.06), []),  # nobody waits much
        ((0.9, 0.1, 0.1, 0.9, 0.9), [1, 2]),
        ((0.9,), []),
    ],
)
def test_the_rank_that_the_others_wait_for_waits_least(waiting, stragglers):
    found = [number for number, mark in enumerate(marks(*waiting)) if mark.startswith("<-")]
    assert found == stragglers


def test_a_wait_that_does_not_end_counts():
    hanging = {"in_flight": 1, "since_progress_ns": 5 * 10**9, "stalled": 1}
    first, second = top.rows_between(sample(0, hanging, {}), sample(1, hanging, {"since_progress_ns": 5 * 10**9}))
    assert (first.waiting, first.mark) == (1.0, "stalled")
    assert second.mark.startswith("<-")


def test_what_keeps_a_rank_from_waiting_is_named_first():
    assert marks(0, 0, stopped=1) == ["stopped"] * 2
    assert marks(0, 0, pid=0) == ["not in init yet"] * 2


def test_a_rank_that_does_not_answer_has_no_numbers():
    silent = {name: "-" for name in NAMES if name not in ("rank", "host")}
    rows = top.rows_between(sample(0, {}, {}), sample(1, {}, silent))
    assert [row.mark for row in rows] == ["", "no answer"]


@pytest.mark.parametrize(
    "marked, lines, shown, more",
    [
        ([], 13, list(range(10)), False),
        ([], 12, list(range(8)), True),
        ([7, 9], 7, [0, 7, 9], True),
        (range(4, 10), 6, [4, 5], True),
        ([3], 4, [], True),
        ([3], 2, [], False),
    ],
)
def test_where_lines_are_few_ranks_with_a_mark_come_first(marked, lines, shown, more):
    rows = [top.Row(number, "h", mark="stalled" if number in marked else "") for number in range(10)]
    drawn = top.screen("title", rows, [], lines)
    assert len(drawn) <= lines
    assert drawn[0] == "title"
    assert [int(text.split()[0]) for text in drawn[3 : 3 + len(shown)]] == shown
    assert [text for text in drawn if "more ranks" in text] == drawn[-1:] * more
    assert not more or drawn[-1].startswith(f"{10 - len(shown)} more ranks")


SERVER_NAMES = ["server", "host", "pid", "stopped", "shard", "answers", "pushes", "pulls", "rows", "bytes"]
SERVER_NAMES += ["staleness_median", "staleness_worst", "queue", "waiting", "slowest", "waited_ns"]


def server_sample(time, *servers):
    ranks = "\t".join(NAMES) + "\n" + "\t".join(["0", "h0", *["0"] * (len(NAMES) - 2)]) + "\n"
    lines = ["\t".join(SERVER_NAMES)]
    for values in servers:
        line = {**dict.fromkeys(SERVER_NAMES, 0), "host": "h1", "pid": 7, "answers": 1, **values}
        lines.append("\t".join(str(line[name]) for name in SERVER_NAMES))
    return top.read_table(ranks + "\n" + "\n".join(lines) + "\n", time)


def test_shards_of_servers_have_rates_and_marks():
    silent = {"server": 2, **{name: "-" for name in SERVER_NAMES[2:]}}
    begins = {"server": 3, "pid": 0, **{name: "-" for name in SERVER_NAMES[4:]}}
    before = server_sample(0, {"pushes": 100, "pulls": 50}, {"server": 1, "shard": 1, "pushes": 9}, silent)
    now = {"pushes": 300, "pulls": 60, "staleness_median": 3, "staleness_worst": 12, "queue": 2500, "rows": 5}
    copy = {"server": 1, "shard": 0, "answers": 0, "bytes": 2_000_000}
    after = server_sample(
        2,
        {**now, "waiting": 2, "slowest": 4, "waited_ns": 10**9},
        {"server": 1, "shard": 1, "pushes": 2, "stopped": 1},
        copy,
        silent,
        begins,
    )
    heading, *lines = top.shard_table(top.shards_between(before, after)).splitlines()
    assert heading.split()[:5] == ["server", "host", "shard", "pushes/s", "pulls/s"]
    assert [" ".join(line.split()) for line in lines] == [
        "0 h1 0 100 5 3 12 2.5 5 0.0 2 wait for worker 3",
        "1 h1 copy of 0 0 0 0 0 0.0 0 2.0",
        "1 h1 1 0 0 0 0 0.0 0 0.0 stopped",
        "2 h1 - 0 0 0 0 0.0 0 0.0 no answer",
        "3 h1 - 0 0 0 0 0.0 0 0.0 not in init yet",
    ]
    assert len(top.rows_between(before, after)) == 1
    assert top.screen("title", top.rows_between(before, after), top.shards_between(before, after), 24)[-1].endswith(
        "yet"
    )


def test_who_has_submitted_nothing_is_behind_by_all():
    of_other_sets = {"operations": 5000}  # of these alone: how far it is behind is not known
    ranks = [{"submitted": 3, "in_flight": 3}, {}, {"pid": 0}, of_other_sets]
    rows = top.rows_between(sample(0, *ranks), sample(1, *ranks))
    assert [row.behind for row in rows] == [0, 3, 0, 0]


def test_python_3_9_can_read_and_draw_a_table(monkeypatch):
    monkeypatch.setattr(top, "zip", lambda *sequences: zip(*sequences), raising=False)  # no strict= before 3.10
    read = top.read_table("rank\thost\n0\th1\n", 0.0)
    assert read.ranks == {0: {"rank": 0, "host": "h1"}}
    assert top.table([top.Row(0, "h1")]).splitlines()[1].split()[:2] == ["0", "h1"]
