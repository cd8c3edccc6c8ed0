"""Leaving the job, once MXNet's engine has done what the script gave it: scripts do not wait for their last step."""

from __future__ import annotations

import atexit
import contextlib

import mxnet

from hvd import basics, failure
from hvd.exceptions import HorovodInternalError


def shutdown() -> None:
    """As `hvd.shutdown`, but first waits for what MXNet's engine has to do, operations with other ranks included.

    Runs automatically at exit. Raises errors of MXNet's operations whose results were never waited for.
    """
    try:
        _finish()
    finally:
        basics.shutdown()


def _finish() -> None:
    if basics.is_initialized():
        with contextlib.suppress(HorovodInternalError):  # raised where results are waited for
            mxnet.nd.waitall()


def _finish_at_exit() -> None:
    failure.tell_at_exit()  # first: what this rank waits for may wait for this rank
    _finish()


atexit.register(_finish_at_exit)  # before that of hvd.basics, which was registered earlier
