"""Process sets: the ranks that do a collective together. Only the set of all ranks exists yet."""

from __future__ import annotations

from collections.abc import Iterable

from hvd import basics


class ProcessSet:
    """An ordered set of ranks.

    Attributes:
        process_set_id: the runtime's number for the set; None if the runtime does not know it: operations on such a
            set raise ValueError.
        ranks: the members' ranks in the job, ascending; None if not initialised.
    """

    process_set_id: int | None = None

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = sorted(ranks)

    @property
    def ranks(self) -> list[int] | None:
        return self._ranks

    def size(self) -> int | None:
        """Number of members; None if not initialised."""
        ranks = self.ranks
        return None if ranks is None else len(ranks)

    def rank(self) -> int | None:
        """This process's number within the set, from 0; None if not initialised or not a member."""
        ranks = self.ranks
        if ranks is None or not basics.is_initialized() or basics.rank() not in ranks:
            return None
        return ranks.index(basics.rank())

    def included(self) -> bool | None:
        """Whether this process is a member; None if not initialised."""
        return self.rank() is not None if basics.is_initialized() else None

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        super().__init__(())

    @property
    def ranks(self) -> list[int] | None:
        return list(range(basics.size())) if basics.is_initialized() else None

    def size(self) -> int | None:
        return basics.size() if basics.is_initialized() else None

    def rank(self) -> int | None:
        return basics.rank() if basics.is_initialized() else None


global_process_set: ProcessSet = _GlobalProcessSet()
