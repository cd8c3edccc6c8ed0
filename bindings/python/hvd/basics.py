"""Joining and leaving the job, and where this process stands in it.

All functions but `init` and `shutdown` are local. In a process forked from an initialised one (a DataLoader worker)
the functions that say where the process stands answer for its parent; everything else raises ValueError.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hvd import _native, failure, installation, rendezvous, stacks, torch_variables
from hvd import process_set as sets
from hvd.exceptions import HorovodInternalError, InitError
from hvd.process_set import ProcessSet

# What the packages of all frameworks offer.
__all__ = [
    "algorithm_table",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def init(comm: Any = None, process_sets: Iterable[ProcessSet] | str | None = None) -> None:
    """Joins the job in which hvdrun, mpirun, mpiexec, srun or torchrun has started this process, or that TF_CONFIG or
    HVD_RENDEZVOUS describes; without any of them the process is rank 0 of 1.

    Every process of the job must call it; it returns when all have. Does nothing if initialised already. After
    `shutdown()` it may be called again.

    A newcomer of an elastic job that has begun without it does not hold up the others here: it joins where it comes to
    `hvd.elastic.run`, or calls its first operation. Until then rank() and size() are those that it would have now, the
    last rank, and local_rank() is its slot of the host, which no other process there has.

    In a process that is one of the job's parameter servers (`hvdrun --servers`, a task of type "ps" in TF_CONFIG) it
    does not return: it serves `hvd.ps` until the ranks are done, and then ends the process by SystemExit.

    Args:
        comm: a communicator of mpi4py: its processes are the job, numbered as there, whoever has started them. Or the
            ranks that take part, of which only all (or None or an empty list, which mean the same) are supported yet.
            Or a list of communicators, of which the first is the job, and the others become process sets.
        process_sets: sets of ranks to be registered, the same on every rank (see `add_process_set`). "dynamic", which
            Horovod needs for sets that are added later, changes nothing: they always can be. Sets made of
            communicators may differ between ranks: all of them are registered.

    Raises:
        ValueError: on arguments that are not supported; in a process forked from an initialised one; where this process
            would be another rank, or one of another number, than it is already or than its launcher says; and if a
            process set makes no sense: the job is joined in that last case, and `init` may be called again with other
            sets.
        InitError: a HorovodInternalError and a ValueError; the other processes did not come in time
            (HVD_START_TIMEOUT), or have other settings or other process sets.
    """
    init_with({}, comm, process_sets)


def init_with(
    settings: Mapping[str, str], comm: Any = None, process_sets: Iterable[ProcessSet] | str | None = None
) -> None:
    """`init` for packages that want other settings than hvd where the environment has none, by the names of environment
    variables. They hold until the next `init`, so for the later epochs of an elastic job too."""
    global _settings
    if process_sets is not None and not isinstance(process_sets, str):
        process_sets = list(process_sets)
    if _native.is_initialized():
        return init_again(comm, process_sets)
    _settings = dict(settings)
    join_epoch(lambda: init_again(comm, process_sets))


def join_epoch(join: Callable[[], None]) -> None:
    """Calls `join`, which calls `init_again`. In an elastic job a rank may be lost meanwhile: then it is called again,
    since those that are left form the next epoch. Raises InitError."""
    for attempts_left in reversed(range(_MOST_ATTEMPTS if "HVD_PROCESS" in os.environ else 1)):
        try:
            return join()
        except InitError as error:
            if attempts_left == 0 or error.is_mismatch:
                raise
            shutdown()


def init_again(comm: Any = None, process_sets: Iterable[ProcessSet] | str | None = None) -> None:
    """`init` with the settings of the last one."""
    if _native.is_server():
        _native.serve_tables()
        raise SystemExit(0)
    failure.watch()
    try:
        _init(comm, process_sets)
    except HorovodInternalError as error:
        failed = InitError(str(error))
        failed.is_mismatch = error.is_mismatch
        raise failed from None


def _init(comm: Any, process_sets: Iterable[ProcessSet] | str | None) -> None:
    global _met_through_mpi4py
    job, given_sets = _job_and_sets(comm, process_sets)
    by_mpi4py = rendezvous.is_communicator(job)
    found = rendezvous.through_communicator(job) if by_mpi4py else rendezvous.of_this_process()
    if not _native.is_initialized():
        _met_through_mpi4py = by_mpi4py
    elif by_mpi4py or not _met_through_mpi4py:  # a communicator's job need not be the launcher's
        _refuse_other_job(found)
    _join(found)  # nothing if initialized, and refused in a forked child
    if job and not by_mpi4py:
        _require_all(sorted(job))
    sets.register_all(given_sets, job if by_mpi4py else None)


def _join(found: rendezvous.Rendezvous | None) -> None:
    global _initializations
    was_in = _native.is_initialized()
    with _settings_in_environment():
        if found is None:
            _native.init_standby(_note_place)
        else:
            try:
                _native.init_with(found.rank, found.size, found.local_size, found.broadcast)
            finally:
                found.forget()
    if was_in:
        return
    _initializations += 1
    if _native.stands_by():
        _set_horovod_variables()
        torch_variables.set_place()
    else:
        _note_place()


@contextlib.contextmanager
def _settings_in_environment() -> Iterator[None]:
    """The runtime reads its settings from the environment, which other programs that this process starts inherit."""
    added = {name: value for name, value in _settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def leave_standby() -> None:
    """Joins the next epoch, if this process is a newcomer of an elastic job that stands by.

    Raises:
        InitError: as from `init`.
    """
    if not _native.stands_by():
        return
    try:
        with _settings_in_environment():
            _native.init()
        _note_place()
    except HorovodInternalError as error:
        raise InitError(str(error)) from None


def _note_place() -> None:
    global _last_place
    _last_place = (_native.epoch()[0], _native.rank(), _native.size())
    is_given = rendezvous.is_given()
    if is_given or "HVD_PROCESS" in os.environ:
        _set_horovod_variables()
    if is_given or torch_variables.is_for(_native.launch()[0]):
        torch_variables.unset()
        torch_variables.set_absent()
    sets.register_defined()


def initializations() -> int:
    """How many times this process has joined a job."""
    return _initializations


def last_place() -> tuple[int, int, int] | None:
    """Epoch (0: the job is not elastic), rank and size since the last `init()`; kept by `shutdown()`. None before."""
    return _last_place


def _set_horovod_variables() -> None:
    """Those by which scripts for Horovod find their place without asking it. In a job that is not elastic, hvdrun sets
    them."""
    for name in _PLACE:
        os.environ[f"HOROVOD_{name.upper()}"] = str(getattr(_native, name)())


def _refuse_other_job(found: rendezvous.Rendezvous | None) -> None:
    """This process is in a job; raises ValueError if it is now said to be a rank of another."""
    own = _native.rank(), _native.size()
    if found is not None:
        said = found.rank, found.size
    else:
        launcher, rank, size, _ = _native.launch()
        said = own if launcher == "none" else (rank, size)
    if said != own:
        raise ValueError(
            f"initialized as rank {own[0]} of {own[1]}, and cannot be again as rank {said[0]} of {said[1]}: "
            "call hvd.shutdown() before"
        )


_PLACE = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
_MOST_ATTEMPTS = 10  # to form an epoch, each of which a rank has not survived
_initializations = 0
_met_through_mpi4py = False
_settings: dict[str, str] = {}
_last_place: tuple[int, int, int] | None = None

# Since this process was started; `hvd.elastic` counts, `metrics()` tells.
elastic_counters: dict[str, float] = {
    "elastic_epochs": 0,
    "elastic_failures": 0,
    "elastic_pause_seconds": 0.0,
    "elastic_state_bytes": 0,
}


def _job_and_sets(comm: Any, process_sets: Iterable[ProcessSet] | str | None) -> tuple[Any, list[ProcessSet]]:
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f'process_sets is {process_sets!r}: expected process sets, or "dynamic"')
    given = [] if process_sets is None or isinstance(process_sets, str) else list(process_sets)
    given = [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in given]
    if comm is None or rendezvous.is_communicator(comm):
        return comm, given
    try:
        comm = list(comm)
        ranks = [rank if rendezvous.is_communicator(rank) else int(rank) for rank in comm]
    except (TypeError, ValueError):
        raise ValueError(f"comm is {comm!r}: expected a communicator of mpi4py, or ranks") from None
    if comm and all(rendezvous.is_communicator(one) for one in comm):
        return comm[0], [ProcessSet(one) for one in comm[1:]] + given
    return ranks, given


def _require_all(ranks: list[int]) -> None:
    size = _native.size()
    if ranks == list(range(size)):
        return
    shutdown()
    raise ValueError(f"a job on some of the ranks is not supported yet: comm={ranks}, but the job has {size} ranks")


def shutdown() -> None:
    """Leaves the job. Other ranks' pending and later operations end with HorovodInternalError.

    Python calls it at exit. Does nothing if not initialised, or in a process forked from an initialised one.
    """
    _native.shutdown()
    sets.forget_all()
    torch_variables.unset()
    if rendezvous.is_given():  # the process may join another job, whose launcher nothing of this one must hide
        for name in _PLACE:
            os.environ.pop(f"HOROVOD_{name.upper()}", None)


def shutdown_after(finish: Callable[[], None]) -> None:
    """As `shutdown`, once the operations have ended that a framework performs in the background: `finish` waits for
    them. What it raises of errors between ranks is raised where results are waited for.

    While an exception is handled it leaves at once: in `finally: hvd.shutdown()` of a rank that has failed, what this
    rank waits for may wait for this rank."""
    try:
        if sys.exc_info()[1] is None:
            _finish(finish)
    finally:
        shutdown()


def finish_at_exit(finish: Callable[[], None]) -> None:
    """Has Python call it at exit, before this process leaves the job: scripts do not wait for their last step."""

    def call() -> None:
        failure.tell_at_exit()  # first: what this rank waits for may wait for this rank
        _finish(finish)

    atexit.register(call)  # later than _leave(), which therefore runs after it


def _finish(finish: Callable[[], None]) -> None:
    if is_initialized():
        with contextlib.suppress(HorovodInternalError):
            finish()


def _leave() -> None:
    failure.tell_at_exit()
    shutdown()


atexit.register(_native.call_uninterrupted, _leave)
# Not only from init() on: others may wait for a script that does not get there.
stacks.announce()


def is_initialized() -> bool:
    """Whether `init()` was called, and `shutdown()` not since."""
    return _native.is_initialized()


def rank() -> int:
    """This process's number in the job, from 0. Local.

    Raises:
        ValueError: hvd is not initialised; so does each function from here to `is_homogeneous`.
    """
    return _native.rank()


def size() -> int:
    """Number of processes in the job."""
    return _native.size()


def local_rank() -> int:
    """This process's number among those of its host, from 0."""
    return _native.local_rank()


