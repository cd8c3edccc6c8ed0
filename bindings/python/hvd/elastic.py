"""Elastic training, the part of it that every framework has: a training state that can be saved, restored and given to
new ranks, and a loop that goes on with it when the job breaks or its hosts change.

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

Frameworks bring their own states (`hvd.torch.elastic.TorchState`).
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import os
import pathlib
import pickle
import queue
import signal
import time
import zlib
from collections.abc import Iterable
from typing import Any, Callable

import cloudpickle

from hvd import _native, basics, process_set, reduce_op
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt

# What has happened to the hosts of a job; as flags, so that several updates can be put together.
HOSTS_REMOVED = 1
HOSTS_ADDED = 2
_JOB_ENDS = 4  # early, because its time is up

Broadcast = Callable[[Any], Any]

_NEWCOMERS_TIMEOUT_S = 60
_PICKLE = "state.pkl"


def may_grow() -> bool:
    """Whether ranks may be added later, so that a rank that is alone is not to be taken for a job of one."""
    return (os.environ.get("HVD_ELASTIC") or os.environ.get("HOROVOD_ELASTIC") or "0") not in ("0", "false", "False")


class _HostMessages(queue.SimpleQueue):  # type: ignore[type-arg]
    """What `on_hosts_updated` was told: pairs of a time and a change.

    Programs written for Horovod wait on rank 0 until `state._host_messages.empty()` is false, and expect new ranks
    after their next commit. So it is false as soon as processes are started, and that commit waits for them.
    """

    _is_watched = False

    def empty(self) -> bool:
        self._is_watched = True
        return super().empty() and not (_native.is_initialized() and any(_native.epoch()[2:]))

    def announced(self) -> int:
        """On rank 0: the change that the launcher has announced; waits for processes that are starting if the program
        has looked for them since the last time."""
        deadline = time.monotonic() + (_NEWCOMERS_TIMEOUT_S if self._is_watched else 0)
        self._is_watched = False
        while True:
            _, _, change, starting = _native.epoch()
            if change or not starting or time.monotonic() >= deadline:
                return change
            time.sleep(0.01)


class State:
    """What a training run consists of. Subclasses say what `save`, `restore` and `sync` do.

    Args:
        bcast_object: gives every rank the object of one rank: of `source_rank()`, or of rank 0.
        get_rank: this process's rank.
    """

    _finished_steps = 0  # commits and finished steps in the life of the state, on whichever ranks
    _steps_at_save = 0  # at the last save
    _takes_newest = True  # sync() takes the state from source_rank(), not always from rank 0
    # Whether it is the state after `_finished_steps`, in a history that began with a synchronisation: ranks with equal
    # numbers then have equal states. Nobody knows while a step is under way.
    _is_synchronized = False
    _is_at_step = False
    _is_saved = False  # the saved copy equals the current state

    def __init__(self, bcast_object: Broadcast, get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commit_callbacks: list[Callable[[State], None]] = []
        self._last_commit_callbacks: list[Callable[[State], None]] = []
        self._host_messages = _HostMessages()
        self._last_update: float = 0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """These are called after each reset, for instance to change the learning rate when the job's size has."""
        self._reset_callbacks.extend(callbacks)

    def register_commit_callback(self, callback: Callable[[State], None]) -> None:
        """It is called in each commit, once the state is saved, on this rank."""
        self._commit_callbacks.append(callback)

    def register_last_commit_callback(self, callback: Callable[[State], None]) -> None:
        """It is called on this rank when the job ends early because its time is up: once, after the callbacks of the
        last commit. The process leaves the job when it has returned. With a sharded state it is called before each
        change of the ranks, which cannot give their shards to each other."""
        self._last_commit_callbacks.append(callback)

    def on_reset(self) -> None:
        """A new job was joined: what was told about the hosts of the old one is forgotten, and callbacks are called."""
        self._host_messages = _HostMessages()
        self.reset()
        for callback in self._reset_callbacks:
            callback()
            self._is_saved = False  # it may have changed something, such as the learning rate

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Says that the hosts have changed. From any thread; the next `check_host_updates` acts on it.

        Args:
            timestamp: when; later ones are larger.
            update_res: HOSTS_REMOVED, HOSTS_ADDED, or both of them added up.
        """
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, and then leaves for a new job if the hosts have changed. All ranks must call it, after the
        same step.

        Raises:
            HostsUpdatedInterrupt: they have; on all ranks alike.
            HorovodInternalError: a rank was lost. The state is saved by then.
        """
        self.save()
        self._finished_steps += 1
        self._steps_at_save = self._finished_steps
        for callback in self._commit_callbacks:
            callback(self)
        self._is_saved = not self._commit_callbacks
        self._check_after_step()

    def finish_step(self) -> None:
        """As `commit`, without a copy of what the next step changes only once its gradients are there. To be called at
        the end of each step; all ranks must call it.

        After a failure, a rank whose parameters are still those of the end of this step goes on from there. One that
        failed while they were being changed, or later, goes back to the last commit. Checkpoints are written at commits
        only. `TorchState` and `JaxState` avoid copies this way; other states save everything.

        Raises:
            HostsUpdatedInterrupt: the hosts have changed; on all ranks alike.
            HorovodInternalError: a rank was lost.
        """
        self.save_step()
        self._finished_steps += 1
        self._check_after_step()

    def _check_after_step(self) -> None:
        self._is_at_step = True
        self.check_host_updates()
        self._is_at_step = self._is_saved = False

    def _go_back(self) -> None:
        """To the last commit or finished step."""
        self._is_at_step = True
        self._is_saved = self._finished_steps == self._steps_at_save or not self.restore_step()
        if self._is_saved:
            self.restore()
            self._finished_steps = self._steps_at_save

    def check_host_updates(self) -> None:
        """Leaves for a new job if the hosts have changed, without saving. All ranks must call it; rank 0 decides.

        Raises:
            HostsUpdatedInterrupt: they have; on all ranks alike.
            HorovodInternalError: a rank was lost.
        """
        changes = 0
        while self._host_messages.qsize():
            timestamp, change = self._host_messages.get()
            if timestamp > self._last_update:
                self._last_update = timestamp
                changes |= change
        if changes := self._decide(changes):
            if changes & _JOB_ENDS or self.is_sharded():
                self._commit_last()
            if changes & _JOB_ENDS:
                _native.report_leaving()
            raise HostsUpdatedInterrupt(skip_sync=changes == HOSTS_REMOVED)

    def _commit_last(self) -> None:
        if not self._is_at_step:
            self._finished_steps += 1
        if not self._is_at_step or self._steps_at_save != self._finished_steps:
            self.save()
            self._steps_at_save = self._finished_steps
        for callback in self._last_commit_callbacks:
            callback(self)

    def _decide(self, changes: int) -> int:
        """What rank 0 knows of changes: from the launcher, and what it was told."""
        if not _native.is_initialized():
            return int(self._bcast_object(changes))
        _native.report_preemption()
        if _native.rank() == 0:
            changes |= self._host_messages.announced()
        return broadcast_number(changes) if _native.size() > 1 else changes

    def save(self) -> None:
        """Keeps the state in memory, for `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError

    def save_step(self) -> None:
        """For `finish_step`: keeps what the next step may change early, for `restore_step`; or saves everything."""
        self.save()
        self._steps_at_save = self._finished_steps + 1

    def restore_step(self) -> bool:
        """Goes back to the last `save_step`. Returns False, and does nothing, if the state has changed too far."""
        return False

    def sync(self) -> None:
        """Gives every rank the state of `source_rank()`. All ranks must call it. What is large may go to those in
        `sync_set()` only."""
        raise NotImplementedError

    def make_room(self) -> None:
        """For subclasses: allocates the memory that `sync` is going to fill, and touches it, so that the kernel has
        cleared its pages by then. Called on a newcomer while the others do not wait for it yet. It may change values,
        since `sync` follows."""

    def reset(self) -> None:
        """For subclasses: a new job was joined."""

    # For checkpoints (hvd.checkpoint).

    def is_sharded(self) -> bool:
        """Whether each rank has a part of the state only, and writes it; the same on all ranks."""
        return False

    def saved(self) -> Any:
        """What `save` has kept. It does not change any more; another `save` keeps something new."""
        raise NotImplementedError

    def load(self, saved: Any) -> None:
        """Takes what `saved` has returned in another process, as the present state and the saved one."""
        raise NotImplementedError

    def write(self, saved: Any, folder: pathlib.Path, rank: int = 0) -> list[pathlib.Path]:
        """Writes what `saved` has returned, and returns the files. From any thread. By pickle, unless a framework has a
        format of its own.

        Args:
            folder: of this checkpoint, for the files of all ranks.
            rank: this process's when `saved` was called; rank 0 writes alone if the state is not sharded.
        """
        with open(folder / _PICKLE, "wb") as opened:
            cloudpickle.dump(saved, opened)
        return [folder / _PICKLE]

    def complete(self, folder: pathlib.Path, ranks: int) -> list[pathlib.Path]:
        """On rank 0, once this many ranks have written their parts of a sharded state: writes what makes them one, and
        returns the files. From any thread."""
        return []

    def read(self, folder: pathlib.Path) -> None:
        """Loads what `write` and `complete` have written. As with any pickle, a file from somebody else may do
        anything."""
        with open(folder / _PICKLE, "rb") as opened:
            self.load(pickle.load(opened))


class ObjectState(State):
    """A state of Python objects: each keyword is an attribute. They are copied when they are saved, and pickled to be
    given to other ranks."""

    def __init__(self, bcast_object: Broadcast, get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = copy.deepcopy(kwargs)
        self._set_attributes(kwargs)

    def _set_attributes(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _copied_attributes(self) -> dict[str, Any]:
        return {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def save(self) -> None:
        self._saved_state = self._copied_attributes()

    def restore(self) -> None:
        self._set_attributes(copy.deepcopy(self._saved_state))

    def sync(self) -> None:
        """As in State; then saves. Subclasses synchronise what is theirs before, so that nothing is saved if the job
        breaks in between."""
        if self._saved_state:
            self._set_attributes(self._bcast_object({name: getattr(self, name) for name in self._saved_state}))
        if not self._is_saved:
            self.save()

    def saved(self) -> dict[str, Any]:
        return {"objects": self._saved_state}

    def load(self, saved: dict[str, Any]) -> None:
        objects = saved["objects"]
        if set(objects) != set(self._saved_state):
            raise ValueError(
                f"the checkpoint has {sorted(objects)}, but this state has {sorted(self._saved_state)}: make the state "
                "with the same names, or use another folder"
            )
        self._set_attributes(objects)
        self.save()


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """A function with `func`'s arguments, of which the first is a State, that runs it until it returns.

    Before each run the state is synchronised: all ranks take that of the newest commit or finished step, on whichever
    rank. If an operation between ranks fails (HorovodInternalError), the state goes back to its own last one. If the
    hosts have changed (HostsUpdatedInterrupt) it stays as it is, and is not synchronised where hosts were only taken
    away. Either way `reset` joins the new job, or the next epoch of an elastic job, before the next run.

    A newcomer joins here: what it did before was done while the others trained. All ranks must call the function.

    Args:
        func: called as `func(state, *args, **kwargs)`.
        reset: leaves the job and joins the next, without arguments; `join_anew` for the jobs of hvdrun.

    Returns:
        A function that returns what `func` has returned in its last run.

    Raises (the function):
        TypeError: its first argument is no State.
        InitError: no new job, or epoch, could be joined.
        SystemExit: with code 0, in a process for which the job has no place any more.
        HorovodInternalError: the ranks have disagreed about an operation twice, after the same step: they would again.
        Exception: whatever `func` raises besides HorovodInternalError and HostsUpdatedInterrupt.
    """

    @functools.wraps(func)
    def run(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise TypeError(
                f"the first argument of a function of elastic.run is of type {type(state).__name__}: expected a State, "
                "such as hvd.elastic.TorchState"
            )
        skip_sync, left_at = False, None
        mismatch_after: int | None = None  # finished steps
        numbers = process_set.numbers_of_names()
        process_set.note_definitions()
        is_newcomer = is_reset = _native.stands_by()
        state._is_synchronized = state._is_at_step = state._is_saved = False
        if "HVD_PROCESS" in os.environ and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            _native.watch_preemption()
        while True:
            try:
                if is_newcomer:
                    is_newcomer = False
                    state.make_room()
                    basics.leave_standby()
                if is_reset:
                    state.on_reset()  # callbacks may have operations, which fail if a rank is lost meanwhile
                _synchronize(state, is_needed=not skip_sync or _has_newcomers())
                if _native.is_initialized():
                    _native.report_synchronized()
                is_reset = state._is_at_step = state._is_saved = False
                _count_epoch(left_at)
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                if error.is_mismatch and mismatch_after == state._finished_steps:
                    raise
                mismatch_after = state._finished_steps if error.is_mismatch else None
                left_at = time.monotonic()
                basics.elastic_counters["elastic_failures"] += 1
                state._go_back()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                left_at = time.monotonic()
                skip_sync = interrupt.skip_sync and not is_reset
            reset()
            process_set.set_back_numbers(numbers)
            is_reset = True

    return run


def _count_epoch(left_at: float | None) -> None:
    basics.elastic_counters["elastic_epochs"] += 1
    if left_at is not None:
        basics.elastic_counters["elastic_pause_seconds"] += time.monotonic() - left_at


def join_anew() -> None:
    """Leaves the job, or its epoch, and joins it again; all ranks call.

    In an elastic job this waits for a place in the next epoch, and tries again if a rank is lost in the rendezvous.
    A process for which the job has no place any more ends: SystemExit(0).

    Raises:
        InitError: as from `init`.
    """
    is_elastic = "HVD_PROCESS" in os.environ
    definitions = process_set.definitions()

    def join() -> None:
        if is_elastic:
            process_set.define(definitions)
        basics.init_again()

    basics.shutdown()
    basics.join_epoch(join)


_source_rank = 0


def source_rank() -> int:
    """During `sync()`: the rank whose state all ranks receive, the lowest of those with the newest."""
    return _source_rank


_sync_set: process_set.ProcessSet | None = process_set.global_process_set
_sync_root = 0


def sync_set() -> process_set.ProcessSet | None:
    """During `sync()`: the set of `sync_root()` and the ranks that receive its state. None on ranks that neither send
    nor receive: they have finished the same steps, and so have the state."""
    return _sync_set


def sync_root() -> int:
    """During `sync()`: the rank of `sync_set()` whose state the set's other ranks receive. It is a rank of their own
    host if one there has the state of `source_rank()`; else it is `source_rank()`."""
    return _sync_root


def from_source(broadcast_object: Callable[..., Any]) -> Broadcast:
    """For a State: a framework's `broadcast_object`, from `source_rank()`."""
    return lambda given: broadcast_object(given, root_rank=source_rank())


