"""The cells of docs/failures.md about parameter servers, on hosts of a lab: each has a worker, two a server."""

import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys

import pytest
from elastic_hosts_test import Job, agents_on
from standing_lab import StandingLab, words_of

from timeouts import at_most

pytest.importorskip("hvd")

PROGRAM = pathlib.Path(__file__).with_name("server_fault_job.py")
LEASE = ["--lease", 1.5, "--grace", 0.5]
TWO_HOSTS = ["-H", "h1:1,h2:1", "-np", 2, "--servers", 2]
COPIES = ["-x", "HVD_SERVER_COPIES=2"]

# Each cell once; with -m long, 10 times.
once = [pytest.param(1, id="once"), *(pytest.param(i, id=str(i), marks=pytest.mark.long) for i in range(2, 11))]
each = pytest.mark.parametrize("time", once)


@pytest.fixture(scope="module")
def standing(lab):
    standing = StandingLab(lab, 3)
    yield standing
    standing.close()


@pytest.fixture
def start(standing):
    jobs = []

    def started(*options, program=(PROGRAM,)):
        jobs.append(Job(standing, *LEASE, *options, program=program))
        return jobs[-1]

    yield started
    for host in ("h1", "h2", "h3"):
        standing.join(host)
    for job in jobs:
        if driver := job.driver():
            os.kill(driver, signal.SIGINT)  # by SIGTERM an elastic job would wait for a commit
        job.end()
    standing.await_nothing_left()


def processes(standing, variable, value):
    """Those of the job in whose environment that is."""
    return [pid for pid in standing.left() if f"\0{variable}={value}\0" in f"\0{environment_of(pid)}"]


def environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def strike(standing, sign, variable, *values):
    for value in values:
        found = [pid for pid in processes(standing, variable, value) if words_of(pid)[1:2] == [str(PROGRAM)]]
        assert found, (variable, value)
        for pid in found:
            os.kill(pid, sign)


@each
def test_a_worker_that_is_killed_ends_the_job(start, standing, time):
    job = start(*TWO_HOSTS)
    job.await_text("worker 1 step 20 ")
    strike(standing, signal.SIGKILL, "HVD_RANK", 1)
    assert job.await_end() == 128 + 9
    assert "hvdrun: rank 1 on h2 failed first: killed by SIGKILL" in job.text, job.text


@each
def test_a_server_that_is_killed_without_a_copy_fails_the_workers(start, standing, time):
    job = start(*TWO_HOSTS)
    job.await_text("worker 0 step 20 ")
    strike(standing, signal.SIGKILL, "HVD_SERVER", 1)
    assert job.await_end() == 3
    assert re.search(r"server 1 on h2 \(pid \d+\) was killed by SIGKILL; it is started again\n", job.text), job.text
    assert "failed: parameter server 1 was started again and has lost its rows" in job.text, job.text


@pytest.mark.long
def test_a_server_that_is_killed_with_its_copy_takes_the_rows_with_it(start, standing):
    job = start(*TWO_HOSTS, *COPIES, "-x", "HVD_START_TIMEOUT=15")
    job.await_text(r"worker 0 step \d+ copies \[2, 2\]")
    strike(standing, signal.SIGKILL, "HVD_SERVER", 0, 1)
    assert job.await_end() == 3
    assert re.search(r"worker \d failed: parameter server \d ", job.text), job.text


@each
def test_a_host_that_is_killed_with_its_server_ends_the_job(start, standing, time):
    job = start(*TWO_HOSTS, *COPIES)
    job.await_text("worker 1 step 20 ")
    os.kill(max(agents_on(standing, "h2")), signal.SIGKILL)
    assert job.await_end() == 1
    assert "hvdrun: host h2 (rank 1, server 1) is lost: the connection broke off" in job.text, job.text


@each
def test_a_host_that_is_cut_off_with_its_server_ends_the_job(start, standing, time):
    job = start(*TWO_HOSTS, *COPIES)
    job.await_text("worker 1 step 20 ")
    standing.cut("h2")
    assert job.await_end() == 1
    assert "hvdrun: host h2 (rank 1, server 1) is lost: no heartbeat for 1.5 s" in job.text, job.text


@each
def test_a_stopped_worker_for_which_others_wait_is_named(start, standing, time):
    job = start(*TWO_HOSTS, "-x", "HVD_STALL_CHECK_TIME_SECONDS=1", program=(PROGRAM, "synchronous"))
    job.await_text("worker 0 step 20 ")
    strike(standing, signal.SIGSTOP, "HVD_RANK", 1)
    stopped = r"rank 1 \(host h2\) is stopped, as by SIGSTOP or Ctrl-Z"
    job.await_text(rf"the job is stalled: {stopped}; rank 1 \(host h2\) has kept rank 0 waiting")
    job.await_text(r"stalled: worker 0 waits for worker 1")
    strike(standing, signal.SIGCONT, "HVD_RANK", 1)
    job.await_text(r"worker 0 step \d+ ", len(job.text))
    assert "failed" not in job.text, job.text


@each
def test_an_elastic_job_expels_a_stopped_worker_and_the_others_go_on(start, standing, time):
    options = ["-H", "h1:1,h2:1", "-np", 2, "--min-np", 1, "--servers", 2, "--stopped-limit", 1]
    job = start(*options, "--cooldown-range", "60,60")
    job.await_text("worker 0 step 20 ")
    strike(standing, signal.SIGSTOP, "HVD_PROCESS", 1)
    job.await_text(r"process 1 was stopped for longer than --stopped-limit, and is killed")
    job.await_text(r"(worker 0 step \d+ (.|\n)*){3}", len(job.text))
    assert "worker 1 is lost: nobody waits for it any longer" in job.text, job.text


