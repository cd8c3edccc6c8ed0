"""Signals that tests send to processes."""

import re
import signal
from pathlib import Path

from timeouts import wait_until


def await_taken(pid: int, number: signal.Signals) -> None:
    """Until the process has taken the signal. Another of its kind before that would be one with it."""

    def is_pending() -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        (pending,) = re.findall(r"^ShdPnd:\s+(\w+)$", status, re.MULTILINE)
        return bool(int(pending, 16) >> (number - 1) & 1)

    wait_until(lambda: not is_pending())
