"""The cells of docs/failures.md: what is seen of a fault, how soon, and that nothing is left of the job."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from timeouts import EXACT, at_most

HERE = pathlib.Path(__file__).parent
BUILD = HERE.parents[1] / "build/release"
PROGRAM = BUILD / "tests/end_to_end/allreduce_loop"
LEASE = 1.5
GRACE = 0.5
LARGE = ["--bytes", "67108864", "--announce", "1"]
SMALL = ["--announce", "20"]
KILLED = 128 + 9
COME = "hvdrun: h2 has come"


def late(lab):
    """hvdrun's options with which h1 comes three seconds later, and with which it says COME."""
    return ["--verbose", "--rsh", f"{HERE}/late_host.sh h1 3 {lab}"]


def hvdrun():
    return os.environ.get("HVDRUN") or shutil.which("hvdrun", path=str(BUILD / "launcher"))


@pytest.fixture
def play(lab):
    """What fault_job.py reports; times count from the fault."""
    if not PROGRAM.exists() or hvdrun() is None:
        pytest.skip("build/release is not built")

    def in_lab(fault, victim, awaited, *arguments, lease=LEASE, grace=GRACE, options=(), before=(), **variables):
        options = ["--lease", lease, "--grace", grace, *(options or ["--rsh", f"{lab} on"])]
        job = [fault, victim, awaited, *options, *before, PROGRAM, *arguments]
        command = [lab, 2, "none", sys.executable, HERE / "fault_job.py", lab, hvdrun(), *job]
        environment = {**os.environ, **variables}
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=360, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        start = report["happened"]
        report["said"] = [(when - start, line) for when, line in report["said"]]
        report["clean"] -= start
        report["failed"] = {int(rank): failure_of(line, start) for rank, line in report["failed"].items()}
        assert report["reached"] and report["left"] == [] and report["files"] == [], report
        print(json.dumps({name: report[name] for name in ("exit", "clean", "failed")}))
        return report

    return in_lab


def failure_of(line, start):
    """When, counted from the fault, and what: of a rank that has failed."""
    _, when, _, text = line.rstrip("\n").split(" ", 3)
    return float(when) - start, text


def said(report, words):
    """When hvdrun first said a line of its own with these words."""
    times = [when for when, line in report["said"] if line.startswith("hvdrun: ") and words in line]
    assert times, (words, report["said"])
    return times[0]


def check_errors(report, ranks, within, named=("rank 2", "rank 3")):
    """These ranks have failed, and their errors name one of those. On a busy machine some may not have had the time."""
    had_to_be_ended = any("terminated by hvdrun (SIGTERM)" in line for _, line in report["said"])
    assert set(report["failed"]) >= set(ranks) or (had_to_be_ended and not EXACT), report["said"]
    for rank in set(ranks) & set(report["failed"]):
        when, text = report["failed"][rank]
        assert when < at_most(within) and any(name in text for name in named), (rank, when, text)


pytestmark = pytest.mark.timed

# Each cell once; with -m long, 20 times.
once = [pytest.param(1, id="once"), *(pytest.param(i, id=str(i), marks=pytest.mark.long) for i in range(2, 21))]
each = pytest.mark.parametrize("time", once)
NEGOTIATION = pytest.param("negotiating", SMALL, id="negotiation")
BUSY = [NEGOTIATION, pytest.param("step 2", LARGE, id="large")]
# When all have left the job, and none has ended.
SHUTDOWN = pytest.param("left", ["--steps", "3", "--linger", "20000"], id="shutdown")
H1, H2 = ("rank 0", "rank 1"), ("rank 2", "rank 3")


@each
@pytest.mark.parametrize("victim", ["rank 2", "ranks"])
@pytest.mark.parametrize("awaited, options", [pytest.param("", SMALL, id="start"), *BUSY, SHUTDOWN])
def test_a_killed_rank(play, time, victim, awaited, options):
    report = play("kill", victim, awaited, *options)
    assert report["exit"] == KILLED
    said(report, "on h2 failed first: killed by SIGKILL")
    if awaited == "left":
        assert report["failed"] == {}
    else:
        check_errors(report, {0, 1} if victim == "ranks" else {0, 1, 3}, within=1, named=H2)
    assert report["clean"] < at_most(4)