def _synchronize(state: State, is_needed: bool) -> None:
    """All ranks call; they synchronise if any of them needs it: they may have left the last epoch in different ways."""
    global _source_rank, _sync_set, _sync_root
    if not _native.is_initialized() or _native.size() == 1:
        if is_needed:
            state.sync()
            _note_synchronized(state, state._finished_steps)
        return None
    ranked = state._finished_steps << _RANK_BITS | (_MOST_RANKS - _native.rank())
    needed_anywhere, newest = largest_numbers(is_needed, ranked)
    if not needed_anywhere:
        return None
    steps = newest >> _RANK_BITS
    is_newest = state._finished_steps == steps
    if not is_newest:
        state._finished_steps = state._steps_at_save  # the end of its own step is about to be overwritten
    has_it = is_newest and state._is_at_step and state._is_synchronized and state._takes_newest
    state._is_saved = state._is_saved and has_it
    source = _MOST_RANKS - (newest & _MOST_RANKS) if state._takes_newest else 0
    groups = _sync_groups(source, *_who_has_it(has_it))
    before = _native.metrics()["bytes"]
    try:
        _source_rank, _sync_set = source, None
        with contextlib.ExitStack() as sets:
            for root, ranks in groups.items():
                group = sets.enter_context(process_set.temporary(sorted([root, *ranks])))
                if group is not None and group.included():
                    _sync_set, _sync_root = group, root
            state.sync()
            _note_synchronized(state, steps)  # before ranks wait for one another again
        basics.elastic_counters["elastic_state_bytes"] += _native.metrics()["bytes"] - before
    finally:
        _source_rank, _sync_set, _sync_root = 0, process_set.global_process_set, 0


