"""Exceptions of hvd. A call that is wrong by itself raises ValueError; these are for what happens between processes."""

from __future__ import annotations


class RankFailedError(RuntimeError):
    """A rank of `hvd.run` died, or raised something that cannot be raised again in the caller.

    Attributes:
        rank: which one; None if it is not known.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class RankLostError(RankFailedError):
    """A rank's process died, or where it ran was lost."""


class HorovodInternalError(RuntimeError):
    """An operation failed: a rank was lost, ranks disagreed about it, a deadline passed, or the runtime was shut down.

    The text names the operation and, where there are any, the ranks and hosts at fault. The name is Horovod's, which
    training scripts catch.

    Attributes:
        is_mismatch: whether the ranks disagreed, so that trying again is of no use.
    """

    is_mismatch = False


class NoRowsError(HorovodInternalError, ValueError):
    """A scalar was given to an operation that distributes rows. Horovod raises HorovodInternalError for it, and here it
    is a ValueError as well, like whatever is wrong by itself."""


class InitError(HorovodInternalError, ValueError):
    """`init()` failed because of other ranks: they did not come, or differ in their settings or process sets. Horovod
    raises ValueError whatever the reason."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job have changed, and the state is good: training goes on in a new job.

    Attributes:
        skip_sync: hosts were only taken away, so that every rank that is left has the state already.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of this job have changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than the one that an extension was built for. hvd is built for none, and does not
    raise it; scripts catch it.

    Attributes:
        name: the framework.
        version: the version that was expected.
        installed_version: the version that is there.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(f"{name} {version} is needed, but {installed_version} is installed", name=name)
        self.version = version
        self.installed_version = installed_version