@each
@pytest.mark.parametrize("awaited, options", [*BUSY, SHUTDOWN])
def test_a_killed_agent(play, time, awaited, options):
    report = play("kill", "agent", awaited, *options)
    assert report["exit"] == 1
    assert said(report, "host h2 (ranks 2, 3) is lost: the connection broke off") < at_most(4)
    if awaited != "left":
        check_errors(report, {0, 1}, within=1)
    assert report["clean"] < at_most(4)


@each
def test_an_agent_killed_before_it_has_come(play, time):
    report = play("kill", "agent", "", *SMALL)
    assert report["exit"] == 1
    assert said(report, "host h2") < at_most(1)
    assert report["clean"] < at_most(4)


@each
def test_an_agent_killed_before_it_has_anything_to_do(play, lab, time):
    report = play("kill", "agent", COME, *SMALL, options=late(lab))
    assert report["exit"] == 1
    assert said(report, "host h2: the connection broke off") < at_most(1)
    assert report["clean"] < at_most(4)


@each
@pytest.mark.parametrize("awaited, options", [*BUSY, SHUTDOWN])
def test_a_stopped_agent(play, time, awaited, options):
    report = play("stop", "agent", awaited, *options)
    assert report["exit"] == 1
    said(report, "host h2 (ranks 2, 3) is lost: ")
    if awaited != "left":
        check_errors(report, {0, 1}, within=LEASE + 1)
    assert report["clean"] < at_most(LEASE + 4)


@each
def test_an_agent_stopped_before_it_has_come(play, lab, time):
    report = play("stop", "agent", "", *SMALL, options=["--rsh", f"{lab} on", "--start-timeout", "3"])
    assert report["exit"] == 1
    assert said(report, "host h2: ") < at_most(5)
    assert report["clean"] < at_most(7)


@each
def test_an_agent_stopped_before_it_has_anything_to_do(play, lab, time):
    report = play("stop", "agent", COME, *SMALL, options=late(lab))
    assert report["exit"] == 1
    assert said(report, "host h2: no heartbeat for 1.5 s") < at_most(LEASE + 1)
    assert report["clean"] < at_most(LEASE + 4)


@each
@pytest.mark.parametrize("awaited, options", [pytest.param("", SMALL, id="start"), *BUSY, SHUTDOWN])
def test_a_killed_driver(play, time, awaited, options):
    report = play("kill", "driver", awaited, *options)
    assert report["exit"] == -9
    assert report["clean"] < at_most(10)


@each
def test_a_driver_killed_before_all_have_come(play, lab, time):
    report = play("kill", "driver", COME, *SMALL, options=late(lab))
    assert report["exit"] == -9
    assert report["clean"] < at_most(10)


@each
def test_a_driver_stopped_before_all_have_come(play, lab, time):
    report = play("stop", "driver", COME, *SMALL, options=late(lab))
    assert report["exit"] == 1
    said(report, "host h2: ")
    assert report["clean"] < at_most(10)


@each
@pytest.mark.parametrize("awaited, options", [*BUSY, SHUTDOWN])
def test_a_stopped_driver(play, time, awaited, options):
    report = play("stop", "driver", awaited, *options)
    assert report["exit"] == 1
    for host in ("h1 (ranks 0, 1)", "h2 (ranks 2, 3)"):
        said(report, f"host {host} is lost: ")
    assert report["clean"] < at_most(10)


@each
@pytest.mark.parametrize("awaited, options", [*BUSY, SHUTDOWN])
def test_a_host_that_is_cut_off(play, time, awaited, options):
    report = play("cut", "h2", awaited, *options, grace=at_most(1))
    assert report["exit"] == 1
    assert said(report, "host h2 (ranks 2, 3) is lost: no heartbeat for 1.5 s") < at_most(LEASE + 4)
    if awaited != "left":
        check_errors(report, {0, 1}, within=LEASE + 1.5)
        check_errors(report, {2, 3}, within=LEASE + 1.5, named=H1)
    assert report["clean"] < at_most(LEASE + 5)


