"""`hvd top`: what the ranks and parameter servers of a running job do per second, as tables that are drawn anew every
second."""

from __future__ import annotations

import argparse
import contextlib
import curses
import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hvd.tools import running_jobs
from hvd.tools.running_jobs import Unreachable

PERIOD = 1.0
LONG_WAIT_NS = 500_000_000  # shorter waits for slower workers are what a bound of clocks is for
LOCK_STATES = {0: "-", 1: "proposed", 2: "locked", 3: "unlocking"}
HEADINGS = ("rank", "host", "steps/s", "ops/s", "MB/s", "wait %", "lock", "in flight", "behind", "")

SERVER_HEADINGS = ("server", "host", "shard", "pushes/s", "pulls/s", "stale", "worst", "queue KB", "rows", "MB", "")


@dataclass
class Sample:
    time: float
    ranks: dict[int, dict[str, Any]]  # numbers by their names, and the host; of who has not answered only that
    shards: dict[tuple[int, int], dict[str, Any]]  # the same by server and shard, -1: none


@dataclass
class Row:
    rank: int
    host: str
    steps: float | None = None  # in a second; None: its schedule is not locked, and nobody knows what a step is
    operations: float = 0.0
    megabytes: float = 0.0
    waiting: float = 0.0  # share of the time
    lock: str = "-"
    in_flight: int = 0
    behind: int = 0  # operations of all ranks that the foremost has submitted and this one has not
    mark: str = "no answer"
    place: str = ""  # in an elastic job, whose rows are its processes: "2 of epoch 5"


def read_table(text: str, now: float) -> Sample:
    of_ranks, _, of_servers = text.partition("\n\n")
    ranks = {line["rank"]: line for line in _read_lines(of_ranks)}
    shards = {(line["server"], line.get("shard", -1)): line for line in _read_lines(of_servers)}
    return Sample(now, ranks, shards)


def _read_lines(text: str) -> list[dict[str, Any]]:
    headings, *lines = [line.split("\t") for line in text.splitlines()] or [[]]
    read = []
    for fields in lines:
        named = dict(zip(headings, fields))
        numbers = {name: int(value) for name, value in named.items() if name != "host" and value != "-"}
        read.append({**numbers, "host": named["host"]})
    return read


def rows_between(before: Sample, after: Sample) -> list[Row]:
    elapsed = max(after.time - before.time, 1e-9)
    submitted = [rank["submitted"] for rank in after.ranks.values() if "submitted" in rank]
    is_elastic = any("epoch" in rank for rank in after.ranks.values())
    rows = []
    for number, now in sorted(after.ranks.items()):
        row = Row(number, now["host"])
        then = before.ranks.get(number, {})
        if "pid" in now and "pid" in then:
            _fill(row, then, now, elapsed, max(submitted))
        if is_elastic:
            row.place = f"{now['epoch_rank']} of epoch {now['epoch']}" if "epoch" in now else "joining"
        rows.append(row)
    _mark_stragglers(rows)
    return rows


def _fill(row: Row, then: dict[str, Any], now: dict[str, Any], elapsed: float, most_submitted: int) -> None:
    def rate(name: str) -> float:
        return float(max(now[name] - then[name], 0)) / elapsed  # a new init counts anew

    row.steps = rate("locked_steps") if now["lock_state"] == 2 else None
    row.operations = rate("operations")
    row.megabytes = rate("bytes") / 1e6
    # A wait counts when it is over; who has made no progress for longer than that has waited all the time.
    hangs = now["in_flight"] > 0 and now["since_progress_ns"] / 1e9 >= elapsed
    row.waiting = 1.0 if hangs else min(rate("exposed_ns") / 1e9, 1.0)
    row.lock = LOCK_STATES.get(now["lock_state"], "?")
    row.in_flight = now["in_flight"]
    # 0 also stands for a rank whose last operations are all of other sets; how far it is behind is not known then.
    has_begun = now["operations"] > 0 or now["in_flight"] > 0
    is_known = now["submitted"] > 0 or (now["pid"] and not has_begun)
    row.behind = most_submitted - now["submitted"] if is_known else 0
    row.mark = "stopped" if now["stopped"] else "stalled" if now["stalled"] else "" if now["pid"] else "not in init yet"