def _sync_groups(source: int, has_it: list[bool], hosts: list[int]) -> dict[int, list[int]]:
    """Maps each rank that sends its state to the ranks that receive it. Ranks receive it from a rank of their own host,
    without the network, if one has it. Between hosts the broadcast is a chain, which takes about as long to all hosts
    as to one: one source for them is enough."""
    nearest: dict[int, int] = {}
    for rank, host in enumerate(hosts):
        if has_it[rank] and has_it[source]:
            nearest.setdefault(host, rank)
    groups: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        if not has_it[rank] and rank != source:
            groups.setdefault(nearest.get(host, source), []).append(rank)
    return groups


def _note_synchronized(state: State, steps: int) -> None:
    state._finished_steps = state._steps_at_save = steps
    state._is_synchronized = True


def _has_newcomers() -> bool:
    return _native.is_initialized() and _native.epoch()[1]


_RANK_BITS = 20
_MOST_RANKS = (1 << _RANK_BITS) - 1

_BROADCAST = _native.OperationSpec(_native.BROADCAST, "hvd.elastic.change", 0, [((1,), _native.INT64)])
_MAXIMUM = _native.OperationSpec(_native.ALLREDUCE, "hvd.elastic.newest", 0, [((2,), _native.INT64)], op=reduce_op.Max)


