"""Jobs of hvdrun on places that an engine keeps.

The driver makes a `PlacesJob` and hands its token to the engine's processes; each makes a `Place` of it, which starts
an agent that listens, and tells the driver the address. hvdrun reads the places from two small files, which the driver
writes anew when the engine has more places, or fewer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

import cloudpickle

from hvd import installation, run_function
from hvd.private_folder import PrivateFolder

# The folder of a place, which its agent tells the ranks.
_FOLDER = "HVD_PLACE"
# What hvdrun hands on to ranks of its own environment, which is the driver's: the place has its own.
_DRIVERS = ("PATH", "HOME", "LANG")
# Values that the caller has set for the ranks travel under other names, "HVD_PLACE_PATH" for instance: hvdrun keeps
# some variables to a host (TMPDIR, USER), and others are not meant for hvdrun itself (LD_PRELOAD).
_SET_BY_CALLER = f"{_FOLDER}_"
_LISTENS = "hvdrun agent: listening on "
_LOOK_S = 0.5  # from one look at the engine's places to the next
_LONGEST_END_S = 10
_START_S = 60  # for an agent to listen; it takes milliseconds


@dataclass(frozen=True)
class JobToken:
    """What a place needs to know. Whoever has it can start processes at the places: as secret as the job."""

    key: str
    call: bytes


@dataclass(frozen=True)
class PlaceAddress:
    name: str  # of the host, for the job: in hvdrun's messages, `hvd top`, and in the order of ranks
    address: str  # where its agent listens, as "10.0.0.3:41234"
    slots: int = 1


class Places(Protocol):
    """An engine's places, as its driver knows them. Both functions are called by threads of the driver."""

    def addresses(self) -> Sequence[PlaceAddress]:
        """Those that are usable now. Called twice a second; must not wait for a place."""

    def ends(self) -> Iterable[Mapping[str, bytes]]:
        """`Place.ends()` of each place that is left, once the job has ended."""


