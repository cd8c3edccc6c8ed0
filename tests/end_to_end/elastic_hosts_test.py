"""Elastic jobs over the hosts of a lab, which are lost, come back, and are added and taken away by a script."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from elastic_test import JOB, check_no_step_is_lost, done, steps_of
from standing_lab import StandingLab, descendants, words_of
from watched_process import WatchedProcess

TIMEOUT = 120


@pytest.fixture(scope="module")
def standing(lab):
    standing = StandingLab(lab, 3)
    yield standing
    standing.close()


@pytest.fixture
def hosts(standing):
    yield standing
    standing.join("h3")
    standing.await_nothing_left()


class Job(WatchedProcess):
    """hvdrun in the lab."""

    def __init__(self, hosts, *options, steps=10**6, deeds=(), program=None):
        command = ["hvdrun", "--rsh", hosts.rsh, *options, "-x", "PYTHONUNBUFFERED=1", sys.executable]
        command += program or (JOB, steps, *deeds)
        super().__init__(hosts.popen(command, stderr=subprocess.STDOUT), TIMEOUT)

    def await_step_of(self, size):
        self.await_text(rf"step \d+ rank 0 of {size}\n")

    def await_steps(self, count):
        """So many more lines of finished steps."""
        with self.changed:
            before = self.text.count(" step ")
            assert self.changed.wait_for(lambda: self.text.count(" step ") >= before + count, TIMEOUT), self.text

    def stop_reading(self):
        """The pipe from hvdrun is closed, at the latest once the next line has come."""
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), self.process.stdout.fileno())

    def driver(self):
        """The process number of hvdrun itself; None once it has ended."""
        return next((pid for pid in descendants(self.process.pid) if words_of(pid)[:1] == ["hvdrun"]), None)

    def end(self):
        """It would go on for ever."""
        if driver := self.driver():
            os.kill(driver, signal.SIGTERM)
        self.process.wait(TIMEOUT)
        self.reader.join()

    def await_end(self):
        """Its exit code. A job that has not ended by then is ended, and fails the test with what it has written."""
        try:
            code = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.end()
            pytest.fail(f"goes on after {TIMEOUT} s: {self.text}")
        self.reader.join()
        return code

    def finish(self):
        assert self.await_end() == 0, self.text


def test_a_process_is_lost_on_one_of_the_hosts(hosts):
    job = Job(
        *(hosts, "-H", "h1:2,h2:2,h3:2", "-np", 6, "--min-np", 2, "--cooldown-range", "60,60"),
        steps=40,
        deeds=["3@10=kill"],
    )
    job.finish()
    told = r"hvdrun: epoch 2 with 5 ranks, .*; left: process 3; rank \d on h\d has failed: killed by SIGKILL"
    assert re.search(told, job.text), job.text
    check_no_step_is_lost(job.text)
    assert len(done(job.text)) == 5 and len(set(done(job.text).values())) == 1, job.text


def test_a_host_is_lost_and_comes_back(hosts):
    job = Job(hosts, "-H", "h1:2,h2:2,h3:2", "-np", 6, "--min-np", 2, "--lease", 1.5)
    try:
        job.await_step_of(6)
        hosts.cut("h3")
        job.await_text(r"epoch 2 with 4 ranks, .*; host h3 is lost: no heartbeat for 1.5 s")
        job.await_step_of(4)
        hosts.join("h3")
        job.await_text(r"epoch 3 with [56] ranks, .*; joined: ")
        job.await_text(r"epoch \d with 6 ranks, .*; joined: ")
        check_no_step_is_lost(job.text)
    finally:
        job.end()


def test_one_of_two_hosts_that_cannot_reach_each_other_is_left_out(hosts):
    options = ("-np", 6, "--min-np", 4, "--lease", 1.5, "--cooldown-range", "1,1", "-x", "HVD_START_TIMEOUT=6")
    job = Job(hosts, "-H", "h1:2,h2:2,h3:2", *options)
    try:
        job.await_step_of(6)
        hosts.part("h2", "h3")
        apart = r"host h([23]) is left out: it and host h(?!\1)[23] cannot reach each other"
        job.await_text(rf"epoch \d+ with 4 ranks, .*; left: processes \d, \d; {apart}\n")
        job.await_step_of(4)
        hosts.mend("h2", "h3")
        job.await_text(r"epoch \d+ with 6 ranks, .*; joined: ")
        check_no_step_is_lost(job.text)
    finally:
        hosts.run(hosts.netlab, "mend", "h2", "h3")
        job.end()


def test_two_hosts_that_are_needed_and_cannot_reach_each_other(hosts):
    options = ("-np", 2, "--min-np", 2, "--lease", 1.5, "-x", "HVD_START_TIMEOUT=6")
    job = Job(hosts, "-H", "h1:1,h2:1", *options)
    try:
        job.await_step_of(2)
        hosts.part("h1", "h2")
        assert job.await_end() != 0
        told = "hosts h[12] and h[12] cannot reach each other, and without one of them fewer than 2 processes are left"
        assert re.search(rf"hvdrun: the job has failed: {told} \(--min-np\)", job.text), job.text
    finally:
        hosts.mend("h1", "h2")


@pytest.mark.parametrize("notice", ["SIGTERM to the agent", "script"])
def test_a_host_that_is_preempted_leaves_without_an_error(hosts, tmp_path, notice):
    enough = tmp_path / "enough"
    options = ("-np", 6, "--min-np", 2, "--cooldown-range", "0,0", "-x", f"ENOUGH={enough}")
    script = f"test -e {tmp_path}/$(hostname)"
    job = Job(hosts, "-H", "h1:2,h2:2,h3:2", *options, "--preemption-script", script, steps=10_000)
    job.await_step_of(6)
    if notice == "script":
        (tmp_path / "h2").touch()
    else:
        os.kill(min(agents_on(hosts, "h2")), signal.SIGTERM)
    job.await_text(r"epoch 2 with 4 ranks, .*; left: processes \d, \d; host h2 is preempted\n")
    enough.touch()
    job.finish()
    assert "failed" not in job.text and len(done(job.text)) == 4, job.text
    check_no_step_is_lost(job.text)


def agents_on(hosts, name):
    """Of hvdrun's agents on a host of the lab: their process numbers."""
    address = {"h1": "10.9.0.1", "h2": "10.9.0.2", "h3": "10.9.0.3"}[name]
    return [pid for pid in hosts.agents() if address in hosts.addresses_of(pid)]


