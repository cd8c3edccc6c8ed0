"""`hvd top`: what the ranks of a running job do per second, as a table that is drawn anew every second."""

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
LOCK_STATES = {0: "-", 1: "proposed", 2: "locked", 3: "unlocking"}
HEADINGS = ("rank", "host", "steps/s", "ops/s", "MB/s", "wait %", "lock", "in flight", "behind", "")


@dataclass
class Sample:
    time: float
    ranks: dict[int, dict[str, Any]]  # numbers by their names, and the host; of who has not answered only that


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
    lines = [line.split("\t") for line in text.splitlines()]
    ranks = {}
    for fields in lines[1:]:
        named = dict(zip(lines[0], fields, strict=True))
        numbers = {name: int(value) for name, value in named.items() if name != "host" and value != "-"}
        ranks[numbers["rank"]] = {**numbers, "host": named["host"]}
    return Sample(now, ranks)


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
    row.behind = most_submitted - now["submitted"] if now["submitted"] else 0
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


def table(rows: list[Row]) -> str:
    is_elastic = any(row.place for row in rows)
    headings = ("process", "host", "rank", *HEADINGS[2:]) if is_elastic else HEADINGS
    lines = [headings, *(_cells(row, is_elastic) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    text = ""
    for line in lines:
        cells = [
            cell.ljust(width) if heading in ("host", "lock", "") else cell.rjust(width)
            for cell, width, heading in zip(line, widths, headings, strict=True)
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


def take_sample(pid: int) -> Sample:
    text = running_jobs.ask(pid, "statuses")
    return read_table(text, time.monotonic())


def fitting(rows: list[Row], room: int) -> list[Row]:
    """As many as there is room for, those with a mark before the others."""
    chosen = sorted(rows, key=lambda row: row.mark == "")[: max(room, 0)]
    return sorted(chosen, key=lambda row: row.rank)


def screen(title: str, rows: list[Row], lines: int) -> list[str]:
    """Of at most so many lines."""
    room = lines - 3  # title, nothing, and headings
    if len(rows) <= room:
        return [title, "", *table(rows).splitlines()]
    shown = fitting(rows, room - 1)
    more = f"{len(rows) - len(shown)} more ranks; those with a mark are shown first, and hvd top --once shows all"
    return [title, "", *table(shown).splitlines(), more][:lines]


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


def _goes_on(seconds: float) -> bool:
    """Whether the user wants to go on then; q says no, at once."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0]:
            keys = os.read(sys.stdin.fileno(), 1024)
            if not keys or b"q" in keys.lower():
                return False
    return True


def _draw(window: curses.window, title: str, rows: list[Row]) -> None:
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    if lines > 0 and columns > 0 and curses.is_term_resized(lines, columns):
        curses.resize_term(lines, columns)
        window.clear()
    lines, columns = window.getmaxyx()
    window.erase()
    for number, line in enumerate(screen(title, rows, lines)):
        with contextlib.suppress(curses.error):  # behind the last column of the last line there is no place to go to
            window.addnstr(number, 0, line.encode("ascii", "replace").decode(), columns)
    window.refresh()


def _show(pid: int, rows: list[Row], window: curses.window | None = None) -> None:
    what = "processes" if any(row.place for row in rows) else "ranks"
    title = f"job of hvdrun {pid}, {len(rows)} {what}, {time.strftime('%H:%M:%S')}"
    if window is not None:
        _draw(window, title, rows)
    else:
        print(f"{title}\n\n{table(rows)}", end="", flush=True)


def _watch(pid: int) -> None:
    before = take_sample(pid)
    with _terminal() as window:
        while _goes_on(PERIOD):
            after = take_sample(pid)
            _show(pid, rows_between(before, after), window)
            before = after


def _show_once(pid: int) -> None:
    before = take_sample(pid)
    time.sleep(PERIOD)
    _show(pid, rows_between(before, take_sample(pid)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="hvd top", description="What each rank of a running job does per second; q ends it. See docs/watching.md."
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
