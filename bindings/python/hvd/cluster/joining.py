"""A process of somebody else's engine becomes a rank, calls a function, and leaves."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hvd import basics, failure, process_set, rendezvous
from hvd.exceptions import RankFailedError, RankLostError
from hvd.outcome import Failure, Outcome, first_to_fail, raise_failure


@contextlib.contextmanager
def joined(
    rank: int, size: int, broadcast: Callable[[bytes | None], bytes], env: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Makes this process a rank of a job while the body runs. `hvd.init()` in the body finds it joined; after
    `hvd.shutdown()` in the body, `hvd.init()` joins again, and then so must all.

    Every rank of the job must enter. If the body raises an exception, the other ranks' operations fail with it as the
    cause.

    Args:
        rank, size: this process's number in the job, and how many there are.
        broadcast: called on all ranks at each joining: with rank 0's bytes there, which it returns as they are, and
            with None on the others, where it returns those. They hold the job's key: whoever can read them can join.
            Exceptions pass through.
        env: variables that are set in the body, HVD_START_TIMEOUT for instance.

    Raises:
        ValueError: this process is in a job already.
        InitError: as from `hvd.init()`.
    """
    with member(rendezvous.Rendezvous(rank, size, 0, broadcast), env):
        basics.init()
        yield


@contextlib.contextmanager
def member(place: rendezvous.Rendezvous, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """As `joined`, but it is `hvd.init()` in the body that joins, if it is called. Afterwards the process can become a
    rank of another job: a torch.distributed process group over hvd that the body has not destroyed is destroyed.

    Raises:
        ValueError: this process is in a job already.
    """
    if basics.is_initialized():
        raise ValueError(f"this process is rank {basics.rank()} of {basics.size()} of another job: call hvd.shutdown()")
    process_set.set_back_numbers({})  # the other ranks' processes may be new, or have made other optimizers
    had_group = _has_torch_group()
    with _variables(env or {}), rendezvous.given(place):
        try:
            yield
        except BaseException as error:
            failure.tell(error)
            raise
        finally:
            try:
                if not had_group and _has_torch_group():
                    sys.modules["torch.distributed"].destroy_process_group()
            finally:
                basics.shutdown()


def _has_torch_group() -> bool:
    """Whether the default group of torch.distributed is one of hvd's. Does not import torch."""
    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized() and "hvd" in dist.get_backend_config()


@contextlib.contextmanager
def _variables(added: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    rank: int,
    size: int,
    broadcast: Callable[[bytes | None], bytes],
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Calls the function as a rank of a job, see `joined`. Raises nothing: what came of it is returned, and can be
    pickled."""

    try:
        with joined(rank, size, broadcast, env):
            return Outcome.of_result(fn(*args, **kwargs))
    except BaseException as error:
        return Outcome.of_failure(error)


def results(outcomes: Mapping[int, Outcome], size: int, lost: Mapping[int, str] | None = None) -> list[Any]:
    """What the function returned, by rank.

    Args:
        outcomes: by rank, of the ranks that have one, in the order in which they came: of several that failed by
            themselves the first is to blame.
        lost: ranks whose process is known to have died, and how ("was killed by SIGKILL"). They are to blame before
            those whose function failed, for that is what their death does.

    Raises:
        Exception: the one that a rank raised first; its cause, a RankFailedError, names the rank and has its traceback.
        RankFailedError: a rank was lost, called `sys.exit()`, or left something that cannot be unpickled here.
    """
    failures: dict[int, Failure] = {
        rank: outcome.failure for rank, outcome in outcomes.items() if outcome.failure is not None
    }
    own = {rank: found for rank, found in failures.items() if not found.is_consequence}
    if lost and not own:
        rank = min(lost)
        raise RankLostError(f"rank {rank} of {size} {lost[rank]}", rank)
    if failures:
        rank = next(iter(own)) if own else first_to_fail(failures.items())
        raise_failure(failures[rank], f"rank {rank} of {size}", rank)
    missing = [rank for rank in range(size) if rank not in outcomes]
    if missing:
        raise RankFailedError(f"no result of ranks: {', '.join(map(str, missing))}", missing[0])
    return [outcomes[rank].value(rank) for rank in range(size)]
