"""hvd top at a terminal: what a user sees on it, while it runs, when it is stopped, and when it has ended."""

import contextlib
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

pytestmark = pytest.mark.quick

pytest.importorskip("hvd")
TIMEOUT = 300
RANKS = 30


class Display:
    """As much of xterm as curses uses of it, at its worst: a line that is too long goes on in the next one."""

    SEQUENCE = re.compile(r"\x1b(?:\[(\??)([\d;]*)([@-~])|\(.|[=>])")

    def __init__(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.rows = self.blank(lines)
        self.line = self.column = 0
        self.saved = None
        self.has_cursor = self.wraps = True
        self.has_wrapped = False
        self.rest = self.last = ""

    @property
    def cells(self):
        return ["".join(row).rstrip() for row in self.rows]

    def blank(self, lines):
        return [[" "] * self.columns for _ in range(lines)]

    def resize(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.rows = [(row + [" "] * columns)[:columns] for row in self.rows + self.blank(lines)][:lines]
        self.line, self.column = min(self.line, lines - 1), min(self.column, columns)

    def feed(self, text):
        text, self.rest = self.rest + text, ""
        while text:
            if text[0] == "\x1b":
                found = self.SEQUENCE.match(text)
                if not found:
                    assert len(text) < 20, repr(text)
                    self.rest = text
                    return
                if found[3]:
                    self.obey(found[1] + found[3], [int(number) for number in found[2].split(";") if number])
                text = text[found.end() :]
                continue
            self.put(text[0])
            text = text[1:]

    def obey(self, command, numbers):
        number = numbers[0] if numbers else 1
        row = self.rows[self.line]
        if command == "H":
            self.line, self.column = number - 1, numbers[1] - 1 if len(numbers) > 1 else 0
        elif command in "ABCDGd":
            self.line += {"A": -number, "B": number}.get(command, 0)
            self.column += {"C": number, "D": -number}.get(command, 0)
            if command == "G":
                self.column = number - 1
            elif command == "d":
                self.line = number - 1
        elif command == "K" and numbers == [1]:
            row[: self.column + 1] = [" "] * (self.column + 1)
        elif command == "K":
            row[min(self.column, self.columns - 1) :] = [" "] * (self.columns - min(self.column, self.columns - 1))
        elif command == "J" and numbers == [2]:
            self.rows = self.blank(self.lines)
        elif command == "J":
            self.obey("K", [])
            self.rows[self.line + 1 :] = self.blank(self.lines - self.line - 1)
        elif command == "X":
            row[self.column : self.column + number] = [" "] * len(row[self.column : self.column + number])
        elif command in "@P":
            before, after = row[: self.column], row[self.column :]
            after = [" "] * number + after if command == "@" else after[number:] + [" "] * number
            self.rows[self.line] = (before + after)[: self.columns]
        elif command == "b":
            for _ in range(number):
                self.put(self.last)
        elif command in ("?h", "?l"):
            for mode in numbers:
                self.switch(mode, command == "?h")
        else:
            assert command in ("m", "t", "r", "h", "l"), f"unknown: {command} {numbers}"

    def switch(self, mode, on):
        if mode == 1049 and on:
            self.saved = (self.rows, self.line, self.column)
            self.rows = self.blank(self.lines)
        elif mode == 1049:
            (self.rows, self.line, self.column), self.saved = self.saved, None
        elif mode == 25:
            self.has_cursor = on
        elif mode == 7:
            self.wraps = on

    def put(self, character):
        if character in "\r\b":
            self.column = 0 if character == "\r" else self.column - 1
        elif character == "\n":
            self.line += 1
        else:
            if self.column == self.columns and self.wraps:
                self.has_wrapped = True
                self.column, self.line = 0, self.line + 1
            self.scroll()
            self.column = min(self.column, self.columns - 1)
            self.rows[self.line][self.column] = self.last = character
            self.column += 1
        self.scroll()

    def scroll(self):
        if self.line == self.lines:
            self.rows = [*self.rows[1:], *self.blank(1)]
            self.line -= 1


class Terminal:
    """A shell with job control in a window of so many columns and lines."""

    def __init__(self, script, columns, lines):
        self.display = Display(columns, lines)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
            environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "100", "PS1": ""}
            os.execve("/bin/sh", ["sh", "-c", f"set -m; {script}"], environment)

    def resize(self, columns, lines):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self.display.resize(columns, lines)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def until(self, condition):
        """What is on the display when the condition is met."""
        deadline = time.monotonic() + TIMEOUT
        while not condition(self.display):
            left = deadline - time.monotonic()
            assert left > 0, "\n".join(self.display.cells)
            if select.select([self.fd], [], [], left)[0]:
                with contextlib.suppress(OSError):
                    self.display.feed(os.read(self.fd, 65536).decode())
        return self.display.cells

    def until_shown(self, pattern):
        return self.until(lambda display: any(re.search(pattern, text) for text in display.cells))

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture(scope="module")
def job(hvdrun):
    command = [hvdrun, "-v", "-np", str(RANKS), "--oversubscribe", "sleep", "600"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "all ranks are started" in line:
            break
    yield process.pid
    process.terminate()
    process.communicate(timeout=TIMEOUT)


@pytest.fixture
def top(job):
    """hvd top of the job, between two lines that tell the terminal's modes, in a window wide enough for these; {} in
    `script` is its command."""
    opened = []

    def open_terminal(columns=200, lines=24, script="echo work; stty -g; {}; echo ended $?; stty -g; read rest"):
        command = shlex.join([sys.executable, "-m", "hvd", "top", str(job)])
        opened.append(Terminal(script.format(command), columns, lines))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def draws_of(cells):
    return [int(text.split()[0]) for text in cells[3:] if re.match(r" *\d+ .*not in init yet|^ *\d+  \S", text)]


def check_restored(terminal, code):
    """The user's work is there, what came behind it, and nothing of the table."""
    cells = terminal.until(lambda display: any(f"ended {code}" in text for text in display.cells) and display.cells[3])
    assert cells[0] == "work"
    assert cells[2] == f"ended {code}"
    assert cells[3] == cells[1], "the terminal's modes are as they were"
    assert not any(cells[4:])
    assert terminal.display.has_cursor
    assert terminal.display.saved is None


def test_a_window_with_room_shows_all_ranks(top):
    terminal = top(100, RANKS + 3)
    cells = terminal.until_shown(rf"^ *{RANKS - 1} .*not in init yet")
    assert re.match(rf"job of hvdrun \d+, {RANKS} ranks, \d\d:\d\d:\d\d$", cells[0])
    assert cells[2].split()[:2] == ["rank", "host"]
    assert draws_of(cells) == list(range(RANKS))
    assert not terminal.display.has_cursor
    assert not terminal.display.has_wrapped


def test_more_ranks_than_lines_are_counted(top):
    terminal = top(80, 12)
    cells = terminal.until_shown("more ranks")
    assert cells[0].startswith("job of")
    assert draws_of(cells) == list(range(8))
    assert cells[11].startswith("22 more ranks")


@pytest.mark.parametrize("columns", [18, 33])
def test_rows_that_are_longer_than_the_window_are_cut(top, columns):
    terminal = top(columns, RANKS + 3, "{}")
    cells = terminal.until_shown(rf"^ *{RANKS - 1} ")
    assert not terminal.display.has_wrapped
    assert cells[0].startswith("job of hvdrun")
    assert max(map(len, cells)) == columns, "up to the last column"  # where a space may be in some lines
    assert cells[2].startswith("rank  host")
    assert len(cells) == RANKS + 3
    assert cells[RANKS + 2].split()[0] == str(RANKS - 1)


def test_another_size_of_the_window_is_heeded(top):
    terminal = top(80, 24)
    terminal.until_shown("more ranks")
    terminal.resize(40, 10)
    cells = terminal.until_shown("^24 more ranks")
    assert len(cells[9]) == 40
    terminal.display.has_wrapped = False
    terminal.resize(100, 40)
    cells = terminal.until_shown(rf"^ *{RANKS - 1} .*not in init yet")
    assert draws_of(cells) == list(range(RANKS))
    assert not any(cells[RANKS + 3 :]), "nothing is left of what was there"
    assert not terminal.display.has_wrapped


@pytest.mark.parametrize("keys, code", [("q", 0), ("xQ", 0), ("\x03", 0)])
def test_the_screen_is_restored_at_the_end(top, keys, code):
    terminal = top()
    terminal.until_shown("job of hvdrun")
    terminal.type(keys)
    check_restored(terminal, code)


def test_the_screen_is_restored_when_it_is_terminated(top):
    terminal = top()
    terminal.until_shown("job of hvdrun")
    os.kill(os.tcgetpgrp(terminal.fd), signal.SIGTERM)
    check_restored(terminal, 128 + signal.SIGTERM)


def test_the_screen_is_the_users_while_it_is_stopped(top):
    terminal = top(script="echo work; stty -g; {}; stty -g; read next; fg > /dev/null; echo ended $?; read rest")
    terminal.until_shown("job of hvdrun")
    terminal.type("\x1a")
    cells = terminal.until(lambda display: display.saved is None and sum(map(bool, display.cells)) >= 3)
    assert cells[0] == "work"
    assert terminal.display.has_cursor
    terminal.type("\n")
    terminal.until(lambda display: display.saved is not None and display.cells[0].startswith("job of hvdrun"))
    assert not terminal.display.has_cursor
    terminal.type("q")
    cells = terminal.until_shown("ended 0")
    modes = [text for text in cells if re.match(r"[\da-f]+:[\da-f:]+$", text)]
    assert len(modes) == 2
    assert modes[0] == modes[1]


def test_once_draws_no_screen(top):
    terminal = top(100, 50, "echo work; {} --once; echo ended $?; read rest")
    cells = terminal.until_shown("ended 0")
    assert cells[0] == "work"
    assert cells[1].startswith("job of hvdrun")
    assert draws_of(cells) == list(range(RANKS))


def test_where_the_output_is_no_terminal_tables_follow_each_other(top):
    terminal = top(100, 2 * RANKS + 10, "{} | cat")
    cells = terminal.until(lambda display: sum(text.startswith("job of hvdrun") for text in display.cells) == 2)
    assert terminal.display.saved is None and terminal.display.has_cursor
    assert cells[2].split()[:2] == ["rank", "host"]


def test_in_the_background_the_keys_are_the_shells(top):
    terminal = top(100, 2 * RANKS + 30, "{} | cat & sleep 600")
    terminal.type("keys\n")
    terminal.until(lambda display: sum(text.startswith("job of hvdrun") for text in display.cells) == 2)
