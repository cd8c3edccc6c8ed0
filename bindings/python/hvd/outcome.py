"""What came of a function on one rank: what it returned, or the exception that ended it. Made where the function ran,
read by who has started it, in another process or on another host."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import cloudpickle

from hvd.exceptions import HorovodInternalError, RankFailedError


@dataclass(frozen=True)
class Failure:
    traceback: str
    exception: bytes | None  # by cloudpickle; None: it cannot be pickled
    is_consequence: bool  # an operation failed, as it does because of another rank
    is_peers: bool  # so it did in a collective: what hvd itself raises there, and not on behalf of an engine
    time: float  # time.monotonic(): processes of one host alone can compare it


@dataclass(frozen=True)
class Outcome:
    result: bytes | None  # by cloudpickle
    failure: Failure | None  # of result and failure one is there

    @staticmethod
    def of_result(value: Any) -> Outcome:
        return Outcome(cloudpickle.dumps(value), None)

    @staticmethod
    def of_failure(error: BaseException) -> Outcome:
        """Called within the `except` block of the exception."""
        moment, text = time.monotonic(), traceback.format_exc()
        pickled = None
        try:
            pickled = cloudpickle.dumps(error)
        except Exception:
            text += f"\n(a {type(error).__name__} that cannot be pickled)"
        return Outcome(
            None, Failure(text, pickled, _is_consequence(error), type(error) is HorovodInternalError, moment)
        )

    def value(self, rank: int) -> Any:
        """What the function returned. RankFailedError if that cannot be unpickled here."""
        assert self.result is not None
        try:
            return cloudpickle.loads(self.result)
        except Exception as error:
            raise RankFailedError(f"the result of rank {rank} cannot be unpickled here", rank) from error


def _is_consequence(error: BaseException) -> bool:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if isinstance(one, HorovodInternalError):
            return True
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return False


def first_to_fail(failures: Iterable[tuple[int, Failure]]) -> int:
    """The number of the rank, or process, that is to blame, as far as they know it themselves."""
    return min(failures, key=lambda item: (item[1].is_consequence, item[1].is_peers, item[1].time))[0]


def raise_failure(found: Failure, name: str, rank: int | None) -> NoReturn:
    """Raises the rank's exception; its cause is a RankFailedError with its name and traceback. If the exception cannot
    be made here, or is not to be raised again (SystemExit), raises the RankFailedError."""
    cause = RankFailedError(f"{name} failed:\n\n{found.traceback}", rank)
    try:
        error = cloudpickle.loads(found.exception or b"")
    except Exception:  # a class that cannot be imported here, or not be made of its arguments
        raise cause from None
    if not isinstance(error, Exception):  # sys.exit() on a rank is not one here
        raise cause
    if hasattr(error, "add_note"):  # from Python 3.11 on
        error.add_note(f"raised by {name}")
    raise error from cause
