"""Leaving the job, once the programs that this thread has called have ended."""

from __future__ import annotations

from hvd import basics
from hvd.jax import collectives, ordering
from hvd.jax.errors import translated


def shutdown() -> None:
    """As `hvd.shutdown`, but first waits for this thread's programs, which JAX runs in the background.

    Runs automatically at exit. Raises errors of JAX's own whose results were never waited for. Programs after another
    `init()` begin anew, whatever earlier ones have failed with, and are compiled again if they depend on the ranks or
    on process sets, whose numbers may be others then.
    """
    try:
        basics.shutdown_after(_finish)
    finally:
        ordering.forget_error()
        collectives.forget_place()


def _finish() -> None:
    with translated():
        ordering.wait()


basics.finish_at_exit(_finish)
