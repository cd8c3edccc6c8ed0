"""What versions.py makes of measurements, and how it would make them: all of it but building and measuring."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from checkouts import Checkout
from comparison.cases import MB, Place
from comparison.launching import Failed
from comparison.samples import Sample, Samples, Time
from regression import launches, verdict
from regression.cases import CASES, CPP, INSTRUCTIONS, NEW, OLD, SYSTEM_CALLS, TRAINING, Case
from regression.verdict import BY_MINIMA, MISSED, WITHIN, Row
from regression.versions import Version  # before checkouts, which it makes known

CASE = Case("pair", Place(ranks=2), CPP)


def version(name):
    return Version(name, Checkout("c0ffee", Path("/c0ffee/source"), Path("/c0ffee/environment")))


def row(old, new, unit="time"):
    """Of numbers that are (least, median)."""
    return Row("pair", 8, unit, Time(old[1], old[0]), Time(new[1], new[0]))


def command(case):
    return launches.command(case, version(NEW), 0.1, Path("/results"))


@pytest.mark.parametrize(
    ("new", "ratios", "judged"),
    [
        ((100, 200), (1.0, 1.0), WITHIN),
        ((150, 206), (1.03, 1.5), WITHIN),
        ((50, 100), (0.5, 0.5), WITHIN),
        ((103, 207), (1.035, 1.03), BY_MINIMA),
        ((104, 207), (1.035, 1.04), MISSED),
    ],
)
def test_a_time_is_within_its_limit_by_medians(new, ratios, judged):
    found = row((100, 200), new)
    assert (found.by_medians, found.by_minima) == pytest.approx(ratios)
    assert found.verdict == judged


@pytest.mark.parametrize(("new", "judged"), [(1020, WITHIN), (1021, MISSED)])
def test_instructions_have_a_narrower_limit(new, judged):
    assert row((1000, 1000), (new, new), INSTRUCTIONS).verdict == judged


@pytest.mark.parametrize(("old", "new", "judged"), [(0, 0.1, WITHIN), (0, 0.2, MISSED), (10, 10.3, WITHIN)])
def test_a_few_more_system_calls_than_none_are_noise(old, new, judged):
    assert row((old, old), (new, new), SYSTEM_CALLS).verdict == judged


def test_ratios_to_nothing():
    assert verdict.ratio(0, 0) == 1
    assert verdict.ratio(0, 0.01) == math.inf


def test_rows_are_those_that_both_versions_have():
    samples = Samples(
        Sample("pair", version, launch, size, least, median)
        for version, size, times in (
            (OLD, MB, [(30, 40), (20, 60), (25, 50)]),
            (NEW, MB, [(31, 51)]),
            (OLD, 8, [(1, 2)]),
            (NEW, 8, [(1, 2)]),
            (OLD, 64, [(1, 2)]),
        )
        for launch, (least, median) in enumerate(times)
    )
    found = verdict.rows(samples, [CASE, Case("absent", Place(ranks=2), CPP)])
    assert found == [row((1, 2), (1, 2)), Row("pair", MB, "time", Time(50, 20), Time(51, 31))]
    told = json.loads(json.dumps(verdict.as_json({}, samples, found, {})))["rows"][1]
    assert (told["by_medians"], told["verdict"]) == (1.02, WITHIN)


def test_the_table_lines_up_and_the_summary_counts():
    found = [row((0.25, 0.5), (0.25, 0.75)), row((880, 880), (880, 880), INSTRUCTIONS)]
    headline, first, second = verdict.table(found).splitlines()
    end = headline.index("medians") + len("medians")
    assert first[:end].endswith("  0.75 us    1.500") and first.endswith(BY_MINIMA)
    assert second[:end].endswith("880.00    1.000") and second.endswith(WITHIN)
    assert verdict.summary(found, 2, 0) == "1 within, 1 by minima, 0 missed, cases not measured: 2, failed: 0"


@pytest.mark.parametrize(
    ("size", "text"), [(0, ""), (80, "80 B"), (MB, "1 MB"), (67108800, "64 MB"), (102228128, "97 MB")]
)
def test_sizes_as_text(size, text):
    assert verdict.size_text(size) == text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_has_a_limit_and_programs_of_one_version(case):
    assert case.unit in verdict.LIMITS
    words = " ".join(command(case))
    assert "/c0ffee/" in words
    assert ("-x HVD_SCHEDULE_LOCK=0" in words) == (not case.locked)


def test_a_lab_has_a_rank_on_each_host():
    lab, hosts, rate, *_, script = command(Case("lab", Place(ranks=2, hosts=2), CPP, ("--sizes", "8")))
    assert (Path(lab).name, hosts, rate) == ("netlab.sh", "2", "none")
    assert "hvdrun -np 4 " in script and " -H 10.9.0.1:2,10.9.0.2:2 " in script
    assert "--sizes 8 --seconds 0.1" in script


def test_what_callgrind_collected():
    assert launches.instructions("summary: 12\ntotals: 1760000\n") == 1760000
    with pytest.raises(Failed, match="no total"):
        launches.instructions("")


def test_training_counts_as_time():
    case = Case("pair, training", Place(ranks=2), TRAINING)
    steps_a_second = {"hvd_best": 2000.0, "hvd_median": 1000.0}
    assert launches.sample(case, version(OLD), 3, steps_a_second) == Sample(case.name, OLD, 3, 0, 500, 1000)


def test_the_list_of_cases_needs_nothing_installed():
    script = Path(__file__).with_name("versions.py")
    done = subprocess.run([sys.executable, "-S", str(script), "--list"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "4 hosts, ResNet-50's gradients from Python, unlocked" in done.stdout
