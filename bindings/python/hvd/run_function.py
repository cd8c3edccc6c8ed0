"""`hvd.run`: a function on several ranks, called from a Python session or a notebook.

The caller writes the function and its arguments into a private folder, and starts `hvdrun`. Each rank reads them there,
calls the function, and leaves behind what came of it. Nothing else passes between the caller and the ranks.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO, TypeVar

import cloudpickle

from hvd import _native, arguments, basics, failure, installation
from hvd.exceptions import RankFailedError
from hvd.outcome import Outcome, first_to_fail, raise_failure
from hvd.private_folder import PrivateFolder

T = TypeVar("T")

# A rank begins by finding modules where the caller finds them. Nothing is imported before, from wherever it stands.
START = """\
import sys
folder, sys.path[:], sys.argv[1:] = sys.argv[1], sys.argv[2:], []
from hvd import run_function
run_function.serve(folder)
"""

_CALL = "call"
_END = "end"
_UNFINISHED = ".unfinished"
_FAILED_FOR_GOOD = 78  # EX_CONFIG: the exit code of a rank for which a restart would not help
_USAGE_ERROR = 2  # hvdrun's exit code for options that make no sense
# hvdrun's options, in all launchers' spellings.
_PLACES = {"host", "hosts", "hostlist", "machine", "machines", "machinelist", "hostfile", "machinefile"}
_PLACES |= {"default-hostfile", "f", "host-discovery-script", "cluster", "launcher", "bootstrap", "mpi", "standalone"}
_LAST_LINES = 30  # of hvdrun, whose report of a failure has up to 25, including the last 20 of the rank
_LONGEST_END_S = 15  # of hvdrun, once it was asked to end its ranks: they have a second, and are killed two later


def run(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 4,
    *,
    min_np: int | None = None,
    max_np: int | None = None,
    hosts: str | None = None,
    env: Mapping[str, str] | None = None,
    start_timeout: float | None = None,
    verbose: bool = False,
    options: Sequence[str] = (),
    executable: str | None = None,
) -> list[T]:
    """Calls a function on `np` new processes, the ranks of a job, and returns when all have ended.

    The ranks work in the caller's folder and find modules where the caller does. They read nothing from the keyboard;
    what they print appears in the caller's `sys.stdout` and `sys.stderr`. Ctrl-C ends them.

    With `min_np` or `max_np` the job is elastic: it goes on when a process dies or its function raises an exception, as
    long as there are `min_np` ranks, and new processes, which call the function too, take the place of lost ones. The
    function trains under `elastic.run` of its framework (`hvd.torch.elastic.run`).

    Args:
        fn: called as `fn(*args, **kwargs)` on every rank; calls `hvd.init()` itself if it wants to. Functions that were
            defined in a notebook, a session or the main script travel by value, others by their module's name, all
            by cloudpickle.
        args, kwargs: anything that cloudpickle can write.
        np: number of ranks; of an elastic job, those that it begins with.
        min_np: the fewest ranks with which an elastic job goes on; by default `np`.
        max_np: the most that it may have; by default all slots of its hosts.
        hosts: slots per host, for instance "localhost:4"; so far of this host only.
        env: variables for the ranks, besides the caller's own.
        start_timeout: seconds that `hvd.init()` waits for the other ranks; 30 by default (HVD_START_TIMEOUT).
        verbose: have hvdrun say what it starts, and how it ends.
        options: further ones of hvdrun, for instance `["--bind-to", "core", "--timeout", "60"]`, or in an elastic job
            `["--reset-limit", "3"]`.
        executable: the Python for the ranks, with the same packages; by default the caller's.

    Returns:
        What the function returned, by rank; pickled on the way. In an elastic job, on the ranks of the last epoch: the
        list is as long as that epoch had ranks, and has nothing of processes that died, or returned in an earlier
        epoch. If the function never calls `hvd.init()`, what it returned in each process in which it did.

    Raises:
        ValueError: np, min_np, max_np, hosts or options make no sense.
        Exception: the one that the function raised, on the rank where it was raised first; in an elastic job that could
            not go on, in the process that failed last. Its cause, a `RankFailedError`, names the rank (in an elastic
            job the process, by the number that hvdrun gives it) and has its traceback.
        RankFailedError: a rank died, called `sys.exit()`, or left something that cannot be unpickled here; or an
            elastic job could not go on for another reason.
    """
    is_elastic = min_np is not None or max_np is not None
    np = arguments.positive(np, "np")
    python = executable or sys.executable
    if not python:
        raise ValueError("executable must be given: this process does not know its own Python")
    with PrivateFolder("hvd-run-") as folder:
        write_call(folder.path, cloudpickle.dumps((fn, tuple(args), dict(kwargs or {}))))
        command = [str(installation.find("bin/hvdrun")), "-np", str(np)]
        command += ["--min-np", str(min_np)] if min_np is not None else []
        command += ["--max-np", str(max_np)] if max_np is not None else []
        command += ["-H", hosts] if hosts else [] if _say_where(options) else ["--launcher", "local"]
        command += ["--verbose"] if verbose else []
        command += [*options, python, "-c", START, str(folder.path)]
        command += [path for path in sys.path if isinstance(path, str)]
        added = {name: str(value) for name, value in (env or {}).items()}
        variables = environment({**os.environ, **added}, start_timeout)
        code, last_lines = run_to_its_end(command, variables, folder, sys.stdout, sys.stderr)
        return results(folder.path, None if is_elastic else np, code, last_lines)


def _say_where(options: Sequence[str]) -> bool:
    """Whether these options of hvdrun say where ranks run, or who starts them; --gloo says only that mpirun does not.
    Without any, hvdrun would take the hosts of a batch system's allocation, to which the call's folder does not get."""
    return any(option.startswith("-H") or option.lstrip("-").partition("=")[0] in _PLACES for option in options)


def environment(variables: dict[str, str], start_timeout: float | None) -> dict[str, str]:
    return variables if start_timeout is None else {**variables, "HVD_START_TIMEOUT": str(start_timeout)}


# ---- in the caller, while the ranks run


def run_to_its_end(
    command: list[str], environment: dict[str, str], folder: PrivateFolder, output: TextIO | None, errors: TextIO | None
) -> tuple[int, list[str]]:
    """Passes on what hvdrun and its ranks write; returns hvdrun's exit code and the last lines of its standard error.
    The folder is kept until they have ended, even if this process is killed."""
    process = subprocess.Popen(
        command,
        env=environment,
        pass_fds=(folder.held,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None and process.stderr is not None
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    forwarders = [
        threading.Thread(target=_forward, args=streams, daemon=True)
        for streams in ((process.stdout, output, deque(maxlen=0)), (process.stderr, errors, last_lines))
    ]
    for forwarder in forwarders:
        forwarder.start()
    try:
        code = process.wait()
    finally:
        _end(process)
        for forwarder in forwarders:
            forwarder.join(_LONGEST_END_S)
    return code, list(last_lines)


def _forward(source: IO[str], target: TextIO | None, last_lines: deque[str]) -> None:
    """Reads to the end even if the target is closed or full, since hvdrun would block on its pipe. Errors of whatever
    replaces sys.stdout are ignored; it is None where the descriptor is closed."""
    for line in source:
        last_lines.append(line.rstrip("\n"))
        if target is None:
            continue
        with contextlib.suppress(Exception):  # an object that has only write() raises AttributeError
            target.write(line)
            target.flush()


def _end(process: subprocess.Popen[str]) -> None:
    """After Ctrl-C, which in a notebook has not reached hvdrun."""
    process.terminate()
    try:
        process.wait(_LONGEST_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def write_call(folder: Path, call: bytes) -> None:
    """call: function, arguments and keywords, by cloudpickle."""
    (folder / _CALL).write_bytes(call)


# ---- in the caller, afterwards


class _Place(NamedTuple):
    """Where a process stood when its function returned."""

    epoch: int  # 0: the job is not elastic, or the function has not called init()
    rank: int
    size: int  # 0: not known


class _End(NamedTuple):
    """What a process leaves behind."""

    outcome: Outcome
    place: _Place


def results(folder: Path, np: int | None, code: int, last_lines: list[str]) -> list[Any]:
    """np: None in an elastic job. Processes are numbered by rank there where it is not."""
    ends: dict[int, _End] = {int(name.split(".")[1]): pickle.loads(end) for name, end in read_ends(folder).items()}
    failures = {number: end.outcome.failure for number, end in ends.items() if end.outcome.failure is not None}
    returned = {number: end for number, end in ends.items() if number not in failures}
    by_rank, size = _last_ranks(returned)
    missing = [rank for rank in range(size if np is None else np) if rank not in by_rank]
    if code == 0 and returned and not missing:
        return [returned[by_rank[rank]].outcome.value(rank) for rank in sorted(by_rank)]
    if code == _USAGE_ERROR and not ends:
        raise ValueError("\n".join(last_lines))
    blamed, report = _blamed_by_hvdrun(last_lines)
    if blamed is not None and blamed not in failures:
        after = "after" if blamed in returned else "before"
        text = f"{_name(blamed, np)} died {after} the function had returned: {report}"
        raise RankFailedError(text, None if np is None else blamed)
    if blamed is None and failures and np is not None:
        blamed = first_to_fail(failures.items())
    if blamed is not None:
        raise_failure(failures[blamed], _name(blamed, np), None if np is None else blamed)
    ranks = ", ".join(map(str, missing)) or ("none" if returned else "all")
    reason = "\n".join([f"hvdrun ended with exit code {code}", *last_lines])
    raise RankFailedError(f"no result of ranks: {ranks}; {reason}")


def _last_ranks(returned: Mapping[int, _End]) -> tuple[dict[int, int], int]:
    """Of the last epoch in which the function returned: the process of each rank where it did, and the size."""
    last = max((end.place.epoch for end in returned.values()), default=0)
    by_rank = {end.place.rank: number for number, end in returned.items() if end.place.epoch == last}
    return by_rank, max((returned[number].place.size for number in by_rank.values()), default=0)


def _name(number: int, np: int | None) -> str:
    return f"process {number}" if np is None else f"rank {number} of {np}"


def _blamed_by_hvdrun(lines: list[str]) -> tuple[int | None, str]:
    """The rank of which hvdrun says that it failed first; how, and what it wrote last."""
    for number, line in enumerate(lines):
        if found := re.match(r"hvdrun: (?:rank|process) (\d+) failed(?: first)?: (.*) \(pid \d+, after .* s\)$", line):
            return int(found[1]), "\n".join([found[2], *lines[number + 1 :]])
    return None, ""


# ---- in a rank


def serve(folder_name: str) -> None:
    """A rank's whole life: calls the function, and leaves its result behind, or what went wrong."""
    exit_code = _FAILED_FOR_GOOD
    folder = Path(folder_name)
    process = os.environ.get("HVD_PROCESS")  # of an elastic job, in which its rank may change
    number = _native.launch()[1] if process is None else int(process)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        fn, args, kwargs = cloudpickle.loads((folder / _CALL).read_bytes())
        exit_code = 1
        outcome = Outcome.of_result(fn(*args, **kwargs))
    except BaseException as error:
        if process is not None and _is_dismissal(error):
            raise
        failure.tell(error)
        outcome = Outcome.of_failure(error)
    _write_end(folder / f"{_END}.{number}", _End(outcome, _place(number)))
    if outcome.failure is not None:
        sys.exit(exit_code)


def _place(number: int) -> _Place:
    if "HVD_PROCESS" in os.environ:
        return _Place(*(basics.last_place() or (0, number, 0)))
    return _Place(0, number, _native.launch()[2])


def _is_dismissal(error: BaseException) -> bool:
    """Whether `init()` has said that the job has no place for this process any more."""
    return isinstance(error, SystemExit) and error.code == 0 and not _native.is_initialized()


# ---- what they leave for the caller, whole or not at all


def read_ends(folder: Path) -> dict[str, bytes]:
    """By the file's name, as `results` finds them in the caller's folder."""
    return {path.name: path.read_bytes() for path in folder.glob(f"{_END}.*") if path.suffix != _UNFINISHED}


def _write_end(path: Path, end: _End) -> None:
    unfinished = path.with_suffix(path.suffix + _UNFINISHED)
    unfinished.write_bytes(pickle.dumps(end))
    unfinished.replace(path)
