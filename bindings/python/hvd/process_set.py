"""Process sets: the ranks that do a collective together."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from hvd import _native, arguments
from hvd.rendezvous import is_communicator


class ProcessSet:
    """An ordered set of ranks. Operations need one that is registered: with `init(process_sets=...)`, or later with
    `add_process_set`.

    Attributes:
        process_set_id: the runtime's number for the set, the same on every rank; None if it is not registered:
            operations on such a set raise ValueError.
        ranks: the members' ranks in the job, ascending; None if not initialised.
        mpi_comm: the communicator of mpi4py that the set was made of, if it was.
    """

    process_set_id: int | None = None

    def __init__(self, ranks: Any) -> None:
        """
        Args:
            ranks: numbers in the job, in any order; or a function that returns them for a job of the size that it is
                given, for elastic jobs; or a communicator of mpi4py with the processes meant. Of the latter two the
                ranks are known once the set is registered.

        Raises:
            TypeError: it is none of these. Ranks that do not exist, or come twice, are refused when the set is
                registered.
        """
        self._communicator = ranks if is_communicator(ranks) else None
        self._ranks_of_size = ranks if callable(ranks) and self._communicator is None else None
        is_later = self._communicator is not None or self._ranks_of_size is not None
        self._ranks = None if is_later else sorted(arguments.ranks(ranks, "ranks"))

    @property
    def mpi_comm(self) -> Any:
        return self._communicator

    @property
    def ranks(self) -> list[int] | None:
        return self._ranks

    def _find_ranks(self) -> None:
        if self._ranks_of_size is not None:
            self._ranks = sorted(arguments.ranks(self._ranks_of_size(_native.size()), "ranks"))
        elif self._ranks is None:
            # One that is null (COMM_NULL) is that of a process which is no member.
            self._ranks = sorted(self._communicator.allgather(_native.rank())) if self._communicator else []

    def size(self) -> int | None:
        """Number of members; None if the set is not registered, or hvd not initialised, as in the functions below."""
        ranks = self._registered_ranks()
        return None if ranks is None else len(ranks)

    def rank(self) -> int | None:
        """This process's number within the set, from 0; None also if it is not a member."""
        ranks = self._registered_ranks()
        return ranks.index(_native.rank()) if ranks is not None and _native.rank() in ranks else None

    def included(self) -> bool | None:
        """Whether this process is a member."""
        ranks = self._registered_ranks()
        return None if ranks is None else _native.rank() in ranks

    def _registered_ranks(self) -> list[int] | None:
        return self.ranks if self._is_known() and _native.is_initialized() else None

    def _is_known(self) -> bool:
        """Registered, or, of a newcomer of an elastic job that stands by, to be registered when it joins."""
        of_no_communicator = self._communicator is not None and self._ranks == []  # of a process that is in none
        return self.process_set_id is not None or of_no_communicator or (self in _defined and _native.stands_by())

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        super().__init__(())

    def __reduce__(self) -> str:
        return "global_process_set"  # there is one, also where it was pickled

    @property
    def ranks(self) -> list[int] | None:
        return list(range(_native.size())) if _native.is_initialized() else None


global_process_set: ProcessSet = _GlobalProcessSet()

_registered: list[ProcessSet] = []
# In the order of their definition: those that there are, and in an elastic job also those that its next epochs are to
# have, whose ranks this epoch may not have.
_defined: list[ProcessSet] = []
_lasting: list[ProcessSet] | None = None  # of these, those from before hvd.elastic.run; None: it has not begun


def registered() -> dict[int, list[int]]:
    """The ranks of all process sets there are, by number; this rank need not be a member. ValueError if hvd is not
    initialised."""
    sets = {0: list(range(_native.size()))}
    for one in _registered:
        if one.process_set_id is not None:
            sets[one.process_set_id] = list(one.ranks or ())
    return sets


def require_registered(number: int) -> None:
    """ValueError if hvd is initialised and has no process set of this number."""
    if number != 0 and _native.is_initialized() and number not in registered():
        raise ValueError(f"there is no process set {number}: it was never registered, or removed")


_numbers: weakref.WeakKeyDictionary[ProcessSet, Counter[str]] = weakref.WeakKeyDictionary()


def numbers_of_names() -> dict[str, int]:
    """How many names of each kind were given for all ranks; for `set_back_numbers`."""
    return dict(_numbers.get(global_process_set, {}))


def set_back_numbers(numbers: dict[str, int]) -> None:
    """Before a part of the script is run again, with ranks that run it for the first time: what is made in it, and has
    a `numbered_name`, is called the same on all."""
    _numbers.clear()
    _numbers[global_process_set] = Counter(numbers)


def numbered_name(process_set: ProcessSet, kind: str) -> str:
    """A name for what a set's ranks may make several of: a DistributedOptimizer, whose variables may be called as those
    of another one, a DDP hook, a progress bar, a process group of torch. It is the kind and the next number in this
    set, from 0, and which set it is, as sets may share their ranks in another epoch (`_register_or_share`). The ranks
    of a set make theirs in the same order; ranks that are not in it make none, and count no differently for that.
    ValueError if hvd is not initialised."""
    _native.rank()
    numbers = _numbers.setdefault(process_set, Counter())
    numbers[kind] += 1
    name = f"{kind}{numbers[kind] - 1}"
    return f"{name}@{_defined.index(process_set)}" if process_set in _defined else name


