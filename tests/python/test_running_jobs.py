"""Which of the sockets that are named as a job's is one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from hvd.tools import running_jobs

pytestmark = pytest.mark.quick

SQUATTER = """
import os, socket, sys
os.setuid(65534)
door = socket.socket(socket.AF_UNIX)
door.bind(f"\\0hvd-job-{sys.argv[1]}-{sys.argv[2]}")
door.listen()
print("here", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def squatter(pid):
    """Another user's socket with the name of a job of this user's."""
    command = [sys.executable, "-c", SQUATTER, str(os.geteuid()), str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "here\n"
        yield
        process.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_socket_of_another_user_is_no_job_of_this_one():
    pid = os.getpid()
    with squatter(pid + 1):
        assert pid + 1 not in running_jobs.listening(None)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(f"\0hvd-job-{os.geteuid()}-{pid}")
            door.listen()
            assert running_jobs.listening(None)[pid] == os.geteuid()
        with pytest.raises(running_jobs.Unreachable, match=f"no hvdrun with process number {pid + 1}"):
            running_jobs.choose(pid + 1)
