"""How hvd's errors reach the user of JAX, which raises its own for the operations of a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from hvd.exceptions import HorovodInternalError
from hvd.jax import ordering


@contextmanager
def translated() -> Iterator[None]:
    """Raises errors between ranks as HorovodInternalError."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # A program whose input comes from a failed one fails with its text, and a prefix of its own.
        _, mark, text = str(error).partition(ordering.ERROR_MARK)
        if not mark:
            raise
        ordering.forget_error()
        raise HorovodInternalError(text) from None
