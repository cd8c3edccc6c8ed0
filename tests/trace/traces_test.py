"""Random programs have the same outcomes each time, with and without schedule locks, and the expected ones."""

import collections
import os
import pathlib
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from timeouts import EXACT
from traces import SHARED_MEMORY, TCP, TWO_HOSTS, Job, Traces, difference, run

BUILD = pathlib.Path(__file__).parents[2] / "build/release"
PROGRAM = BUILD / "tests/trace/random_program"
SHARED_RESULT = re.compile(r"\d+ (?P<operation>p\S+ (?:allreduce|broadcast) .*) -> ok (?P<hash>\w+)")
SETUPS = [(2, TCP), (3, SHARED_MEMORY), (3, TCP), (4, SHARED_MEMORY), (4, TWO_HOSTS), (4, TCP)]
FEW = [Job(seed, ranks, place) for seed, (ranks, place) in enumerate(SETUPS)]
MANY = [Job(seed, ranks, place, steps=600) for seed in range(100, 140) for ranks, place in SETUPS]


@pytest.fixture(scope="module")
def hvdrun():
    path = os.environ.get("HVDRUN") or shutil.which("hvdrun", path=str(BUILD / "launcher"))
    if path is None or not PROGRAM.exists():
        pytest.skip("build/release is not built")
    return pathlib.Path(path)


def shared_results(trace):
    """What a rank has got, by operation, of those operations that give all ranks the same bits."""
    results = collections.defaultdict(list)
    for found in filter(None, map(SHARED_RESULT.fullmatch, trace)):
        results[found["operation"]].append(found["hash"])
    return results


def check_ranks_agree(traces):
    """As far as each rank took part: those that join early have fewer results."""
    longest = {}
    for rank, trace in enumerate(traces.by_rank):
        for operation, hashes in shared_results(trace).items():
            known = longest.setdefault(operation, hashes)
            assert all(one == other for one, other in zip(known, hashes)), f"rank {rank} differs in {operation}"
            longest[operation] = max(known, hashes, key=len)
    assert longest


def check(job, hvdrun):
    """Decisions depend on time where a machine is busy: on when a rank hears what others have submitted."""
    first, second, unlocked = (run(each, hvdrun, PROGRAM) for each in (job, job, replace(job, lock=False)))
    if EXACT:
        assert difference(first, second) == "", job
    assert difference(first.without_decisions(), second.without_decisions()) == "", job
    assert difference(first.without_decisions(), unlocked.without_decisions()) == "", job
    assert first.unexpected == [], job
    check_ranks_agree(first)


@pytest.mark.quick
def test_the_first_difference_is_found():
    one = Traces([["phase 0", "0 a -> ok 1"], ["phase 0", "0 a -> ok 1", "decisions buckets=1"]])
    other = Traces([["phase 0", "0 a -> ok 1"], ["phase 0", "0 a -> ok 2", "decisions buckets=1"]])
    assert difference(one, one) == ""
    assert difference(one, other) == "rank 1, line 2\n- 0 a -> ok 1\n+ 0 a -> ok 2"
    assert difference(one, Traces([[], []], "exit code 3: failed")).endswith("new: exit code 3: failed")


@pytest.mark.quick
def test_decisions_of_a_job_that_was_late_are_left_out():
    one, other = (Traces([["0 a -> ok 1", f"decisions buckets={count}"]]) for count in (1, 2))
    late = Traces([[*other.by_rank[0], "late"]])
    assert "buckets=2" in difference(one, other)
    assert difference(one, late) == ""


@pytest.mark.quick
@pytest.mark.parametrize("job", FEW, ids=str)
def test_program_has_one_trace(job, hvdrun):
    check(job, hvdrun)


@pytest.mark.long
def test_many_programs_have_one_trace_each(hvdrun):
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda job: check(job, hvdrun), MANY))