@each
def test_the_only_worker_is_cut_off_and_no_server_is_left(start, standing, time):
    job = start("-H", "h1:1,h2:1", "-np", 1, "--servers", 2)
    job.await_text("worker 0 step 20 ")
    standing.cut("h1")
    assert job.await_end() == 1
    assert "hvdrun: host h1 (rank 0, server 0) is lost: no heartbeat for 1.5 s" in job.text, job.text


def test_a_server_that_nobody_has_started_ends_when_its_only_worker_is_cut_off(standing):
    """Described by TF_CONFIG: there is no hvdrun to end it."""
    cluster = {"worker": ["10.9.0.1:47001"], "ps": ["10.9.0.2:47002"]}
    common = {**os.environ, "HVD_JOB_KEY": secrets.token_hex(32), "HVD_LEASE": "1.5", "HVD_START_TIMEOUT": "15"}

    def begin(host, task):
        place = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}})}
        command = [standing.netlab, "on", host, sys.executable, PROGRAM]
        return standing.popen(command, env={**common, **place}, stderr=subprocess.STDOUT)

    worker, server = begin("h1", "worker"), begin("h2", "ps")
    try:
        assert "worker 0 step 20 " in worker.stdout.readline()
        standing.cut("h1")
        output, _ = server.communicate(timeout=at_most(60))
        assert server.returncode == 0 and "worker 0 is lost: nobody waits for it any longer" in output, output
        output, _ = worker.communicate(timeout=at_most(60))
        assert worker.returncode == 3 and "worker 0 failed: parameter server 0 cannot be reached" in output, output
    finally:
        standing.join("h1")
        for process in (worker, server):
            process.kill()
    standing.await_nothing_left()


@each
def test_an_elastic_job_goes_on_without_a_host_and_starts_its_server_on_another(start, standing, time):
    options = ["-H", "h1:1,h2:1,h3:1", "-np", 3, "--min-np", 2, "--servers", 2, *COPIES, "-x", "HVD_START_TIMEOUT=60"]
    job = start("--verbose", *options)
    job.await_text(r"worker 0 step \d+ copies \[2, 2\]")
    standing.cut("h2")
    lost_at = job.await_text(r"hvdrun: server 1 is lost with host h2: no heartbeat for 1.5 s")
    job.await_text(r"hvdrun: server 1 on h[13] is process \d+\n", lost_at)
    job.await_text(r"(?s)worker (\d) step \d+ copies \[2, 2\].*worker (?!\1)\d step \d+ copies \[2, 2\]", lost_at)
    assert "failed:" not in job.text, job.text


@each
def test_servers_of_a_job_whose_hosts_a_script_names_move_from_a_preempted_one(start, standing, tmp_path, time):
    names, end = tmp_path / "hosts", tmp_path / "end"

    def name(*hosts):
        (tmp_path / "new").write_text("".join(f"{host}:1\n" for host in hosts))
        (tmp_path / "new").rename(names)

    name("h1", "h2")
    script = ["--host-discovery-script", f"cat {names}", "--discovery-interval", 0.1, "--cooldown-range", "0,0"]
    options = ["-np", 2, "--min-np", 1, "--max-np", 3, "--servers", 2, *COPIES, "-x", "HVD_START_TIMEOUT=60"]
    job = start("--verbose", *script, *options, program=(PROGRAM.with_name("elastic_servers.py"), end))
    job.await_text(r"copies \[2, 2\]")
    name("h1", "h2", "h3")
    job.await_text(r"epoch 2 with 3 ranks, .*; joined: process 2\n")
    preempted_at = len(job.text)
    os.kill(min(agents_on(standing, "h2")), signal.SIGTERM)
    job.await_text(r"server 1 on h2 \(pid \d+\) .* exit code 0; it is started again\n", preempted_at)
    name("h1", "h3")
    job.await_text(r"server 1 on h[13] is process \d+\n(.|\n)*copies \[2, 2\]", preempted_at)
    assert re.search(r"epoch 3 with 2 ranks, .*; host h2 is preempted\n", job.text), job.text
    end.touch()
    assert job.await_end() == 0, job.text
    pushed = re.findall(r"^pushed (\d+)$", job.text, re.MULTILINE)
    rows = dict(re.findall(r"^row (\d+) (\d+)$", job.text, re.MULTILINE))
    assert len(rows) > 10 and rows == {step: str(pushed.count(step)) for step in set(pushed)}, job.text


@each
def test_a_worker_that_hears_nothing_of_a_server_gives_up(start, standing, time):
    """The last test, because the two hosts stay parted."""
    job = start("-H", "h1:1,h2:1", "-np", 1, "--servers", 2, "-x", "HVD_START_TIMEOUT=8")
    job.await_text("worker 0 step 20 ")
    assert standing.run(standing.netlab, "part", "h1", "h2").returncode == 0
    assert job.await_end() == 3
    assert "worker 0 failed: parameter server 1 cannot be reached" in job.text, job.text
    assert "hvdrun: rank 0 on h1 failed: exit code 3" in job.text, job.text
