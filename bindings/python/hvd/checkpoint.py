"""Checkpoints of an elastic state: what is left of a job whose processes are all gone.

    state = hvd.elastic.TorchState(model, optimizer, epoch=0)
    hvd.checkpoint.keep(state, "checkpoints", seconds=600)

    train(state)  # of hvd.elastic.run, as without

A checkpoint is a folder, `checkpoint-NUMBER`, with the state and a manifest. It is written under another name, which
changes once everything is on the disk: whatever is interrupted, a folder of that name is whole, and earlier ones stay.

    manifest.json    {"format": 1, "number": 1200, "file": "state.pt", "bytes": 102400, "sha256": "..."}
    state.pt         by the state's framework: `State.write`
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import re
import shutil
import threading
import time
from typing import Any

from hvd import _native
from hvd.elastic import State

FORMAT = 1
VARIABLE = "HVD_RESUME"  # the directory that hvdrun --resume names

_PART = 1 << 20  # bytes read at a time
_MOST_COMMITS = 1 << 43

_log = logging.getLogger("hvd")


def keep(
    state: State, directory: str | os.PathLike[str] | None = None, seconds: float = 600, newest: int = 3
) -> Checkpoints | None:
    """Goes on with the newest checkpoint of `state` in a directory, if there is one, and has more of them written.

    Call it before the function of `hvd.elastic.run`, on all ranks. Every rank reads that finds the checkpoint on its
    host, and all take the state of rank 0 when `hvd.elastic.run` begins. Only rank 0 writes: after a commit, every
    `seconds`, the state that was saved there is written by a thread of its own, while the training goes on.

    Args:
        state: the checkpoint must be of a state of the same class, with the same names and shapes.
        directory: made if it is not there; of a file system that all hosts share, where rank 0 may change hosts. None:
            that of `hvdrun --resume`; without it, nothing is done.
        seconds: from the beginning of one checkpoint to that of the next, at least; 0: after each commit at which the
            last one is written.
        newest: so many are kept; older ones are deleted.

    Returns:
        None if there is no directory.

    Raises:
        OSError: the directory cannot be made or read.
        ValueError: a whole checkpoint cannot be read into this state.
    """
    directory = os.environ.get(VARIABLE) if directory is None else directory
    if not directory:
        return None
    checkpoints = Checkpoints(pathlib.Path(directory), seconds, newest)
    if not _native.stands_by():  # newcomers get the state from others
        checkpoints.restore(state)
    state.saved()  # raises here, on all ranks, if the state cannot be written
    state.register_commit_callback(checkpoints.committed)
    return checkpoints


class Checkpoints:
    """Those in one directory.

    Attributes:
        last_error: of the last checkpoint that could not be written, if there was one since.
    """

    def __init__(self, directory: pathlib.Path, seconds: float, newest: int) -> None:
        if newest < 1:
            raise ValueError(f"newest must be at least 1, not {newest}")
        self.directory, self.seconds, self.newest = directory, seconds, newest
        self.last_error: Exception | None = None
        self._began = time.monotonic()
        self._writer: threading.Thread | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Of all checkpoints, ascending."""
        names = (re.fullmatch(r"checkpoint-(\d+)", path.name) for path in self.directory.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def folder(self, number: int) -> pathlib.Path:
        return self.directory / f"checkpoint-{number}"

    def restore(self, state: State) -> int | None:
        """Reads the newest checkpoint that is whole, and returns its number, that of its commit; None: there is none.

        Raises:
            ValueError: it is not one of such a state.
        """
        for number in reversed(self.numbers()):
            file = self._whole_file(number)
            if file is None:
                _log.warning("hvd: %s is not whole, and is passed over", self.folder(number))
                continue
            try:
                state.read(file)
            except Exception as error:
                raise ValueError(f"{file} cannot be read into this state: {error}") from error
            state._finished_steps = state._steps_at_save = number
            return number
        return None

    def _whole_file(self, number: int) -> pathlib.Path | None:
        try:
            manifest = json.loads((self.folder(number) / "manifest.json").read_text())
            if manifest["format"] != FORMAT:
                raise ValueError(f"{self.folder(number)} is of format {manifest['format']}, which this hvd cannot read")
            file = self.folder(number) / pathlib.Path(manifest["file"]).name
            is_own = manifest["number"] == number and number < _MOST_COMMITS
            if is_own and file.stat().st_size == manifest["bytes"] and _digest(file) == manifest["sha256"]:
                return file
        except (OSError, KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError):
            pass
        return None

    def committed(self, state: State) -> None:
        """On rank 0, begins the next checkpoint if it is due and the last one is written."""
        if _native.is_initialized() and _native.rank() != 0:
            self._began = time.monotonic()  # another process may be writing when this one becomes rank 0
            return
        is_writing = self._writer is not None and self._writer.is_alive()
        if is_writing or time.monotonic() < self._began + self.seconds:
            return
        self._began = time.monotonic()
        saved, number = state.saved(), state._finished_steps
        # Not a daemon: the interpreter waits for it at its end.
        self._writer = threading.Thread(target=self._write_or_warn, args=(state, saved, number), name="hvd checkpoint")
        self._writer.start()

    def wait(self) -> None:
        """Until the checkpoint that is being written is there, if one is."""
        if self._writer is not None:
            self._writer.join()

    def _write_or_warn(self, state: State, saved: Any, number: int) -> None:
        try:
            self._write(state, saved, number)
            self.last_error = None
        except Exception as error:  # a full disk, for instance: the training goes on, and the next one may succeed
            self.last_error = error
            _log.warning("hvd: checkpoint %d is not written: %s", number, error)

    def _write(self, state: State, saved: Any, number: int) -> None:
        for left in self.directory.glob(".writing-*"):  # by a rank 0 that is gone
            shutil.rmtree(left, ignore_errors=True)
        temporary = self.directory / f".writing-{number}-{os.getpid()}"
        temporary.mkdir()
        try:
            file = temporary / state.file_name
            state.write(saved, file)
            _flush(file)
            manifest = {"format": FORMAT, "number": number, "file": file.name}
            manifest |= {"bytes": file.stat().st_size, "sha256": _digest(file)}
            (temporary / "manifest.json").write_text(json.dumps(manifest) + "\n")
            _flush(temporary / "manifest.json")
            _flush(temporary)
            if self.folder(number).exists():  # not whole, or restore() would have gone on behind it
                shutil.rmtree(self.folder(number))
            temporary.rename(self.folder(number))
            _flush(self.directory)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        older = [other for other in self.numbers() if other <= number]
        for old in older[: -self.newest]:
            shutil.rmtree(self.folder(old), ignore_errors=True)


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
        while part := opened.read(_PART):
            digest.update(part)
    return digest.hexdigest()
