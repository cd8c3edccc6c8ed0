"""A job for tests of who is blamed: one barrier after the other, until one rank ends in its own way.

    python failing_job.py HOW RANK [SECONDS]

It imports neither a framework nor NumPy, and so starts in a twentieth of a second. SECONDS: how long the rank takes
from there to its end, while its modules are torn down.
"""

import atexit
import os
import signal
import sys
import time

import hvd
from hvd import _native

# hvdrun's exit codes.
CODES = {"exception": 1, "exit": 7, "raised_exit": 8, "os_exit": 9, "os_exit_0": 1, "signal": 128 + signal.SIGKILL}


def end(how: str) -> None:
    if how == "exception":
        raise ValueError("bad data\nand more of it")
    if how == "exit":
        sys.exit(CODES[how])
    if how == "raised_exit":
        raise SystemExit(CODES[how])
    if how == "os_exit":
        os._exit(CODES[how])
    if how == "os_exit_0":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def meet() -> None:
    _native.submit(_native.OperationSpec(_native.BARRIER, None, 0, []), [], None, None).wait()


def main() -> None:
    sys.stderr.reconfigure(
        line_buffering=False, write_through=False
    )  # a traceback in one piece: launchers mix ranks' lines
    how, rank, seconds = sys.argv[1], int(sys.argv[2]), float((*sys.argv, "0")[3])
    if seconds > 0:
        atexit.register(time.sleep, seconds)  # before hvd's own: what was registered last is called first
    hvd.init()
    for step in range(1_000_000):
        if step == 20 and hvd.rank() == rank:
            end(how)
        meet()


if __name__ == "__main__":
    main()