def test_a_script_names_the_hosts(hosts, tmp_path):
    names = tmp_path / "hosts"

    def name(text):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(names)

    name("h1:2\n")
    job = Job(
        *(hosts, "--host-discovery-script", f"cat {names}", "--discovery-interval", 0.1),
        *("-np", 2, "--min-np", 1, "--max-np", 4),
    )
    try:
        job.await_step_of(2)
        name("h1:2\nh2:3\n")
        job.await_step_of(4)  # of five slots
        names.unlink()
        job.await_text("--host-discovery-script .*: ended with exit code 1; the hosts stay as they are")
        name("h2:3\n")
        job.await_step_of(3)
        name("h1:1\n")
        job.await_step_of(1)  # of a process to which those that have left have given the state
        check_no_step_is_lost(job.text)
        assert all(size <= 4 for steps in steps_of(job.text).values() for _, _, size in steps)
    finally:
        job.end()


def test_a_host_that_cannot_be_reached(hosts):
    before = time.monotonic()
    job = Job(hosts, "-H", "h1:2,nowhere:2", "-np", 2, "--min-np", 2, steps=20)
    job.finish()
    assert "hvdrun: host nowhere: `" in job.text, job.text
    assert set(done(job.text)) == {0, 1} and time.monotonic() - before < TIMEOUT, job.text


def test_too_few_are_left(hosts):
    deeds = ["0@5=kill", "1@5=exit", "2@5=kill"]
    options = ("-H", "h1:2,h2:2", "-np", 4, "--min-np", 2, "--cooldown-range", "60,60", "--elastic-timeout", 10)
    job = Job(hosts, *options, steps=10**6, deeds=deeds)
    assert job.await_end() in (7, 128 + signal.SIGKILL), job.text
    assert (
        "the job has failed: only 1 of at least 2 processes joined within 10 s (--elastic-timeout, --min-np)"
        in job.text
    )
    assert re.search(r"hvdrun: process [012] on h[12] failed: ", job.text), job.text