def local_size() -> int:
    """Number of the job's processes on this host."""
    return _native.local_size()


def cross_rank() -> int:
    """Number of this host among those that have a process with this local rank, from 0."""
    return _native.cross_rank()


def cross_size() -> int:
    """Number of hosts that have a process with this local rank."""
    return _native.cross_size()


def is_homogeneous() -> bool:
    """Whether all hosts have equally many processes."""
    return _native.is_homogeneous()


def mpi_built() -> bool:
    """Whether this installation can work with an MPI. Every one can, unless its plugins are missing: they are built
    without MPI, which is found when it is used. `hvd doctor` says more."""
    for plugin in installation.MPI_PLUGINS.values():
        with contextlib.suppress(FileNotFoundError):
            installation.find(f"lib/hvd/{plugin}")
            return True
    return False


def mpi_enabled() -> bool:
    """Whether MPI has started this process's job: mpirun, mpiexec, or mpi4py by `init(comm=...)`."""
    return _met_through_mpi4py or _native.launch()[0] in ("open_mpi", "mpich")


def mpi_threads_supported() -> bool:
    """Whether the program may use MPI while hvd does. hvd asks MPI for that (MPI_THREAD_MULTIPLE) if it initialises it,
    and where MPI gives less, hvd does without it; so the answer is always True.

    Raises:
        ValueError: MPI has not started this job.
    """
    if not mpi_enabled():
        raise ValueError("MPI has not started this job: start it with mpirun, or give init() a communicator of mpi4py")
    return True


