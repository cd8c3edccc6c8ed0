"""How long things may take in a test.

Most tests run beside others, on a machine that may do something else besides: there a limit of time only tells what
waits for ever from what does not. `tests/run.sh --all` runs the tests marked `timed` by themselves, with the limits as
they are written (TEST_EXACT_TIMES=1).
"""

import os
import time
from collections.abc import Callable

EXACT = os.environ.get("TEST_EXACT_TIMES") == "1"
SLACK_S = 20


def at_most(seconds: float) -> float:
    return seconds if EXACT else seconds + SLACK_S


def wait_until(holds: Callable[[], object], limit_s: float = 60) -> None:
    """Returns once the condition holds. The limit only tells what never happens from what takes long."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"waited for {limit_s} s in vain"
        time.sleep(0.02)