def add_process_set(process_set: Any) -> ProcessSet:
    """Registers a set of ranks, and returns it. All ranks of the job must call, members or not, with the same ranks and
    in the same order as other calls of this function and `remove_process_set`; it returns when all have.

    Operations on different sets go on at the same time, also where a rank is in several.

    In an elastic job each epoch has the set again, with these ranks of its own, if it has all of them: as long as it
    has not, operations on the set raise ValueError. A newcomer that stands by only notes it; it is registered when the
    process joins.

    Args:
        process_set: a `ProcessSet` that is not registered, or what one is made of: ranks, or a communicator of mpi4py.

    Raises:
        ValueError: there is a set of these ranks already, or a rank does not exist. Nothing has changed then.
        HorovodInternalError: ranks asked for different sets, with the two ranks and both requests.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None:
        raise ValueError(f"{added} is registered already")
    if _native.stands_by():
        added._find_ranks()
    else:
        _register(added)
    _defined.append(added)
    return added


def _register(added: ProcessSet) -> None:
    added._find_ranks()
    added.process_set_id = _native.add_process_set(added.ranks or [])
    _registered.append(added)


def register_defined() -> None:
    """In a new epoch, or one that a newcomer has joined: all ranks call."""
    for one in _defined:
        if one.process_set_id is None:
            with contextlib.suppress(ValueError):  # on all ranks alike: the epoch does not have its ranks
                _register_or_share(one)


def _register_or_share(added: ProcessSet) -> None:
    """Sets that differ in a larger epoch may have the same ranks in a smaller one, where they share a number."""
    added._find_ranks()
    for number, ranks in registered().items():
        if ranks == added.ranks:
            added.process_set_id = number
            _registered.append(added)
            return
    _register(added)


def _is_shared(process_set: ProcessSet) -> bool:
    others = [one for one in (global_process_set, *_registered) if one is not process_set]
    return any(other.process_set_id == process_set.process_set_id for other in others)


def note_definitions() -> None:
    """Sets that are defined later belong to their epoch: the script makes them again in the next."""
    global _lasting
    _lasting = list(_defined)


def definitions() -> list[ProcessSet]:
    """Those for the next epoch, for `define`, since they are forgotten with this one."""
    lasting = _defined if _lasting is None else _lasting
    return [one for one in _defined if one in lasting and one._communicator is None]


def define(process_sets: list[ProcessSet]) -> None:
    """Those of the last epoch are those of the next, which is to be joined."""
    _defined[:] = process_sets


def register_all(process_sets: Iterable[ProcessSet], job: Any) -> None:
    """As `add_process_set`, for several; if one makes no sense, none stays registered. `job`: the communicator of all
    ranks, where the sets are made of communicators."""
    before = len(_registered)
    try:
        for process_set in process_sets:
            _register_everywhere(process_set, job)
    except ValueError:
        for process_set in reversed(_registered[before:]):
            remove_process_set(process_set)
        raise


def _register_everywhere(process_set: ProcessSet, job: Any) -> None:
    """As `add_process_set`. Where the set is made of a communicator, each rank may have another one, as `Split` makes
    them: all are registered, and each rank's object stands for its own. `job`: the communicator of all ranks."""
    if process_set._communicator is None or job is None:
        add_process_set(process_set)
        return
    process_set._find_ranks()
    for ranks in sorted({ranks for ranks in job.allgather(tuple(process_set.ranks or ())) if ranks}):
        add_process_set(process_set if list(ranks) == process_set.ranks else ProcessSet(ranks))


def remove_process_set(process_set: ProcessSet) -> bool:
    """Takes a set out again; its number may be given to another one. All ranks must call, as for `add_process_set`.

    Returns:
        Whether it was removed: not the set of all ranks, nor one that is not registered.

    Raises:
        ValueError: operations of this rank are under way in it.
        TypeError: it is no `ProcessSet`.
        HorovodInternalError: a rank was lost, or asked for something else.
    """
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set is {process_set!r}: expected the ProcessSet that hvd.add_process_set() returned")
    is_known = process_set.process_set_id is not None or process_set in _defined
    if process_set is global_process_set or not is_known or not _native.is_initialized():
        return False
    if process_set.process_set_id is not None and not _is_shared(process_set):
        _native.remove_process_set(process_set.process_set_id)
    _forget(process_set)
    return True


@contextlib.contextmanager
def temporary(ranks: list[int]) -> Iterator[ProcessSet | None]:
    """A set for the time of a block: one that has these ranks, ascending, or a new one; None if there are no ranks. All
    ranks of the job enter and leave the block. What it raises is taken to end the epoch, and the set with it."""
    if not ranks:
        yield None
        return
    for existing in (global_process_set, *_registered):
        if existing.ranks == ranks:
            yield existing
            return
    added = ProcessSet(ranks)
    _register(added)
    yield added
    remove_process_set(added)


def _forget(process_set: ProcessSet) -> None:
    process_set.process_set_id = None
    if process_set._communicator is not None:
        process_set._ranks = None  # its processes may have other numbers in the next job
    for kept in (_registered, _defined):
        if process_set in kept:
            kept.remove(process_set)


def forget_all() -> None:
    """After a shutdown: numbers mean nothing any more."""
    for process_set in {*_defined, *_registered}:
        _forget(process_set)
