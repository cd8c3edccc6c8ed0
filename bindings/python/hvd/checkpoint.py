"""Checkpoints of an elastic state: what is left of a job whose processes are all gone.

    state = hvd.elastic.TorchState(model, optimizer, epoch=0)
    hvd.checkpoint.keep(state, "checkpoints", seconds=600)

    train(state)  # of hvd.elastic.run, as without

A checkpoint is a folder, `checkpoint-NUMBER`, with the state and a manifest. It is written under another name, which
changes once everything is on the disk: whatever is interrupted, a folder of that name is whole, and earlier ones stay.

    manifest.json    {"format": 2, "number": 1200, "files": [{"name": "state.pt", "bytes": 102400, "sha256": "..."}]}
    state.pt         by the state's framework: `State.write`

Of a sharded state each rank writes its part into that folder, and says so in a file, `done-RANK.json`. Ranks agree in a
commit that a checkpoint is due, by a collective of the training's own thread; from then on they communicate only
through files: threads that write while the training goes on have no operation that could come between the training's
own, or wait for a rank that is gone. Rank 0 waits until all are done, or for as long as the folder grows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from hvd import _native
from hvd.elastic import State, broadcast_number, largest_numbers

FORMAT = 2
VARIABLE = "HVD_RESUME"  # the directory that hvdrun --resume names

_BLOCK = 1 << 20  # bytes read at a time
_MOST_COMMITS = 1 << 43
_SILENCE_S = 120  # without a new byte of other ranks; NFS may show one after a minute
_POLL_S = 0.02

_log = logging.getLogger("hvd")

File = dict[str, Any]  # as in a manifest: name, bytes and sha256


def keep(
    state: State, directory: str | os.PathLike[str] | None = None, seconds: float = 600, newest: int = 3
) -> Checkpoints | None:
    """Goes on with the newest checkpoint of `state` in a directory, if there is one, and has more of them written.

    Call it before the function of `hvd.elastic.run`, or within it for a sharded state, on all ranks. Every rank reads
    the newest checkpoint that it finds, and when `hvd.elastic.run` begins all take the state of the lowest rank that
    found the newest one. (A session-based TensorFlowState always takes rank 0's.) Use a folder that all hosts share, or
    clear stale ones: a newer checkpoint on any host wins.

    Only rank 0 writes: after a commit, every `seconds`, the state that was saved there is written by a thread of its
    own, while the training goes on. Of a sharded state every rank reads and writes its part.

    Args:
        state: the checkpoint must be of a state of the same class, with the same names and shapes.
        directory: made if it is not there; of a file system that all hosts share, where rank 0 may change hosts, or the
            state is sharded. The same on every rank. None: that of `hvdrun --resume`; without it, nothing is done.
        seconds: from the beginning of one checkpoint to that of the next, at least; 0: after each commit at which the
            last one is written.
        newest: so many are kept; older ones are deleted.

    Returns:
        The checkpoints, whose `wait()` returns when the one that is being written is complete and whose `last_error`
        says why one was not written; None if there is no directory.

    Raises:
        OSError: the directory cannot be made or read.
        ValueError: a whole checkpoint cannot be read into this state, newest is below 1, or a state that is sharded
            comes before the job is joined.
        HorovodInternalError: the state is sharded, and a rank was lost.
    """
    directory = os.environ.get(VARIABLE) if directory is None else directory
    if not directory:
        return None
    checkpoints = Checkpoints(pathlib.Path(directory), seconds, newest)
    if not _native.stands_by():  # newcomers get the state from others
        checkpoints.restore(state)
    state.saved()  # raises here, on all ranks, if the state cannot be written
    state.register_commit_callback(checkpoints.committed)
    state.register_last_commit_callback(checkpoints.committed_last)
    if state.is_sharded():
        state.register_reset_callbacks([checkpoints.abandon])
    return checkpoints


@dataclasses.dataclass(frozen=True)
class _Part:
    """What one rank writes of a checkpoint."""

    number: int
    token: int  # of this attempt to write it
    rank: int
    ranks: int  # that write
    epoch: int  # of the job, when the writing began
    abandoned: threading.Event = dataclasses.field(default_factory=threading.Event)

    def is_abandoned(self, within_s: float) -> bool:
        """Waits for so long, unless it is."""
        return self.abandoned.wait(within_s) or (_native.is_initialized() and _native.epoch()[0] != self.epoch)


class Checkpoints:
    """Those in one directory.

    Attributes:
        last_error: of the last checkpoint, or of this rank's part, that could not be written, if there was one since.
    """

    def __init__(self, directory: pathlib.Path, seconds: float, newest: int) -> None:
        if newest < 1:
            raise ValueError(f"newest must be at least 1, not {newest}")
        self.directory, self.seconds, self.newest = directory, seconds, newest
        self.last_error: Exception | None = None
        self._began = time.monotonic()
        self._writer: threading.Thread | None = None
        self._part: _Part | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Of all checkpoints, ascending."""
        names = (re.fullmatch(r"checkpoint-(\d+)", path.name) for path in self.directory.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def folder(self, number: int) -> pathlib.Path:
        return self.directory / f"checkpoint-{number}"

    def restore(self, state: State) -> int | None:
        """Reads the newest checkpoint that is whole, and returns its number, that of its commit; None: there is none.
        All ranks must call it if the state is sharded; they read the same one.

        Raises:
            ValueError: it is not one of such a state.
        """
        rank, ranks = _place() if state.is_sharded() else (0, 1)
        for number in self._candidates(ranks):
            files = self._manifest(number)
            is_broken = files is None or not all(self._is_whole(number, file) for file in files[rank::ranks])
            if ranks > 1:
                is_broken = bool(largest_numbers(is_broken)[0])
            if is_broken:
                _log.warning("hvd: %s is not whole, and is passed over", self.folder(number))
                continue
            try:
                state.read(self.folder(number))
            except Exception as error:
                raise ValueError(f"{self.folder(number)} cannot be read into this state: {error}") from error
            state._finished_steps = state._steps_at_save = number
            return number
        return None

    def _candidates(self, ranks: int) -> Iterator[int]:
        """Numbers, descending; where several ranks read together, those that rank 0 finds."""
        found = self.numbers()
        while True:
            number = found.pop() if found else -1
            if ranks > 1:
                number = broadcast_number(number)
            if number < 0:
                return
            yield number

    def _manifest(self, number: int) -> list[File] | None:
        """The files of a checkpoint. None if its manifest is missing or invalid."""
        try:
            manifest = json.loads((self.folder(number) / "manifest.json").read_text())
            if manifest["format"] not in (1, FORMAT):
                raise ValueError(f"{self.folder(number)} is of format {manifest['format']}, which this hvd cannot read")
            if manifest["number"] != number or number >= _MOST_COMMITS:
                return None
            if manifest["format"] == 1:
                return [{"name": manifest["file"], "bytes": manifest["bytes"], "sha256": manifest["sha256"]}]
            return list(manifest["files"])
        except (OSError, KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError):
            return None

    def _is_whole(self, number: int, file: File) -> bool:
        try:
            path = self.folder(number) / pathlib.Path(file["name"]).name
            return bool(path.stat().st_size == file["bytes"] and _digest(path) == file["sha256"])
        except (OSError, KeyError, TypeError):
            return False

    def committed(self, state: State) -> None:
        """Begins the next checkpoint if it is due and the last one is written, as rank 0 says: on rank 0, or on all
        ranks if the state is sharded."""
        self._begin(state, not self._is_writing() and time.monotonic() >= self._began + self.seconds)

    def committed_last(self, state: State) -> None:
        """The job ends with this commit: returns once its checkpoint is written, whether one was due or not. All ranks
        must call it if the state is sharded."""
        self.wait()
        is_written = self._part is not None and self._part.number == state._finished_steps and self.last_error is None
        self._begin(state, not is_written)
        self.wait()

    def _begin(self, state: State, is_due: bool) -> None:
        rank, ranks = _place()
        is_sharded = state.is_sharded()
        token = 1 + secrets.randbits(48) if is_due and rank == 0 else 0
        if is_sharded and ranks > 1:
            token = broadcast_number(token)
        if token or rank != 0:
            self._began = time.monotonic()  # another process may be writing when this one becomes rank 0
        if not token:
            return
        epoch = _native.epoch()[0] if _native.is_initialized() else 0
        self._part = _Part(state._finished_steps, token, rank, ranks if is_sharded else 1, epoch)
        # Not a daemon: the interpreter waits for it at its end.
        arguments = (state, state.saved(), self._part)
        self._writer = threading.Thread(target=self._write_or_warn, args=arguments, name="hvd checkpoint")
        self._writer.start()

    def _is_writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def wait(self) -> None:
        """Until the checkpoint that is being written is there, if one is; on ranks other than 0 of a sharded state,
        until their part of it is there."""
        if self._writer is not None:
            self._writer.join()

    def abandon(self) -> None:
        """Ranks that write a checkpoint together may be gone: rank 0 waits for them no longer."""
        if self._part is not None:
            self._part.abandoned.set()

    def _write_or_warn(self, state: State, saved: Any, part: _Part) -> None:
        try:
            if part.rank == 0:
                self._write(state, saved, part)
            else:
                self._write_part(state, saved, part)
            self.last_error = None
        except Exception as error:  # a full disk, for instance: the training goes on, and the next one may succeed
            self.last_error = error
            what = f"checkpoint {part.number}" + (f", rank {part.rank}'s part" if part.rank else "")
            _log.warning("hvd: %s is not written: %s", what, error)

    def _temporary(self, part: _Part) -> pathlib.Path:
        temporary = self.directory / f".writing-{part.number}-{part.token:x}"
        temporary.mkdir(exist_ok=True)  # by the first of the ranks
        return temporary

    def _write(self, state: State, saved: Any, part: _Part) -> None:
        temporary = self._temporary(part)
        for left in self.directory.glob(".writing-*"):  # by a job that is gone
            if left != temporary:
                shutil.rmtree(left, ignore_errors=True)
        try:
            files = _described(state.write(saved, temporary, 0))
            for rank in range(1, part.ranks):
                files += _await_part(temporary, rank, part)
            files += _described(state.complete(temporary, part.ranks))
            _write_json({"format": FORMAT, "number": part.number, "files": files}, temporary / "manifest.json")
            _flush(temporary)
            if self.folder(part.number).exists():  # not whole, or restore() would have gone on behind it
                shutil.rmtree(self.folder(part.number))
            temporary.rename(self.folder(part.number))
            _flush(self.directory)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        older = [other for other in self.numbers() if other <= part.number]
        for old in older[: -self.newest]:
            shutil.rmtree(self.folder(old), ignore_errors=True)

    def _write_part(self, state: State, saved: Any, part: _Part) -> None:
        temporary = self._temporary(part)
        try:
            told: dict[str, Any] = {"files": _described(state.write(saved, temporary, part.rank))}
        except Exception as error:
            told = {"error": str(error)}
            raise
        finally:
            _write_json(told, temporary / f".done-{part.rank}")
            (temporary / f".done-{part.rank}").rename(_done(temporary, part.rank))


def _place() -> tuple[int, int]:
    """This process's rank, and their number."""
    return (_native.rank(), _native.size()) if _native.is_initialized() else (0, 1)


def _done(temporary: pathlib.Path, rank: int) -> pathlib.Path:
    return temporary / f"done-{rank}.json"


def _await_part(temporary: pathlib.Path, rank: int, part: _Part) -> list[File]:
    """Waits for another writing rank, and returns the files that it has written.

    Raises:
        OSError: it cannot write them, or is gone, or the ranks have changed.
    """
    done, seen, deadline = _done(temporary, rank), -1, 0.0
    while not done.exists():
        if (written := _bytes_in(temporary)) != seen:
            seen, deadline = written, time.monotonic() + _SILENCE_S
        if time.monotonic() >= deadline:
            raise TimeoutError(f"nothing has come of rank {rank}'s part for {_SILENCE_S} s")
        if part.is_abandoned(_POLL_S):
            raise OSError(f"the ranks have changed before rank {rank} has written its part")
    told = json.loads(done.read_text())
    done.unlink()
    if "error" in told:
        raise OSError(f"rank {rank}: {told['error']}")
    return list(told["files"])


def _bytes_in(folder: pathlib.Path) -> int:
    total = 0
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # it has got another name
            total += entry.stat().st_size
    return total


def _described(paths: Iterable[pathlib.Path]) -> list[File]:
    """Once their content is on the disk."""
    for path in (paths := list(paths)):
        _flush(path)
    return [{"name": path.name, "bytes": path.stat().st_size, "sha256": _digest(path)} for path in paths]


def _write_json(content: dict[str, Any], path: pathlib.Path) -> None:
    path.write_text(json.dumps(content) + "\n")
    _flush(path)


def _flush(path: pathlib.Path) -> None:
    """Returns once a file's content, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(file: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
