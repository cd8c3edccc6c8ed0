"""That bench_control_plane measures what it says, and that a locked schedule needs no messages."""

import json
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(__file__).parents[2] / "build/release"


@pytest.fixture
def measured(tmp_path):
    program, hvdrun, results = BUILD / "tests/bench/bench_control_plane", BUILD / "launcher/hvdrun", tmp_path / "r.json"
    if not (program.exists() and hvdrun.exists()):
        pytest.skip("the target benchmarks is not built")
    command = [hvdrun, "-np", "3", program, "--tensors", "170", "--rounds", "20"]
    command += ["--breaks", "3", "--real-breaks", "1", "--sets", "2", "--json", results]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=360)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("step of 170 tensors") == 2
    return json.loads(results.read_text())


@pytest.mark.long
def test_what_is_measured_is_complete_and_a_locked_step_sends_nothing(measured):
    assert measured["cpus"] > 0
    locked, learning = measured["results"]
    for result in (locked, learning):
        assert result["ranks"] == 3
        step = result["step"]
        assert (step["tensors"], step["elements"]) == (170, 2)
        assert step["steps"] >= 20
        for time in (step["wall_us"], step["cpu_us"]):
            assert 0 < time["min"] <= min(time["median"], time["mean"])
        assert step["buckets"] >= 1
        assert step["control_cpu_us"] == pytest.approx(step["cpu_us"]["mean"] - step["collective_cpu_us"])
        assert step["control_cpu_us"] < step["cpu_us"]["mean"]

    # A busy machine may have a schedule given up now and then.
    assert locked["lock"] and locked["step"]["locked_buckets"] > 0.5 * locked["step"]["buckets"]
    assert locked["step"]["control_messages"] == 0
    assert not learning["lock"] and learning["step"]["locked_buckets"] == 0
    assert learning["step"]["control_messages"] >= 1

    assert not learning["breaks"]
    small, real = locked["breaks"]
    assert (small["bytes"], small["rounds"], real["rounds"]) == (170 * 2 * 4, 3, 1)
    assert real["bytes"] > 4 * 25_557_032  # the parameters of a ResNet-50, and a few once more
    assert small["breaks"] + real["breaks"] > 0
    for row in (small, real):
        assert row["step_us"]["min"] > 0
        assert row["share"] == pytest.approx(row["break_us"] / 1e6 / (50 * row["step_us"]["median"] / 1e6))

    sets = locked["sets"]
    assert sets["shorts_beside"] > 0
    assert 0 < sets["short_beside_us"]["median"] < sets["long_us"]["median"]
    assert sets["short_alone_us"]["median"] > 0
