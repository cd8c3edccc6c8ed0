"""Leaving the job, once MXNet's engine has done what the script gave it."""

from __future__ import annotations

import mxnet

from hvd import basics


def shutdown() -> None:
    """As `hvd.shutdown`, but first waits for what MXNet's engine has to do, operations with other ranks included.

    Runs automatically at exit. Raises errors of MXNet's operations whose results were never waited for.
    """
    basics.shutdown_after(mxnet.nd.waitall)


basics.finish_at_exit(mxnet.nd.waitall)