@each
def test_a_host_that_is_cut_off_before_it_has_come(play, lab, time):
    report = play("cut", "h1", "", *SMALL, options=["--start-timeout", "4", *late(lab)])
    assert report["exit"] == 1
    assert said(report, "host h1: ") < at_most(6)
    assert report["clean"] < at_most(8)


@each
@pytest.mark.parametrize("awaited, options", BUSY)
def test_two_hosts_that_hear_nothing_of_each_other(play, time, awaited, options):
    report = play("part", "h1 h2", awaited, *options, grace=at_most(1))
    assert report["exit"] == 3
    said(report, "failed first: exit code 3")
    check_errors(report, {0, 1}, within=LEASE + 1.5)
    check_errors(report, {2, 3}, within=LEASE + 1.5, named=H1)
    assert report["clean"] < at_most(LEASE + 5)


@each
@pytest.mark.parametrize("awaited, options", BUSY)
def test_a_host_that_only_hvdrun_hears_nothing_of(play, time, awaited, options):
    report = play("part", "bridge h2", awaited, *options)
    assert report["exit"] == 1
    assert said(report, "host h2 (ranks 2, 3) is lost: no heartbeat for 1.5 s") < at_most(LEASE + 1.5)
    assert report["clean"] < at_most(LEASE + 4)


@each
@pytest.mark.parametrize("lock", ["0", "1"], ids=["asking", "locked"])
@pytest.mark.parametrize("awaited, options", [pytest.param("", SMALL, id="start"), *BUSY])
def test_a_stopped_rank_is_reported_as_stalled_and_goes_on(play, time, awaited, options, lock):
    knobs = {"HVD_STALL_CHECK_TIME_SECONDS": "1", "HVD_SCHEDULE_LOCK": lock}
    report = play("stop", "rank 2", awaited, *options, **knobs)
    assert said(report, "the job is stalled: rank 2 (host h2) is stopped, as by SIGSTOP or Ctrl-Z; ") < at_most(4)
    assert report["then"] is True, report["said"]


SESSION = "setsid env -i bash -c 'exec -a hvd-left sleep 1000' > /dev/null 2>&1 &"
DAEMON = "(setsid env -i bash -c '(exec -a hvd-left sleep 1000) &' > /dev/null 2>&1 &);"


@each
@pytest.mark.parametrize("leftover", [pytest.param(SESSION, id="session"), pytest.param(DAEMON, id="daemon")])
@pytest.mark.parametrize("victim", ["rank 2", "agent", "supervisor", "driver"])
def test_what_a_rank_has_started_ends_too_whatever_its_session_and_environment(play, time, victim, leftover):
    report = play("kill", victim, "negotiating", *SMALL, before=["sh", "-c", f'{leftover} exec "$0" "$@"'])
    assert report["clean"] < at_most(10)


@each
@pytest.mark.parametrize("awaited, options", BUSY)
def test_a_killed_supervisor(play, time, awaited, options):
    report = play("kill", "supervisor", awaited, *options)
    assert report["exit"] == 1
    words = "which starts the ranks there and ends with them, was killed by SIGKILL"
    assert said(report, words) < at_most(4)
    said(report, "host h2 (ranks 2, 3) is lost: hvd-supervisor (process ")
    check_errors(report, {0, 1}, within=1)
    assert report["clean"] < at_most(4)


@each
def test_a_full_disk_costs_the_output_on_it_and_one_message(play, time):
    # Nobody fails here, so that a machine without time for a host's ranks must not look as if they did.
    report = play("full", "", "", "--steps", "3000", "--announce", "1", lease=60)
    assert report["exit"] == 0, report["said"]
    complaints = [line for _, line in report["said"] if line.startswith("hvdrun: ")]
    assert 1 <= len(complaints) <= 4 and all("No space left" in line for line in complaints), complaints
