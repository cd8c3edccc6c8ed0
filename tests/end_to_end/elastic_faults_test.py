"""The elastic rows of docs/failures.md: three hosts with two ranks each, of which h2 suffers something."""

import os
import signal

import pytest
from elastic_hosts_test import Job, agents_on, check_no_step_is_lost, hosts, standing  # noqa: F401
from standing_lab import read, words_of

# Each once; with -m long, 20 times.
once = [pytest.param(1, id="once"), *(pytest.param(i, id=str(i), marks=pytest.mark.long) for i in range(2, 21))]
each = pytest.mark.parametrize("time", once)

LOST = "host h2 is lost: "


def start(hosts):  # noqa: F811
    job = Job(
        *(hosts, "-H", "h1:2,h2:2,h3:2", "-np", 6, "--min-np", 2, "--cooldown-range", "60,60"),
        *("--lease", 1.5, "--stopped-limit", 1, "--grace", 0.5),
    )
    job.await_step_of(6)
    return job


def supervisors_on(hosts, name):  # noqa: F811
    (address,) = hosts.addresses_of(agents_on(hosts, name)[0])
    return [pid for pid in hosts.left() if is_supervisor(pid) and address in hosts.addresses_of(pid)]


def is_supervisor(pid):
    return read(f"/proc/{pid}/comm").startswith(b"hvd-supervisor")


def ranks_on(hosts, name):  # noqa: F811
    (address,) = hosts.addresses_of(agents_on(hosts, name)[0])
    is_rank = [pid for pid in hosts.left() if "elastic_job.py" in "".join(words_of(pid)[1:2])]
    return [pid for pid in is_rank if address in hosts.addresses_of(pid)]


VICTIMS = {"rank": ranks_on, "agent": agents_on, "supervisor": supervisors_on}


@each
@pytest.mark.parametrize(
    ("fault", "victim", "size", "told"),
    [
        (signal.SIGKILL, "rank", 5, r"rank \d on h2 has failed: killed by SIGKILL"),
        (signal.SIGKILL, "agent", 4, LOST + "the connection broke off"),
        (signal.SIGKILL, "supervisor", 4, LOST + r"hvd-supervisor \(process \d+\), .*, was killed by SIGKILL"),
        (signal.SIGSTOP, "rank", 5, r"rank \d on h2 has failed: killed by SIGKILL"),
        (signal.SIGSTOP, "agent", 4, LOST),
        (signal.SIGTERM, "rank", 5, r"process \d is preempted"),
        (signal.SIGTERM, "agent", 4, "host h2 is preempted"),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value if value in VICTIMS else "",
)
def test_the_others_go_on(hosts, time, fault, victim, size, told):  # noqa: F811
    job = start(hosts)
    try:
        os.kill(VICTIMS[victim](hosts, "h2")[0], fault)
        job.await_text(rf"epoch 2 with {size} ranks, .*; {told}")
        job.await_step_of(size)
        check_no_step_is_lost(job.text)
    finally:
        job.end()


@each
def test_a_stopped_supervisor_is_resumed(hosts, time):  # noqa: F811
    job = start(hosts)
    try:
        os.kill(supervisors_on(hosts, "h2")[0], signal.SIGSTOP)
        job.await_steps(50)
        assert "epoch 2" not in job.text, job.text
    finally:
        job.end()


@each
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=lambda value: value.name)
def test_without_hvdrun_nothing_is_left(hosts, time, fault):  # noqa: F811
    job = start(hosts)
    hvdrun = job.driver()
    os.kill(hvdrun, fault)
    try:
        hosts.await_nothing_left(8, besides=[hvdrun])
    finally:
        if fault == signal.SIGSTOP:
            os.kill(hvdrun, signal.SIGCONT)
            job.process.send_signal(signal.SIGCONT)  # nsenter, which stops with its child
        assert job.await_end() != 0
