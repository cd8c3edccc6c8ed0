"""Objects as bytes on their way between ranks. One that cannot be pickled is announced as such, and is then an error on
every rank at once, instead of one on its own rank and a wait on the others."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from hvd import basics

_LONGEST_TEXT = 1000  # characters of an exception's own words


@dataclass
class Pickled:
    """An object's bytes, or why there are none."""

    data: bytearray
    error: Exception | None = None

    @property
    def announced(self) -> int:
        """How many bytes, as the other ranks are told before they get them; negative if they say why there are none."""
        return len(self.data) if self.error is None else -len(self.data)


def pickled(obj: object) -> Pickled:
    try:
        return Pickled(bytearray(cloudpickle.dumps(obj)))
    except Exception as error:  # whatever a class of the user's raises, too
        text = f"{type(error).__qualname__}: {error}"[:_LONGEST_TEXT]
        return Pickled(bytearray(text.encode(errors="replace")), error)


def check(announced: int, data: bytes | bytearray, rank: int, error: Exception | None = None) -> None:
    """Raises pickle.PicklingError if the data says why `rank` has no object; `error`: that, where it was raised."""
    if announced < 0:
        why = data.decode(errors="replace")
        raise pickle.PicklingError(f"rank {rank} cannot pickle the object that it is to send: {why}") from error


def unpickled(announced: Sequence[int], contents: Iterable[bytes], ranks: Iterable[int], own: Pickled) -> list[Any]:
    """The objects that these ranks have sent, in their order; `own`: what this one has. Raises as `check`."""
    objects = []
    for rank, size, content in zip(ranks, announced, contents):
        check(size, content, rank, own.error if rank == basics.rank() else None)
        objects.append(cloudpickle.loads(content))
    return objects