class Place:
    """Where ranks can be started: made and kept by a process of the engine. A context manager; leaving it ends the
    agent. If the process is killed, the agent and the ranks end, too, and their files are removed.

    Args:
        token: the job's.
        host: the name or address under which the driver reaches this host.

    Raises:
        OSError: the agent cannot be started, or does not say within a minute where it listens.
    """

    def __init__(self, token: JobToken, host: str) -> None:
        self._folder = PrivateFolder("hvd-place-")
        try:
            self._agent = self._start_agent(token)
        except OSError:
            self._folder.remove()
            raise
        assert self._agent.stdout is not None
        output = select.poll()
        output.register(self._agent.stdout, select.POLLIN)
        if not output.poll(_START_S * 1000):
            self.close()
            raise OSError(
                f"the agent of this place has not answered within {_START_S} s: see whether `hvdrun agent --listen 0` "
                "answers on this host, and whether other processes leave it time to run"
            )
        line = self._agent.stdout.readline().strip()
        if not line.startswith(_LISTENS):
            self.close()
            raise OSError(f"the agent of this place does not listen: {line or 'it has ended'}")
        self.address = f"{host}:{line.removeprefix(_LISTENS)}"

    def _start_agent(self, token: JobToken) -> subprocess.Popen[str]:
        run_function.write_call(self._folder.path, token.call)
        _write_start(self._folder.path)
        return subprocess.Popen(
            [str(installation.find("bin/hvdrun")), "agent", "--listen", "0", "--once", "--until-eof"],
            env={**os.environ, "HVD_JOB_KEY": token.key, _FOLDER: str(self._folder.path)},
            pass_fds=(self._folder.held,),
            stdin=subprocess.PIPE,  # --until-eof: closed when this process ends
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the agent has ended, with the job, within so many seconds."""
        try:
            self._agent.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ends(self) -> dict[str, bytes]:
        """What the ranks have left here, for the driver."""
        return run_function.read_ends(self._folder.path)

    def close(self) -> None:
        """Ends the agent and its ranks, if they are left, and removes what they have left."""
        self._agent.terminate()
        if not self.wait(_LONGEST_END_S):
            self._agent.kill()
            self._agent.wait()
        for pipe in (self._agent.stdin, self._agent.stdout):
            if pipe is not None:
                pipe.close()
        self._folder.remove()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_start(folder: Path) -> None:
    """The program that hvdrun starts: the place's own Python, in the place's environment, with what hvdrun has set."""
    given = {name: value for name, value in os.environ.items() if name not in (_FOLDER, "HVD_JOB_KEY")}
    (folder / "environment").write_bytes(cloudpickle.dumps((given, sys.path, os.getcwd())))
    (folder / "start").write_text(f"exec {shlex.quote(sys.executable)} -c {shlex.quote(_START)}\n")


_START = f"""\
import os, pickle, sys
folder = os.environ.pop({_FOLDER!r})
with open(folder + "/environment", "rb") as file:
    environment, path, cwd = pickle.load(file)
given = {{name: value for name, value in os.environ.items() if name not in {_DRIVERS!r}}}
set_by_caller = [(name, given.pop(name)) for name in list(given) if name.startswith({_SET_BY_CALLER!r})]
environment.update(given)
environment.update((name.removeprefix({_SET_BY_CALLER!r}), value) for name, value in set_by_caller)
os.chdir(cwd)
program = [sys.executable, "-c", {run_function.START!r}, folder, *(entry for entry in path if isinstance(entry, str))]
os.execve(sys.executable, program, environment)
"""


class PlacesJob:
    """A function to be called on ranks at an engine's places.

    Args:
        fn, args, kwargs: see `hvd.run`. They travel with the token.
    """

    def __init__(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.token = JobToken(secrets.token_hex(32), cloudpickle.dumps((fn, tuple(args), dict(kwargs or {}))))

    def run(
        self,
        np: int,
        places: Places,
        *,
        min_np: int | None = None,
        max_np: int | None = None,
        env: Mapping[str, str] | None = None,
        start_timeout: float | None = None,
        verbose: bool = False,
        options: Sequence[str] = (),
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> list[Any]:
        """Calls the function on `np` ranks, and returns when all have ended. With `min_np` or `max_np` the job is
        elastic. Arguments, results and exceptions are those of `hvd.run`; `stdout` and `stderr` are where the ranks'
        output goes, by default this process's."""
        is_elastic = min_np is not None or max_np is not None
        with PrivateFolder("hvd-run-") as private:
            folder = private.path
            command = [str(installation.find("bin/hvdrun")), "-np", str(np)]
            command += ["--min-np", str(min_np)] if min_np is not None else []
            command += ["--max-np", str(max_np)] if max_np is not None else []
            command += ["--agent-addresses", str(folder / "addresses")]
            command += ["--verbose"] if verbose else []
            with _told_of_places(folder, places):
                command += _hosts_options(folder, is_elastic)
                command += [*options, "/bin/sh", "-c", f'. "${_FOLDER}/start"']
                variables = self._environment(env, start_timeout)
                code, last_lines = run_function.run_to_its_end(
                    command, variables, private, stdout or sys.stdout, stderr or sys.stderr
                )
            for ends in places.ends():
                for file, content in ends.items():
                    (folder / Path(file).name).write_bytes(content)
            return run_function.results(folder, None if is_elastic else np, code, last_lines)

    def _environment(self, env: Mapping[str, str] | None, start_timeout: float | None) -> dict[str, str]:
        """hvdrun hands its own on to the ranks: what is about hvd, and what belongs to every process."""
        own = {name: value for name, value in os.environ.items() if name.startswith(("HVD_", "HOROVOD_"))}
        own |= {name: os.environ[name] for name in _DRIVERS if name in os.environ}
        given = {
            (name if name.startswith(("HVD_", "HOROVOD_")) else _SET_BY_CALLER + name): value
            for name, value in (env or {}).items()
        }
        return run_function.environment({**own, **given, "HVD_JOB_KEY": self.token.key}, start_timeout)


def _hosts_options(folder: Path, is_elastic: bool) -> list[str]:
    hosts = folder / "hosts"
    if is_elastic:
        return ["--host-discovery-script", f"cat {shlex.quote(str(hosts))}", "--discovery-interval", str(_LOOK_S)]
    return ["-H", ",".join(hosts.read_text().split())]


@contextlib.contextmanager
def _told_of_places(folder: Path, places: Places) -> Iterator[None]:
    """While the body runs, hvdrun finds the engine's places in two files of the folder."""
    ended = threading.Event()

    def write() -> None:
        now = places.addresses()
        _replace(folder / "addresses", "".join(f"{place.name} {place.address}\n" for place in now))
        _replace(folder / "hosts", "".join(f"{place.name}:{place.slots}\n" for place in now))

    def look() -> None:
        while not ended.wait(_LOOK_S):
            try:
                write()
            except Exception as error:  # the engine may know again at the next look
                print(f"hvd: the engine's places are not known at the moment: {error}", file=sys.stderr)

    write()
    looking = threading.Thread(target=look, name="hvd-places", daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join(_LONGEST_END_S)


def _replace(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)