def _mark_stragglers(rows: list[Row]) -> None:
    """All ranks end an operation together, so that whoever comes last to it has not waited, and the others have waited
    for it: a rank that waits much less than most do is the one that they wait for. Where nobody waits much, nobody
    does."""
    if len(rows) < 2:
        return
    for row in rows:
        others = statistics.median(other.waiting for other in rows if other is not row)
        if row.mark in ("", "stalled") and others >= 0.1 and row.waiting < others / 2:
            row.mark = "<- the others wait for it"


@dataclass
class ShardRow:
    server: int
    host: str
    shard: str = "-"  # "copy of 1": another server answers for it
    pushes: float = 0.0  # in a second
    pulls: float = 0.0
    median: int = 0  # staleness of pushes, in updates, since the server was started
    worst: int = 0
    queue: int = 0  # bytes of requests that are not answered yet
    rows: int = 0
    bytes: int = 0
    mark: str = "no answer"


def shards_between(before: Sample, after: Sample) -> list[ShardRow]:
    elapsed = max(after.time - before.time, 1e-9)
    rows = []
    for key, now in sorted(after.shards.items()):
        row = ShardRow(key[0], now["host"])
        if "shard" in now:
            _fill_shard(row, before.shards.get(key, now), now, elapsed)
        elif "pid" in now:
            row.mark = "not in init yet" if now["pid"] == 0 else "has no shard"
        if now.get("stopped"):
            row.mark = "stopped"
        rows.append(row)
    return rows


def _fill_shard(row: ShardRow, then: dict[str, Any], now: dict[str, Any], elapsed: float) -> None:
    row.shard = str(now["shard"]) if now["answers"] else f"copy of {now['shard']}"
    row.pushes = max(now["pushes"] - then["pushes"], 0) / elapsed  # a server that was started again counts anew
    row.pulls = max(now["pulls"] - then["pulls"], 0) / elapsed
    row.median, row.worst = now["staleness_median"], now["staleness_worst"]
    row.queue, row.rows, row.bytes = now["queue"], now["rows"], now["bytes"]
    waiting = f"{now['waiting']} wait" + ("s" if now["waiting"] == 1 else "")
    is_long = now["slowest"] and now["waited_ns"] >= LONG_WAIT_NS
    row.mark = f"{waiting} for worker {now['slowest'] - 1}" if is_long else ""


def table(rows: list[Row]) -> str:
    is_elastic = any(row.place for row in rows)
    headings = ("process", "host", "rank", *HEADINGS[2:]) if is_elastic else HEADINGS
    return _aligned([headings, *(_cells(row, is_elastic) for row in rows)])


def shard_table(rows: list[ShardRow]) -> str:
    return _aligned([SERVER_HEADINGS, *(_shard_cells(row) for row in rows)])


def _aligned(lines: list[tuple[str, ...]]) -> str:
    headings = lines[0]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    text = ""
    for line in lines:
        cells = [
            cell.ljust(width) if heading in ("host", "lock", "") else cell.rjust(width)
            for cell, width, heading in zip(line, widths, headings)
        ]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def _cells(row: Row, is_elastic: bool) -> tuple[str, ...]:
    return (
        str(row.rank),
        row.host,
        *([row.place] if is_elastic else []),
        "-" if row.steps is None else f"{row.steps:.1f}",
        f"{row.operations:.0f}",
        f"{row.megabytes:.1f}",
        f"{row.waiting * 100:.0f}",
        row.lock,
        str(row.in_flight),
        str(row.behind),
        row.mark,
    )


def _shard_cells(row: ShardRow) -> tuple[str, ...]:
    return (
        str(row.server),
        row.host,
        row.shard,
        f"{row.pushes:.0f}",
        f"{row.pulls:.0f}",
        str(row.median),
        str(row.worst),
        f"{row.queue / 1e3:.1f}",
        str(row.rows),
        f"{row.bytes / 1e6:.1f}",
        row.mark,
    )


def take_sample(pid: int) -> Sample:
    text = running_jobs.ask(pid, "statuses")
    return read_table(text, time.monotonic())


def fitting(rows: list[Row], room: int) -> list[Row]:
    """As many as there is room for, those with a mark before the others."""
    chosen = sorted(rows, key=lambda row: row.mark == "")[: max(room, 0)]
    return sorted(chosen, key=lambda row: row.rank)


