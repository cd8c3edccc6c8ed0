"""Strangers throw bytes at the port on which hvdrun awaits the agents of other hosts: the job does not notice."""

import os
import pathlib
import shutil
import statistics
import subprocess
import time

import pytest
from standing_lab import StandingLab, descendants, find_hvdrun, words_of
from under_attack import (
    RATE,
    Stranger,
    attack_in_turns,
    await_line,
    listening_sockets,
    median_steps_us,
    resident_kb,
)

BUILD = pathlib.Path(__file__).parents[2] / "build/release"
PROGRAM = BUILD / "tests/end_to_end/allreduce_loop"
HANDSHAKE_S = 5  # that a stranger has for its handshake
RANKS = 4


@pytest.fixture(scope="module")
def hosts(lab):
    standing = StandingLab(lab, 2)
    yield standing
    standing.close()


@pytest.fixture(scope="module")
def hvdrun():
    return find_hvdrun(PROGRAM)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """One like a job's, but of nobody's making."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")
    file = tmp_path_factory.mktemp("stranger") / "certificate.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    names = ("-subj", "/CN=hvd", "-addext", "subjectAltName=DNS:hvd")
    made = subprocess.run(
        ["openssl", "req", "-x509", *curve, *names, "-keyout", file, "-out", file.with_suffix(".crt")],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    file.write_text(file.with_suffix(".crt").read_text() + file.read_text())
    return file


class OverHosts:
    """A job of four ranks on two hosts, its driver (by our number), and the driver's port for agents."""

    def __init__(self, hosts, hvdrun, files, *options):
        self.files = files
        with files[0].open("w") as out, files[1].open("w") as err:
            place = ("--rsh", hosts.rsh, "-np", RANKS, "-H", "h1:2,h2:2")
            self.process = hosts.popen([hvdrun, *place, PROGRAM, *options], stdout=out, stderr=err)
        self.poll = self.process.poll

    def said(self):
        return [file.read_text() for file in self.files]

    def await_step(self, step):
        await_line(self, f"step {step}", RANKS)
        (self.driver,) = [
            pid for pid in descendants(self.process.pid)[:2] if pathlib.Path(words_of(pid)[0]).name == "hvdrun"
        ]
        (self.port,) = [socket for socket in listening_sockets(self.driver) if isinstance(socket, int)]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.driver}/fd"))

    def check_end(self):
        code = self.process.wait(60)
        out, err = self.said()
        assert code == 0, out + err
        assert out.count("done ") == RANKS
        assert err == ""


@pytest.fixture
def start(hosts, hvdrun, tmp_path):
    jobs = []

    def start(*options):
        files = [tmp_path / f"{stream}.{len(jobs)}" for stream in ("out", "err")]
        jobs.append(OverHosts(hosts, hvdrun, files, *options))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.poll() is None:
            job.process.kill()
            job.process.wait()
    hosts.await_nothing_left(10)


def await_descriptors(job, expected):
    deadline = time.monotonic() + 2 * HANDSHAKE_S
    while (now := job.descriptors()) > expected:
        assert time.monotonic() < deadline, f"{now} descriptors, and {expected} before"
        time.sleep(0.1)


# As in hostile_streams_test.py, the same attack goes to a decoy in turns: what it costs beyond the processor time of
# whoever attacks, and of the port, is the job's.
@pytest.mark.long
@pytest.mark.parametrize(
    "streams, slower",
    [pytest.param(450, 2, id="450"), pytest.param(10_000, 1.05, id="10000")],
)
def test_a_job_over_hosts_does_not_notice_strangers(start, hosts, certificate, tmp_path, streams, slower):
    enough, times = tmp_path / "enough", tmp_path / "times"
    decoy = start("--bytes", "64", "--delay", "500", "--until", enough)
    job = start("--bytes", "65536", "--announce", "500", "--until", enough, "--times", times)
    decoy.await_step(0)
    job.await_step(500)
    strangers = [Stranger("tls_stranger.py", RATE, streams, certificate, popen=hosts.popen) for _ in range(2)]
    decoyed, stranger = strangers
    descriptors, memory = job.descriptors(), [resident_kb(job.driver)]
    kinds, cpu = attack_in_turns(
        *((stranger, lambda: [job.port]), (decoyed, lambda: [decoy.port]), streams, job.driver),
        after=lambda: memory.append(resident_kb(job.driver)),
    )
    await_descriptors(job, descriptors)
    enough.touch()
    job.check_end()
    decoy.check_end()
    for each in strangers:
        each.leave()

    alone, decoyed_us, attacked_us = median_steps_us(times, kinds)
    thrown = sum(stranger.outcomes.values())
    half = len(memory) // 2
    print(
        f"{thrown} streams: {stranger.outcomes}; a step {alone:.0f} us, {decoyed_us:.0f} us while a decoy is attacked,"
        f" {attacked_us:.0f} us under attack; {cpu / thrown * 1e6:.0f} us of hvdrun's CPU a stream; {memory[0]} KB"
        f" before, {statistics.median(memory[1:half])} in the first half, {max(memory)} at most"
    )
    assert set(stranger.outcomes) <= {"dropped", "held"}, stranger.outcomes
    assert stranger.outcomes["dropped"] > thrown / 3
    assert stranger.outcomes["held"] > 0
    assert max(memory) - memory[0] < 32 << 10, memory
    assert attacked_us < slower * decoyed_us
