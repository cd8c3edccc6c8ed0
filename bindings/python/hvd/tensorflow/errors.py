"""How hvd's errors reach the user of TensorFlow.

TensorFlow's runtime raises its own types: FailedPreconditionError where ranks disagree, InvalidArgumentError where a
call is wrong by itself, UnknownError where a rank was lost or the job has ended; the text is hvd's. Where hvd's Python
code stands between, what breaks the job is a HorovodInternalError as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import tensorflow as tf

from hvd.exceptions import HorovodInternalError

_MARK = "hvd: "  # as libhvd_tensorflow.so begins its texts


class JobBrokenError(tf.errors.UnknownError, HorovodInternalError):
    """A rank was lost, a deadline has passed, or the runtime was shut down."""


def is_ours(error: tf.errors.OpError) -> bool:
    """Whether an error of TensorFlow's runtime was one of hvd's that breaks the job."""
    return isinstance(error, tf.errors.UnknownError) and _MARK in str(error.message)


def reraise(error: tf.errors.OpError) -> NoReturn:
    """Raises a JobBrokenError for what breaks the job; other errors as they are."""
    if isinstance(error, HorovodInternalError) or not is_ours(error):
        raise error
    raise JobBrokenError(error.node_def, error.op, error.message) from None


@contextmanager
def translated() -> Iterator[None]:
    """What is raised within is raised as by reraise()."""
    try:
        yield
    except tf.errors.OpError as error:
        reraise(error)


def refuse_in_xla(what: str) -> None:
    """Raises if XLA is to compile what is being traced: it cannot compile collectives, and its own error does not say
    what to do.

    Raises:
        ValueError: within tf.function(jit_compile=True).
    """
    if tf.executing_eagerly() or not _in_xla():
        return
    raise ValueError(
        f"{what} is inside tf.function(jit_compile=True), and XLA cannot compile hvd's collectives: leave jit_compile "
        "out there (model.compile(..., jit_compile=False)), and put it on a function that only computes the gradients"
    )


def _in_xla() -> bool:
    try:
        from tensorflow.python.ops import control_flow_util
    except ImportError:
        return False
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
