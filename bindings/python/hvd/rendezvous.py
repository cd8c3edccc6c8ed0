"""How the processes of a job find each other where Python knows more than the environment says: through mpi4py's
communicators, torchrun's store, or whoever else has started them (hvd.cluster).

All of them broadcast rank 0's rendezvous info, from which the others know how to reach it. It holds the job key, which
is as safe as the channel over which it is broadcast.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hvd import _native
from hvd.exceptions import InitError


@dataclass(frozen=True)
class Rendezvous:
    rank: int
    size: int
    local_size: int  # ranks on this host; 0: not known
    broadcast: Callable[[bytes | None], bytes]  # of rank 0's rendezvous info, on all ranks
    forget: Callable[[], None] = lambda: None  # those bytes, once all have joined, or init() has failed


_given: Rendezvous | None = None


@contextlib.contextmanager
def given(found: Rendezvous) -> Iterator[None]:
    """While the body runs, this process's job is this one, whatever the environment says."""
    global _given
    _given = found
    try:
        yield
    finally:
        _given = None


def is_given() -> bool:
    return _given is not None


def of_this_process() -> Rendezvous | None:
    """The job that Python is to join; None if its launcher is the core's affair, or nobody has started it.

    Raises:
        ValueError: as from `through_torchrun`.
    """
    return _given or through_torchrun()


def start_timeout_s() -> float:
    """How long `init()` waits for the other ranks."""
    return seconds_in_environment(("HVD_START_TIMEOUT", "HOROVOD_START_TIMEOUT"), 30)


def seconds_in_environment(names: Iterable[str], default: float) -> float:
    """Of the first of these variables that is set. ValueError, with its name, if it is no number."""
    for name in names:
        if text := os.environ.get(name):
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{name} is {text!r}: expected a number of seconds") from None
    return default


def is_communicator(value: object) -> bool:
    """Whether it is a communicator of mpi4py, or something that behaves like one."""
    return all(callable(getattr(value, name, None)) for name in ("Get_rank", "Get_size", "bcast", "allgather"))


def through_communicator(comm: Any) -> Rendezvous:
    """A job of the communicator's processes, all of which call.

    Raises:
        ValueError: mpi4py belongs to another MPI than the launcher, or the launcher to none, so that in it every
            process is alone.
    """
    _require_the_launchers_mpi(comm)
    return Rendezvous(comm.Get_rank(), comm.Get_size(), 0, lambda info: comm.bcast(info, root=0))


def _require_the_launchers_mpi(comm: Any) -> None:
    try:
        launcher, rank, size, _ = _native.launch()
    except ValueError:  # variables that make no sense: it is the communicator that counts
        return
    world = getattr(sys.modules.get("mpi4py.MPI"), "COMM_WORLD", comm)
    if size == 1 or world.Get_size() != 1:
        return
    if launcher not in ("open_mpi", "mpich"):
        raise ValueError(
            f"the launcher ({launcher}) has started this process as rank {rank} of {size}, but it is rank 0 of 1 for "
            "mpi4py, to which that launcher means nothing: call init() without a communicator, or start the job with "
            "mpirun"
        )
    raise ValueError(
        f"the launcher has started this process as rank {rank} of {size}, but mpi4py knows of one process only: it "
        "has loaded another MPI (MPI4PY_LIBMPI names the right one)"
    )


def through_torchrun() -> Rendezvous | None:
    """The job that torchrun has started this process in; None if it has not, or alone.

    Raises:
        ValueError: PyTorch, whose store torchrun runs, cannot be imported, or the variables it sets are not all there.
    """
    launcher, rank, size, local_size = _native.launch()
    if launcher != "torchrun":
        return None
    broadcast = _StoreBroadcast(rank)
    return Rendezvous(rank, size, local_size, broadcast, broadcast.forget)


_times = itertools.count()
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.02  # between two looks for questions


class _StoreBroadcast:
    """Broadcasts rank 0's rendezvous info through the store at MASTER_ADDR:MASTER_PORT, which lives on when torchrun
    starts the ranks again. Nothing that torchrun says distinguishes one start from another on all nodes:
    TORCHELASTIC_RESTART_COUNT counts the failures that each node's own agent has seen. So the others ask, each under a
    number that the store has never given before, and rank 0 answers until all have joined: nobody reads what was left
    by ranks of an earlier start."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.key = ""
        self.store: Any = None  # rank 0's: others may still ask it
        self._answering: threading.Thread | None = None
        self._is_over = threading.Event()

    def __call__(self, info: bytes | None) -> bytes:
        questions = f"hvd/{next(_times)}"
        store = _store(self.rank)
        if info is None:
            answer = f"{questions}/{store.add(questions, 1)}"
            try:
                found: bytes = store.get(store.get(answer).decode())
            except RuntimeError as error:
                from torch.distributed import DistStoreError

                waited = f"rank {self.rank} has waited for it at torchrun's store"
                if not isinstance(error, DistStoreError):
                    cause = str(error).partition("\n")[0]
                    raise InitError(f"rank 0 has not come to hvd.init(): {waited}, which is lost ({cause})") from error
                raise InitError(  # a timeout, which names nothing but the key
                    f"rank 0 has not come to hvd.init() within {start_timeout_s():g} s (HVD_START_TIMEOUT): {waited}"
                ) from error
            return found
        self.key = f"{questions}/{secrets.token_hex(16)}"
        store.set(self.key, info)
        self.store = store
        self._answering = threading.Thread(target=self._answer, args=(questions,), name="hvd-rendezvous", daemon=True)
        self._answering.start()
        return info

    def _answer(self, questions: str) -> None:
        answered, pause = 0, _SHORTEST_PAUSE_S
        with contextlib.suppress(RuntimeError):  # the store is gone: nobody can ask
            while not self._is_over.wait(pause):
                asked = self.store.add(questions, 0)
                for number in range(answered + 1, asked + 1):
                    self.store.set(f"{questions}/{number}", self.key)
                pause = min(2 * pause, _LONGEST_PAUSE_S) if asked == answered else _SHORTEST_PAUSE_S
                answered = asked

    def forget(self) -> None:
        if self._answering is not None:
            self._is_over.set()
            self._answering.join()
            self._answering = None
            with contextlib.suppress(RuntimeError):  # the store is gone, and the info with it
                self.store.delete_key(self.key)
            self.store = None


def _store(rank: int) -> Any:
    try:
        from torch.distributed import TCPStore
    except ImportError as error:
        raise ValueError(f"started by torchrun, but its store cannot be reached without PyTorch: {error}") from error
    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"torchrun should have set MASTER_ADDR and MASTER_PORT: {error}") from error
    # Without an agent it is rank 0 that runs the store, which torch.distributed will find there as well.
    is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    timeout = datetime.timedelta(seconds=start_timeout_s())
    return TCPStore(host, port, None, is_master, timeout, wait_for_workers=False, multi_tenant=True)
