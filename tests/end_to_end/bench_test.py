"""`hvd bench` as a user calls it: every collective, both ways to start it, what it writes, and how it refuses."""

import json
import pathlib
import subprocess
import sys

import pytest

BIN = pathlib.Path(sys.executable).parent
COLLECTIVES = ["allreduce", "allgather", "broadcast", "reducescatter", "alltoall"]
SETTINGS = {
    "program": str,
    "version": str,
    "ranks": int,
    "hosts": int,
    "collective": str,
    "dtype": str,
    "op": str,
    "in_place": bool,
    "grouped": bool,
    "arena": bool,
    "seconds": float,
    "warmup": int,
    "results": list,
}
RESULT = {
    "bytes": int,
    "tensors": int,
    "calls": int,
    "rounds": int,
    "min_us": float,
    "median_us": float,
    "p99_us": float,
    "algbw_gb_per_s": float,
    "busbw_gb_per_s": float,
    "errors": int,
}


def run(*command):
    words = [str(word) for word in (BIN / command[0], *command[1:])]
    return subprocess.run(words, capture_output=True, text=True, timeout=360, stdin=subprocess.DEVNULL)


def bench(*arguments):
    """On two ranks, for as short as can be; the lines that it prints."""
    done = run("hvdrun", "-np", 2, BIN / "hvd", "bench", *arguments, "--seconds", 0)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def read(path):
    report = json.loads(path.read_text())
    assert {key: type(value) for key, value in report.items()} == SETTINGS
    for result in report["results"]:
        assert {key: type(value) for key, value in result.items()} == RESULT
        assert 0 < result["min_us"] <= result["median_us"] <= result["p99_us"]
        assert result["calls"] >= 1 and result["rounds"] >= 5 and result["errors"] == 0
    return report


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_two_ranks(collective, tmp_path):
    file = tmp_path / "results.json"
    lines = bench(collective, "-b", 8, "-e", "128K", "-f", 64, "-d", "float64", "--json", file)
    report = read(file)
    assert (report["ranks"], report["hosts"], report["collective"]) == (2, 1, collective)
    sizes = [16 if collective in ("allgather", "reducescatter", "alltoall") else 8, 512, 32768]
    assert [result["bytes"] for result in report["results"]] == sizes
    factor = 1 if collective in ("allreduce", "broadcast") else 0.5
    for result in report["results"]:
        assert result["algbw_gb_per_s"] == pytest.approx(result["bytes"] / result["median_us"] / 1000)
        assert result["busbw_gb_per_s"] == pytest.approx(factor * result["algbw_gb_per_s"])
    # Once, not once for each rank.
    assert lines[0].endswith(f"{collective}, 2 ranks on 1 host")
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert [(int(row[0]), row[2], row[3], row[-1]) for row in rows] == [
        (size, "float64", report["op"], "0") for size in sizes
    ]


def test_a_barrier(tmp_path):
    file = tmp_path / "results.json"
    bench("barrier", "--json", file)
    report = read(file)
    assert (report["dtype"], report["op"]) == ("none", "none")
    (result,) = report["results"]
    assert (result["bytes"], result["tensors"], result["busbw_gb_per_s"]) == (0, 0, 0)


@pytest.mark.parametrize("options", [[], ["--in-place", "--arena"], ["--grouped"]], ids=" ".join)
def test_the_gradients_of_resnet50(options, tmp_path):
    file = tmp_path / "results.json"
    bench("--tensors", "resnet50", *options, "--json", file)
    (result,) = read(file)["results"]
    assert (result["bytes"], result["tensors"]) == (4 * 25_557_032, 161)


def test_it_starts_its_ranks_itself():
    done = run("hvd", "bench", "-np", 2, "allreduce", "--tensors", "100x1MB", "-o", "average", "--seconds", 0)
    assert done.returncode == 0, done.stderr
    assert "2 ranks on 1 host" in done.stdout
    assert done.stdout.splitlines()[-1].split()[:4] == ["1048400", "100", "float32", "average"]


def test_one_rank_is_told_how_to_have_several():
    done = run("python", "-m", "hvd", "bench", "--sizes", 8, "--seconds", 0)
    assert done.returncode == 0, done.stderr
    assert "1 rank on 1 host" in done.stdout and "hvd bench -np 4" in done.stdout


@pytest.mark.parametrize("start", [["hvd", "bench", "-np", 2], ["hvdrun", "-np", 2, BIN / "hvd", "bench"]])
@pytest.mark.parametrize("work", [["allreduce", "--sizes", "8,64K"], ["barrier"]], ids=lambda words: words[0])
def test_a_plot(start, work, tmp_path):
    plot, file = tmp_path / "plot.png", tmp_path / "results.json"
    done = run(*start, *work, "--seconds", 0, "--plot", plot, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert read(file)["collective"] == work[0]


@pytest.mark.parametrize(
    ("arguments", "in_message"),
    [
        (["allreduse"], "allreduse"),
        (["-d", "float"], "float"),
        (["--sizes", "8X"], '"8X"'),
        (["--tensors", "vgg16"], "vgg16"),
        (["-np", "none"], "none"),
        (["-np", 2, "broadcast", "-o", "sum"], "--op"),
        (["--arena"], "--arena"),
        (["--json", "/no such directory/file"], "/no such directory/file"),
        (["--plot", "plot.gif"], "plot.gif"),
        (["--plot"], "--plot"),
        (["--training", "--model", "resnet"], "'resnet'"),
        (["--training", "--steps", 0], "0: at least 1"),
        (["--training", "-np", -1], "-1: at least 1"),
        (["--training", "--json", "/no such directory/file"], "/no such directory/file"),
        (["--training", "allreduce"], "allreduce"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_arguments_are_told_on_one_line(arguments, in_message):
    done = run("hvd", "bench", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("hvd bench: ") and in_message in line


@pytest.mark.parametrize("more", [[], ["--training"]])
def test_wrong_arguments_in_a_job_are_told_once(more):
    done = run("hvdrun", "-np", 2, BIN / "hvd", "bench", *more, "-np", 3)
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("hvd bench: "))
    assert "this job has 2 ranks already" in line


def test_a_step_of_a_training_is_divided_into_what_it_consists_of(tmp_path):
    pytest.importorskip("torch")
    results = tmp_path / "results.json"
    done = run("hvd", "bench", "-np", 2, "--training", "--steps", 3, "--rounds", 3, "--json", results)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "us a step" in done.stdout and "the optimizer's own step" in done.stdout, done.stdout
    report = json.loads(results.read_text())
    assert (report["ranks"], report["steps"], report["rounds"], len(report["by_rank"])) == (2, 3, 3, 2)
    for rank in report["by_rank"]:
        alone, distributed = rank["without communication"], rank["with hvd"]
        assert alone["spans"].keys() == {"forward", "backward", "update"}
        assert {"hooks", "communicating", "arrival", "putting back"} <= distributed["spans"].keys()
        for side in (alone, distributed):
            assert sum(side["spans"].values()) == pytest.approx(side["step"])
            assert min(side["spans"].values()) >= 0 and side["threads"]["training"]["cpu"] > 0
