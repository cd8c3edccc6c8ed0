"""The terminal's window while a command has it for itself: a screen without a cursor, beside the one with the user's
work on it, and keys that come one by one and unseen. Given back as it was at the end, however that comes about (but
SIGKILL), and as long as the command is stopped by Ctrl-Z.

Where standard output or input is no terminal, that half is left as it is."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l"  # xterm's names for it, which all terminals of today understand
_LEAVE = "\x1b[?25h\x1b[?1049l"


class Window:
    def __init__(self) -> None:
        self.is_screen = sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self._is_entered = False
        self._modes: list[Any] | None = None  # of standard input, as they were before

    def size(self) -> os.terminal_size:
        """Now. Of the window itself: COLUMNS and LINES may be older than it."""
        size = os.get_terminal_size(sys.stdout.fileno())
        return size if size.columns > 0 and size.lines > 0 else os.terminal_size((80, 24))

    def draw(self, lines: list[str]) -> None:
        """Over what was there; what does not fit is cut off."""
        size = self.size()
        # Each line is cleared before it is written: behind a full one that would take its last character.
        drawn = ["\x1b[K" + line[: size.columns] for line in lines[: size.lines]]
        rest = "\r\n\x1b[J" if len(drawn) < size.lines else ""
        _write("\x1b[H" + "\r\n".join(drawn) + rest)

    def wait(self, seconds: float) -> bool:
        """Whether the user wants to go on then; q says no, at once."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._modes is None:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                keys = os.read(sys.stdin.fileno(), 1024)
                if not keys or b"q" in keys.lower():
                    return False
        return True

    def enter(self) -> None:
        if sys.stdin.isatty():
            import termios
            import tty

            self._modes = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        if self.is_screen:
            self._is_entered = True
            _write(_ENTER)

    def leave(self) -> None:
        """Twice is once."""
        if self._is_entered:
            self._is_entered = False
            with contextlib.suppress(OSError):  # the terminal is gone
                _write(_LEAVE)
        if self._modes is not None:
            import termios

            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)
            self._modes = None

    def stop(self, *_: object) -> None:
        """On Ctrl-Z."""
        self.leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # here it is stopped; SIGCONT is what comes next
        signal.signal(signal.SIGTSTP, self.stop)
        self.enter()


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _write(text: str) -> None:
    # Past Python's buffer, in whose midst a signal may find us.
    left = text.encode(errors="replace")
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


@contextlib.contextmanager
def window() -> Iterator[Window]:
    """Main thread."""
    result = Window()
    before = {}
    try:
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, result.stop)
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, _end)
        result.enter()
        yield result
    finally:
        result.leave()
        for number, handler in before.items():
            signal.signal(number, handler)