def broadcast_number(number: int) -> int:
    """Rank 0's number. All ranks call it."""
    return _exchange(_BROADCAST, number)[0]


def largest_numbers(*numbers: int) -> list[int]:
    """Of each, the largest on any rank. All ranks call it."""
    return _exchange(_MAXIMUM, *numbers)


def _who_has_it(has_it: bool) -> tuple[list[bool], list[int]]:
    """`has_it` of every rank, and a number for the host of each. All ranks call it."""
    numbers = [0] * _native.size()
    numbers[_native.rank()] = _host_number() << 1 | has_it
    tensors = [((len(numbers),), _native.INT64)]
    spec = _native.OperationSpec(_native.ALLREDUCE, "hvd.elastic.who", 0, tensors, op=reduce_op.Max)
    gathered = _exchange(spec, *numbers)
    return [bool(number & 1) for number in gathered], [number >> 1 for number in gathered]


def _host_number() -> int:
    """A hash of the host's name. If those of two hosts collide, one receives the state over the network."""
    return zlib.crc32(os.uname().nodename.encode())


def _exchange(spec: _native.OperationSpec, *numbers: int) -> list[int]:
    values = (ctypes.c_int64 * len(numbers))(*numbers)
    addresses = (ctypes.addressof(values),)
    _native.run(spec, addresses, addresses, values)
    return list(values)
