"""`hvd simulate` as a user calls it: what it prints, writes and draws, and how it refuses."""

import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.quick

BIN = pathlib.Path(sys.executable).parent


def run(*words):
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=360, stdin=subprocess.DEVNULL
    )


def simulate(*arguments):
    return run(BIN / "hvd", "simulate", *arguments)


def succeed(*arguments):
    done = simulate(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_job_is_told_of_round_by_round(tmp_path):
    path = tmp_path / "job.json"
    text = succeed("--ranks", 2000, "--tensors", 10, "--kill", 1000, "--json", path)
    assert "2000 ranks on 250 hosts" in text
    assert [line.split()[0] for line in text.splitlines()[6:9]] == ["new", "cached", "locked"]
    report = json.loads(path.read_text())
    (job,) = report["jobs"]
    new, cached, locked = job["phases"]
    assert (new["requests"], new["hits"]) == (10, 0) and (cached["requests"], cached["hits"]) == (0, 10)
    assert 0 < new["max_messages"] <= report["radix"] + 2
    assert locked["messages"] == locked["max_local_messages"] == 0
    assert new["time_us"] >= new["network_time_us"] > 12
    assert job["loss"]["informed"] == 1999 and 0 < job["loss"]["first_us"] <= job["loss"]["last_us"]


def test_a_rank_that_dies_alone_is_heard_by_nobody(tmp_path):
    succeed("--ranks", 1, "--tensors", 1, "--kill", 0, "--json", tmp_path / "results.json")
    (job,) = json.loads((tmp_path / "results.json").read_text())["jobs"]
    assert job["loss"]["informed"] == 0 and job["loss"]["last_us"] == 0, job


def test_the_same_seed_gives_the_same_output():
    arguments = ("--ranks", 500, "--tensors", 5, "--jitter-us", 5, "--drop", 0.01, "--kill", 3, "--seed")
    assert succeed(*arguments, 1) == succeed(*arguments, 1) != succeed(*arguments, 2)


def test_it_is_a_module_too():
    done = run(sys.executable, "-m", "hvd.simulate", "--ranks", 64, "--tensors", 2)
    assert done.returncode == 0 and "64 ranks on 8 hosts" in done.stdout


def test_the_curve_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"
    text = succeed("--ranks", 500, "--tensors", 5, "--plot", path)
    assert path.read_bytes().startswith(b"\x89PNG")
    table = text[text.index("Horovod without its pause") :]
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["8", "64", "256", "500"]


def test_calibration_compares_with_what_it_measured(tmp_path):
    path = tmp_path / "calibration.json"
    succeed("--calibrate", "--tensors", 5, "--json", path)
    report = json.loads(path.read_text())
    assert {row["ranks"] for row in report["comparisons"]} == {64, 128, 256, 512, 1024}
    assert all(row["measured_us"] > 0 and row["predicted_us"] > 0 for row in report["comparisons"])
    assert report["costs_ns"]["apply"]["message"] + report["costs_ns"]["apply"]["request"] > 0


@pytest.mark.parametrize(
    "arguments, in_message",
    [
        (["--ranks", 0], "--ranks"),
        (["--kill", 5000], "--kill 5000"),
        (["--nonsense"], "--nonsense"),
        (["--json", "/no such directory/file"], "/no such directory/file"),
        (["--plot", "plot.gif"], "plot.gif"),
        (["--calibrate", "--plot", "plot.png"], "--calibrate has none"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_arguments_are_told_on_one_line(arguments, in_message):
    done = simulate(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("hvd simulate: ") and in_message in line