def screen(title: str, rows: list[Row], shards: list[ShardRow], lines: int) -> list[str]:
    """Of at most so many lines."""
    below = ["", *shard_table(shards).splitlines()] if shards else []
    room = lines - 3 - len(below)  # title, nothing, and headings
    if room < min(len(rows), 2):
        below, room = [], lines - 3
    if len(rows) <= room:
        return [title, "", *table(rows).splitlines(), *below]
    shown = fitting(rows, room - 1)
    more = f"{len(rows) - len(shown)} more ranks; those with a mark are shown first, and hvd top --once shows all"
    return [title, "", *table(shown).splitlines(), more, *below][:lines]


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _stop(number: int, _: object) -> None:
    """Of Ctrl-Z, which curses would ignore while it draws."""
    with contextlib.suppress(curses.error):  # it has not begun
        curses.endwin()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)  # returns when the process is continued
    signal.signal(number, _stop)
    with contextlib.suppress(curses.error):
        curses.flushinp()
        curses.doupdate()


@contextlib.contextmanager
def _terminal() -> Iterator[curses.window | None]:
    """The screen of curses; None where standard output is no terminal that curses can draw on. The terminal is given
    back as it was when the command ends, however that comes about (but SIGKILL), and while Ctrl-Z has stopped it. Main
    thread."""
    handlers = {signal.SIGTERM: _end, signal.SIGTSTP: _stop}  # curses leaves alone what is handled already
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    window = None
    for name in ("COLUMNS", "LINES"):  # curses believes them, and they may be older than the terminal's size
        os.environ.pop(name, None)
    try:
        if sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
            with contextlib.suppress(curses.error):
                window = curses.initscr()
                curses.noecho()
                curses.cbreak()
                curses.curs_set(0)
        yield window
    finally:
        if window is not None:
            with contextlib.suppress(curses.error):  # the terminal is gone
                curses.endwin()
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_keyboard() -> bool:
    """Whether keys may be read. In the background (hvd top > log &) they are the shell's, and whoever reads them is
    stopped by SIGTTIN."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # not the terminal that controls this process, by which nobody is stopped
        return True


def _goes_on(seconds: float) -> bool:
    """Whether the user wants to go on then; q says no, at once."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not _has_keyboard():
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0]:
            keys = os.read(sys.stdin.fileno(), 1024)
            if not keys or b"q" in keys.lower():
                return False
    return True


def _draw(window: curses.window, title: str, rows: list[Row], shards: list[ShardRow]) -> None:
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    if lines > 0 and columns > 0 and curses.is_term_resized(lines, columns):
        curses.resize_term(lines, columns)
        window.clear()
    lines, columns = window.getmaxyx()
    window.erase()
    for number, line in enumerate(screen(title, rows, shards, lines)):
        with contextlib.suppress(curses.error):  # behind the last column of the last line there is no place to go to
            window.addnstr(number, 0, line.encode("ascii", "replace").decode(), columns)
    window.refresh()


def _show(pid: int, before: Sample, after: Sample, window: curses.window | None = None) -> None:
    rows, shards = rows_between(before, after), shards_between(before, after)
    what = "processes" if any(row.place for row in rows) else "ranks"
    title = f"job of hvdrun {pid}, {len(rows)} {what}, {time.strftime('%H:%M:%S')}"
    if window is not None:
        _draw(window, title, rows, shards)
    else:
        servers = f"\n{shard_table(shards)}" if shards else ""
        print(f"{title}\n\n{table(rows)}{servers}", end="", flush=True)


def _watch(pid: int) -> None:
    before = take_sample(pid)
    with _terminal() as window:
        while _goes_on(PERIOD):
            after = take_sample(pid)
            _show(pid, before, after, window)
            before = after


def _show_once(pid: int) -> None:
    before = take_sample(pid)
    time.sleep(PERIOD)
    _show(pid, before, take_sample(pid))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="hvd top",
        description="What each rank and parameter server of a running job does; q ends it. See docs/watching.md.",
    )
    running_jobs.add_process(parser)
    parser.add_argument("--once", action="store_true", help="one table, of one second, and the end")
    options = parser.parse_args(arguments)
    try:
        pid = running_jobs.choose(options.process)
        _show_once(pid) if options.once else _watch(pid)
    except Unreachable as error:
        print(f"hvd top: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 0
    return 0
