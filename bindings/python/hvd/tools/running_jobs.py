"""`hvd stacks`, and how a running job is asked: hvdrun listens at an abstract Unix socket, "@hvd-job-UID-PID", one
question for each connection."""

from __future__ import annotations

import argparse
import os
import re
import socket
import struct
import sys

_LONGEST_ANSWER = 64 << 20
_PATIENCE = 10.0  # seconds; hvdrun answers within one
_LISTENS = 0x10000  # of the flags in /proc/net/unix: SO_ACCEPTCON
_NAME = re.compile(r"@hvd-job-(\d+)-(\d+)$")


class Unreachable(Exception):
    """There is no such job, or it does not answer; the text says which."""


def _named() -> list[tuple[int, int]]:
    """What the sockets' names say: the process of an hvdrun, and whose it is. Anybody may take a name."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as sockets:
        fields = [line.split() for line in sockets]
    named = [(each, _NAME.match(each[-1])) for each in fields if len(each) >= 8]
    return [(int(name[2]), int(name[1])) for each, name in named if name and int(each[3], 16) & _LISTENS]


def listening(pid: int | None) -> dict[int, int]:
    """The jobs whose hvdrun runs on this machine, this user's and that of `pid`: its process, and whose it is. A socket
    that is another user's than its name says is left out."""
    wanted = [(process, user) for process, user in _named() if process == pid or user == os.geteuid()]
    return {process: user for process, user in wanted if _is_genuine(user, process)}


def _is_genuine(user: int, pid: int) -> bool:
    try:
        with _connected(user, pid) as connection:
            return _owner(connection) in (user, 0)
    except OSError:
        return False


def _connected(user: int, pid: int) -> socket.socket:
    """Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_PATIENCE)
        connection.connect(f"\0hvd-job-{user}-{pid}")
    except OSError:
        connection.close()
        raise
    return connection


def _owner(connection: socket.socket) -> int:
    """Who listens at its other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def choose(pid: int | None) -> int:
    """The job of that hvdrun; without one, the only job of this user."""
    jobs = listening(pid)
    if pid is not None:
        if pid not in jobs:
            raise Unreachable(f"no hvdrun with process number {pid} can be asked here; {_known(jobs)}")
        return pid
    own = [process for process, user in jobs.items() if user == os.geteuid()]
    if len(own) != 1:
        raise Unreachable("no job of yours runs here" if not own else f"which one? {_known(jobs)}")
    return own[0]


def _known(jobs: dict[int, int]) -> str:
    processes = sorted(process for process, user in jobs.items() if user == os.geteuid())
    return (
        "your jobs here are those of hvdrun " + ", ".join(map(str, processes)) if processes else "you have no job here"
    )


def ask(pid: int, question: str) -> str:
    """What the job of hvdrun `pid` answers."""
    user = next((user for process, user in _named() if process == pid and _is_genuine(user, pid)), None)
    if user is None:
        raise Unreachable(f"the job of hvdrun {pid} has ended")
    try:
        with _connected(user, pid) as connection:
            if _owner(connection) not in (user, 0):  # by now
                raise Unreachable(f"hvdrun {pid} is somebody else's")
            connection.sendall(question.encode() + b"\n")
            answer = bytearray()
            while len(answer) < _LONGEST_ANSWER and (piece := connection.recv(65536)):
                answer += piece
    except OSError as error:
        raise Unreachable(f"hvdrun {pid} does not answer: {error}") from error
    if not answer:
        raise Unreachable(
            f"hvdrun {pid} does not answer: it takes questions of its own user and of root, eight at once"
        )
    return answer.decode(errors="replace")


def add_process(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("process", nargs="?", type=int, metavar="PID", help="of hvdrun; needed if you run several jobs")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="hvd stacks", description="What each rank of a running job is doing, with its Python stacks."
    )
    add_process(parser)
    options = parser.parse_args(arguments)
    try:
        print(ask(choose(options.process), "stacks"), end="")
    except Unreachable as error:
        print(f"hvd stacks: {error}", file=sys.stderr)
        return 1
    return 0
