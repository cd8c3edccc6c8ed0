"""Jobs of hvdrun on places that an engine keeps (hvd.cluster.Place, PlacesJob). The engine is this process, and its
places are of this machine, with an agent each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hvd
from hvd import elastic
from hvd.cluster import Place, PlaceAddress, PlacesJob, places
from hvd.exceptions import HorovodInternalError, RankFailedError
from timeouts import wait_until

TIME_LIMIT_S = 300


class Engine:
    def __init__(self, stack, job):
        self.stack, self.job = stack, job
        self.places: dict[str, Place] = {}

    def add(self, name: str) -> None:
        self.places[name] = self.stack.enter_context(Place(self.job.token, "127.0.0.1"))

    def addresses(self):
        return [PlaceAddress(name, place.address) for name, place in list(self.places.items())]

    def ends(self):
        return [place.ends() for place in self.places.values()]


@contextlib.contextmanager
def engine_of(job, *names):
    with contextlib.ExitStack() as stack:
        engine = Engine(stack, job)
        for name in names:
            engine.add(name)
        yield engine


def place_of_rank():
    hvd.init()
    total = hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Sum, name="sum")
    print(f"rank {hvd.rank()} speaks")
    variables = [os.environ.get(name) for name in ("OF_THE_PLACE", "HOME", "LANG", "TMPDIR", "LOGNAME")]
    return hvd.rank(), hvd.size(), hvd.local_size(), float(total[0]), variables, os.getcwd()


def fail_on_first():
    hvd.init()
    if hvd.rank() == 0:
        raise KeyError("no such sample")
    hvd.barrier()


def test_ranks_at_places(monkeypatch, capfd, tmp_path):
    job = PlacesJob(place_of_rank)
    monkeypatch.setenv("OF_THE_PLACE", "yes")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.chdir(tmp_path)
    with engine_of(job, "task-0", "task-1") as engine:
        monkeypatch.delenv("OF_THE_PLACE")
        monkeypatch.setenv("HOME", "/")
        monkeypatch.chdir("/")
        found = job.run(2, engine, start_timeout=TIME_LIMIT_S, env={"LANG": "C", "TMPDIR": "/", "LOGNAME": "me"})
    # The place's, the place's and not the driver's, and the caller's, also of those that hvdrun keeps to a host.
    variables = ["yes", str(tmp_path), "C", "/", "me"]
    assert found == [(rank, 2, 2, 1.0, variables, str(tmp_path)) for rank in range(2)]
    output = capfd.readouterr().out
    assert "rank 0 speaks" in output and "rank 1 speaks" in output


def test_a_rank_that_fails(capfd):
    job = PlacesJob(fail_on_first)
    with engine_of(job, "task-0", "task-1") as engine, pytest.raises(KeyError, match="no such sample") as found:
        job.run(2, engine, start_timeout=TIME_LIMIT_S)
    assert isinstance(found.value.__cause__, RankFailedError) and found.value.__cause__.rank == 0
    assert "rank 0 on task-0 failed first" in capfd.readouterr().err


def test_an_agent_that_says_nothing_is_ended(monkeypatch, tmp_path):
    (tmp_path / "hvdrun").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    (tmp_path / "hvdrun").chmod(0o700)
    monkeypatch.setattr(places.installation, "find", lambda _: tmp_path / "hvdrun")
    monkeypatch.setattr(places, "_START_S", 2)
    with pytest.raises(OSError, match=r"the agent of this place has not answered within 2 s: .*hvdrun agent"):
        Place(PlacesJob(place_of_rank).token, "127.0.0.1")
    pid = tmp_path / "pid"
    assert not pid.exists() or not runs(pid.read_text().strip())  # it may have been ended before it wrote


KILLED = """
import os, signal, subprocess, sys
from hvd.cluster import JobToken, Place
from hvd.private_folder import PrivateFolder

place = Place(JobToken("a" * 64, b""), "127.0.0.1")
used = PrivateFolder("hvd-run-")
user = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(used.held,))
os.write(1, f"{place._agent.pid} {place._folder.path} {used.path} {user.pid}".encode())
os.kill(user.pid, signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGKILL)
"""


def runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_is_left_of_a_place_whose_process_was_killed():
    """hvdrun has never connected to its agent. A folder that another process uses exists until that process ends."""
    killed = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, timeout=TIME_LIMIT_S)
    assert killed.returncode == -signal.SIGKILL
    agent, folder, used, user = killed.stdout.split()
    wait_until(lambda: not runs(agent) and not Path(folder).exists())
    assert Path(used).exists()
    os.kill(int(user), signal.SIGKILL)
    wait_until(lambda: not Path(used).exists())


def count_changes(folder):
    """An elastic loop: goes on until one rank was alone and there are two again. Each leaves its pid."""
    hvd.init()
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, count=0, sizes=[])

    def loop(state):
        while 1 not in state.sizes or state.sizes[-1] < 2:
            total = hvd.allreduce(np.ones(1), op=hvd.Sum, name="size")
            state.sizes.append(int(total[0]))
            state.count += 1
            (folder / f"pid.{hvd.rank()}").write_text(str(os.getpid()))
            state.commit()
            time.sleep(0.01)
        return state.count, state.sizes

    try:
        return elastic.run_fn(loop, elastic.join_anew)(state)
    except HorovodInternalError:
        raise AssertionError("the job ended before its time") from None


def test_places_that_come_and_go(tmp_path):
    """Two ranks; the agent of one place is killed; another place is added."""
    job = PlacesJob(count_changes, (tmp_path,))
    with engine_of(job, "task-0", "task-1") as engine:

        def change():
            deadline = time.monotonic() + TIME_LIMIT_S
            while not (tmp_path / "pid.1").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(engine.places["task-1"]._agent.pid, signal.SIGKILL)
            del engine.places["task-1"]
            engine.add("task-2")

        changing = threading.Thread(target=change, daemon=True)
        changing.start()
        found = job.run(2, engine, min_np=1, max_np=2, start_timeout=TIME_LIMIT_S)
        changing.join()
    assert len(found) == 2 and found[0][0] == found[1][0]
    sizes = found[0][1]
    assert sizes[0] == 2 and sizes[-1] == 2 and 1 in sizes
