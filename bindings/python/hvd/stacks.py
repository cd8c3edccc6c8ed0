"""Where in the script this process is, for hvdrun: on a signal, Python writes the stacks of all threads into a file of
hvdrun's (HVD_FLIGHT_STACKS), wherever the script hangs.

The file begins with a line that says which signal; launcher/job/rank_memory.h reads it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal

_ANNOUNCEMENT_BYTES = 1024


def announce() -> None:
    """Lets hvdrun ask for this process's stacks, if it has started this process. Never fails: what is not possible is
    not announced."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        _announce(int(os.environ.get("HVD_FLIGHT_STACKS", "")))


def _announce(file: int) -> None:
    # In a child of a rank the number may be that of another file.
    if not os.readlink(f"/proc/self/fd/{file}").startswith("/memfd:hvd-stacks"):
        return
    os.set_inheritable(file, False)
    number = _free_signal()
    # What Python puts back when it ends: not the default, by which a late signal would kill the process.
    signal.signal(number, signal.SIG_IGN)
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    line = f"hvd-stacks 1 {number} {os.getpid()} {os.path.dirname(__file__)}\n".encode()
    if len(line) <= _ANNOUNCEMENT_BYTES:
        os.lseek(file, _ANNOUNCEMENT_BYTES, os.SEEK_SET)
        os.pwrite(file, line, 0)


def _free_signal() -> int:
    """A real-time signal that nobody in this process has blocked, ignored or caught. The lowest are the C library's."""
    used = 0
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(("SigBlk:", "SigIgn:", "SigCgt:")):
                used |= int(line.split()[1], 16)
    for number in range(signal.SIGRTMAX - 1, 34, -1):
        if not used >> (number - 1) & 1:
            return number
    raise RuntimeError("all real-time signals are taken")
