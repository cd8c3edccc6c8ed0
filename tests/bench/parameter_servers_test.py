"""That bench_parameter_servers measures calls, and allreduces beside them."""

import json
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(__file__).parents[2] / "build/release"


def measured(*options):
    program, hvdrun = BUILD / "tests/bench/bench_parameter_servers", BUILD / "launcher/hvdrun"
    if not (program.exists() and hvdrun.exists()):
        pytest.skip("the target benchmarks is not built")
    command = [hvdrun, "-np", "2", "--servers", "1", program, "--table-rows", "500", "--rounds", "3", *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("window", [1, 4])
def test_calls(window):
    times = measured("--calls", 50, "--window", window)
    assert sorted(times) == ["pull", "push", "push_pull"]
    assert all(len(of) == 3 and min(of) > 0 for of in times.values())


@pytest.mark.long
def test_allreduces_beside_calls():
    times = measured("--allreduce", 1 << 20)
    assert sorted(times) == ["alone", "busy", "call", "calls"]
    assert all(len(of) == 3 and min(of) > 0 for of in times.values())