def gloo_built() -> bool:
    """True: where Horovod has Gloo, hvd has its own way between processes on CPUs, which is always there."""
    return True


def gloo_enabled() -> bool:
    """Whether something else than MPI has started this process's job: exactly one of this and `mpi_enabled` is True."""
    return not mpi_enabled()


def nccl_built() -> int:
    """The version of the NCCL that carries GPU tensors here, as NCCL writes it (22105 is 2.21.5); 0 where none does:
    without an NCCL, without a CUDA driver, and with HVD_GPU_THROUGH_HOST=1."""
    if not cuda_built() or os.environ.get("HVD_GPU_THROUGH_HOST") in ("1", "true", "on", "yes"):
        return 0
    found = re.search(r"^NCCL: ok: NCCL (\d+)\.(\d+)\.(\d+)", _native.gpu_libraries(), re.MULTILINE)
    if found is None:
        return 0
    major, minor, patch = map(int, found.groups())
    return major * (10000 if (major, minor) >= (2, 9) else 1000) + minor * 100 + patch


def cuda_built() -> bool:
    """Whether there is a CUDA driver on this machine. hvd is built for GPUs everywhere, and opens it when needed."""
    return "CUDA driver: ok:" in _native.gpu_libraries()


def rocm_built() -> bool:
    """False: hvd does not work with ROCm."""
    return False


