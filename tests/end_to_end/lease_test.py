"""HVD_LEASE: a host that is cut off is noticed on both sides of the cut, and a stopped rank is not taken for dead."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from timeouts import at_most

HERE = pathlib.Path(__file__).parent
PROGRAM = HERE.parents[1] / "build/release/tests/end_to_end/allreduce_loop"

FAILED = 3  # of allreduce_loop


@pytest.fixture
def play(lab):
    """What lab_job.py reports, with a lease of so many seconds."""
    if not PROGRAM.exists():
        pytest.skip("build/release is not built")

    def in_lab(lease, *arguments, **variables):
        command = [
            str(word) for word in (lab, 2, "none", sys.executable, HERE / "lab_job.py", lab, PROGRAM, *arguments)
        ]
        environment = {**os.environ, "HVD_LEASE": str(lease), **variables}
        done = subprocess.run(command, capture_output=True, text=True, timeout=360, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return in_lab


def check_both_sides_heard(report, lease):
    for number, rank in enumerate(report["ranks"]):
        assert rank["exit"] == FAILED, (number, rank)
        word, when, _, text = rank["said"][-1].split(" ", 3)
        assert word == "failed"
        assert float(when) - report["happened"] < at_most(lease + 1), (number, text)
        far = ("rank 2", "rank 3") if number < 2 else ("rank 0", "rank 1")
        assert any(name in text for name in far), (number, text)


LONG = pytest.mark.long


# A schedule that is locked, so that only data is on its way, if anything; messages all the time.
@pytest.mark.parametrize(
    "lock, options",
    [
        pytest.param("1", ["--bytes", "64"], id="locked"),
        pytest.param("0", ["--bytes", "64"], id="negotiating"),
        pytest.param("1", ["--bytes", "4194304"], id="locked-large", marks=LONG),
        pytest.param("0", ["--bytes", "4194304"], id="negotiating-large", marks=LONG),
        pytest.param("1", ["--bytes", "64", "--delay", "20"], id="locked-idle", marks=LONG),
        pytest.param("0", ["--bytes", "64", "--delay", "20"], id="negotiating-idle", marks=LONG),
    ],
)
@pytest.mark.timed
def test_a_host_that_is_cut_off_is_noticed_on_both_sides(play, lock, options):
    check_both_sides_heard(play(2, "cut", at_most(8), *options, HVD_SCHEDULE_LOCK=lock), 2)


@LONG
@pytest.mark.timed
def test_the_lease_is_five_seconds_unless_told(play, monkeypatch):
    report = play(5, "cut", at_most(8), "--bytes", "4096")
    check_both_sides_heard(report, 5)
    assert all(float(rank["said"][-1].split(" ")[1]) - report["happened"] > 3 for rank in report["ranks"])


@pytest.mark.parametrize(
    "lock, options",
    [
        pytest.param("1", ["--bytes", "16777216", "--announce", "1"], id="locked-large"),
        pytest.param("0", ["--bytes", "64"], id="negotiating", marks=LONG),
    ],
)
def test_a_stopped_rank_is_waited_for_longer_than_the_lease(play, lock, options):
    for rank in play(2, "stop", 8, *options, HVD_SCHEDULE_LOCK=lock)["ranks"]:
        assert rank["exit"] == 0, rank
        assert rank["said"][-1].startswith("done")
