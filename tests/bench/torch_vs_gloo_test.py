"""The lead over gloo that torch_vs_gloo.py measures, by medians of one run: noise then counts for both sides."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

BENCHMARK = pathlib.Path(__file__).with_name("torch_vs_gloo.py")


def medians(ranks, *options):
    """Seconds by case and side."""
    hvdrun = shutil.which("hvdrun")
    assert hvdrun, "hvdrun is not on the PATH"
    with tempfile.TemporaryDirectory() as directory:
        results = pathlib.Path(directory) / "results.json"
        done = subprocess.run(
            [hvdrun, "-np", str(ranks), sys.executable, str(BENCHMARK), "--json", str(results), *options],
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, done.stderr
        rows = json.loads(results.read_text())["results"]
    return {row["case"]: (row["hvd_median_us"] / 1e6, row["gloo_median_us"] / 1e6) for row in rows}


@pytest.mark.long
def test_two_ranks_with_a_core_each():
    times = medians(2, "--pin")
    hvd, gloo = times["8 B, synchronous"]
    assert gloo / hvd >= 2, times
    hvd, gloo = times["100 tensors, 64 MB"]
    assert gloo / hvd >= 1.5, times


@pytest.mark.long
def test_four_ranks_on_two_cores_each_in_a_session_of_its_own():
    hvd, gloo = medians(4, "--setsid", "--only", "8 B, synchronous")["8 B, synchronous"]
    assert gloo / hvd >= 2, (hvd, gloo)
    runs = [(medians(4, "--only", "16 MB"), medians(4, "--setsid", "--only", "16 MB")) for _ in range(5)]
    together = sorted(same["16 MB, synchronous"][0] for same, _ in runs)[2]
    apart = sorted(own["16 MB, synchronous"][0] for _, own in runs)[2]
    assert apart / together <= 1.2, runs