def ddl_built() -> bool:
    """False: hvd does not work with DDL."""
    return False


def ccl_built() -> bool:
    """False: hvd does not work with oneCCL."""
    return False


def algorithm_table() -> str:
    """Returns which algorithm performs an allreduce of which size in this job, and why, as readable lines. Local.

    `HVD_LOG_LEVEL=info` also logs them at start; `HVD_ALGORITHM` overrides the choice.

    Raises:
        ValueError: hvd is not initialised.
    """
    return _native.algorithm_table()


_PRESENT_VALUES = frozenset(
    [
        *["lock_state", "shard_rows", "shard_bytes", "shard_queue_bytes", "shard_waiting"],
        *["shard_staleness_median", "shard_staleness_worst"],
    ]
)


def metrics(since: Mapping[str, float] | None = None) -> dict[str, float]:
    """What has happened on this rank since `init`: counts as int, times in seconds as float (docs/metrics.md). In a
    process that is a parameter server, whose `init` does not return, a thread may call it.

    Args:
        since: an earlier result; what has happened after it is returned then, for instance in one training step.
            Present values, such as `lock_state` and the sizes of a server's shards, are always those of now.

    Returns:
        Values by name; docs/metrics.md has names and units.

    Raises:
        ValueError: hvd is not initialised.
        TypeError: `since` is no result of this function.
    """
    if since is not None and not isinstance(since, Mapping):
        raise TypeError(f"since is {since!r}: expected an earlier result of metrics()")
    now = _native.metrics()
    if "HVD_PROCESS" in os.environ:
        now |= elastic_counters
    if since is not None:
        counted = {name: value - since.get(name, 0) for name, value in now.items()}
        now = counted | {name: value for name, value in now.items() if name in _PRESENT_VALUES}
        communication = now["communication_seconds"]
        now["overlap"] = max(0.0, 1 - now["exposed_seconds"] / communication) if communication > 0 else 1.0
    return {name: value if name.endswith(("_seconds", "overlap")) else int(value) for name, value in now.items()}


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """On rank 0, writes from now on what its operations do when, into a file for chrome://tracing. Local; any rank.

    The file is complete JSON whenever it is not just being written to. `HVD_TIMELINE` does the same from the start. On
    other ranks nothing happens.

    Args:
        file_path: overwritten if it is there; the file that is being written already goes on.
        mark_cycles: a mark for each answer of the coordinator.

    Raises:
        ValueError: the file cannot be written, another one is being written, or hvd is not initialised.
    """
    _native.start_timeline(os.fsencode(file_path), mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline, if there is one; returns when all of it is in the file. `shutdown` does it, too.

    Raises:
        ValueError: hvd is not initialised.
    """
    _native.rank()  # raises it
    _native.stop_timeline()
