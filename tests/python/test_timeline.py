"""The timeline of a job: asked for by HVD_TIMELINE, started and stopped by the program."""

from __future__ import annotations

import json

import pytest

from launching import run_job

WORK = """
import numpy as np, hvd
hvd.init()
hvd.allreduce(np.ones((2, 3), np.float32), name="first")
hvd.grouped_allreduce([np.ones(4, np.float32), np.ones(5, np.float32)], name="group")
hvd.barrier()
"""


def activities(events, name):
    """What was going on in a tensor's row, in the order of beginning; all of it must end."""
    (row,) = (event["pid"] for event in events if event.get("args", {}).get("name") == name)
    own = [event for event in events if event["pid"] == row and event["ph"] in "BE"]
    depth = 0
    for event in own:
        depth += 1 if event["ph"] == "B" else -1
        assert depth >= 0
    assert depth == 0
    return [event["name"] for event in own if event["ph"] == "B"]


def test_rank_0_writes_what_the_operations_did(tmp_path):
    path = tmp_path / "timeline.json"
    job = run_job(2, ["-c", WORK], {"HOROVOD_TIMELINE": str(path), "HVD_TIMELINE_MARK_CYCLES": "1"})
    assert job.returncode == 0, job.output
    events = json.loads(path.read_text())
    assert activities(events, "allreduce.first") == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE", "shared-memory"]
    (end,) = (event["args"] for event in events if event.get("args", {}).get("shape") == "[2, 3]")
    assert end["dtype"] == "float32"
    assert {event["name"] for event in events if event["ph"] == "X"} == {"0", "1"}
    assert {event["name"] for event in events if event["ph"] == "i"} == {"CYCLE_START"}


@pytest.mark.parametrize("name", ["timeline.json", "caf\udce9.json"])  # as Python reads a name that is no UTF-8
def test_a_program_starts_and_stops_it(tmp_path, name):
    path = tmp_path / name
    program = f"""
import arrays, hvd
hvd.init()
for name, listens in (("before", False), ("during", True), ("after", False)):
    if listens:
        hvd.start_timeline({str(path)!r}, mark_cycles=True)
    arrays.allreduce([1.0], name)
    hvd.stop_timeline()
    arrays.allreduce([1.0], "together")
"""
    job = run_job(2, ["-c", program], {"HVD_TIMELINE": "DYNAMIC"})
    assert job.returncode == 0, job.output
    events = json.loads(path.read_text())
    names = {event.get("args", {}).get("name") for event in events}
    assert "allreduce.during" in names
    assert not names & {"allreduce.before", "allreduce.after"}


def test_a_timeline_that_cannot_be_written_costs_a_warning_and_not_the_job(tmp_path):
    program = "import hvd, arrays; hvd.init(); arrays.allreduce([1.0])"
    path = tmp_path / "nowhere" / "timeline.json"
    job = run_job(2, ["-c", program], {"HVD_TIMELINE": str(path)})
    assert job.returncode == 0, job.output
    assert job.output.count("cannot write the timeline") == 1


def test_without_a_job_there_is_none(tmp_path):
    import hvd

    with pytest.raises(ValueError, match="init"):
        hvd.start_timeline(tmp_path / "timeline.json")
