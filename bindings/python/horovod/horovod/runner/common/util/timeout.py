"""A time limit for several activities together."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time is up."""


class Timeout:
    """Begins when it is made.

    Args:
        timeout: in seconds.
        message: of the exception, with `{activity}` in it.
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
