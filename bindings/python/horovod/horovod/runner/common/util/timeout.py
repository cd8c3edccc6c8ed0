"""A time limit shared by several activities."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time is up."""


class Timeout:
    """A deadline; the time starts at construction.

    Args:
        timeout: in seconds.
        message: of the exception; `{activity}` in it is replaced.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._deadline = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def timed_out(self) -> bool:
        return self.remaining() == 0

    def check_time_out_for(self, activity: str) -> None:
        """
        Raises:
            TimeoutException: the time is up.
        """
        if self.timed_out():
            raise TimeoutException(self._message.format(activity=activity))
