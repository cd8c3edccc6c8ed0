"""That bench_collectives measures at all: on this host, and carried by netlab.sh over two."""

import json
import pathlib
import select
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
COLLECTIVES = ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"]


@pytest.fixture
def program():
    path = ROOT / "build/release/tests/bench/bench_collectives"
    if not path.exists():
        pytest.skip("the target benchmarks is not built")
    return path


def succeed(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=360)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(path):
    measured = json.loads(path.read_text())
    for result in measured["results"]:
        assert 0 < result["min_us"] <= result["median_us"] <= result["p99_us"], result
    return measured


@pytest.mark.long
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_two_ranks_of_one_host(program, tmp_path, collective):
    results = tmp_path / "results.json"
    succeed(program, "--ranks", 2, "--collective", collective, "--sizes", "64,1M", "--seconds", 0, "--json", results)
    measured = read(results)
    assert (measured["ranks"], measured["hosts"]) == (2, 1)
    assert [(r["collective"], r["bytes"]) for r in measured["results"]] == [(collective, 64), (collective, 1 << 20)]
    assert {r["backend"] for r in measured["results"]} == {"shared-memory"}


@pytest.mark.long
def test_calls_of_a_program(program):
    lines = succeed(program, "--ranks", 2, "--calls", "--sizes", "8,64", "--seconds", 0).splitlines()
    ways = ["the data plane", "hvd::allreduce", "start and wait", "prepared()"]
    assert [line[: len(way)] for line, way in zip(lines, ways * 2)] == ways * 2 and len(lines) == 8


@pytest.mark.long
def test_copies_that_need_nobody(program, tmp_path):
    results = tmp_path / "results.json"
    succeed(program, "--ranks", 2, "--collective", "copy", "--sizes", "1M", "--seconds", 0, "--json", results)
    assert {r["backend"] for r in read(results)["results"]} == {"memcpy"}


@pytest.mark.long
def test_tensors_in_place_by_ranks_with_sessions_of_their_own(program, tmp_path):
    results = tmp_path / "results.json"
    options = ["--sizes", "96,256K", "--tensors", 3, "--in-place", "--pin", "--setsid", "--seconds", 0]
    succeed(program, "--ranks", 3, *options, "--json", results)
    measured = read(results)
    assert measured["pinned"]
    assert all(r["tensors"] == 3 and r["in_place"] for r in measured["results"])


@pytest.mark.long
def test_a_rank_that_fails_ends_the_others(program):
    done = subprocess.run([program, "--ranks", "3", "--sizes", "4", "--collective", "alltoall"], capture_output=True)
    assert done.returncode == 1
    assert b"too few bytes" in done.stderr


@pytest.mark.long
def test_two_hosts_of_a_lab(program, lab, tmp_path):
    store, results = tmp_path / "store", tmp_path / "results.json"
    measure = f"{program} --hosts 2 --ranks-per-host 2 --store {store} --sizes 8,256K --seconds 0"
    succeed(
        lab, 2, "1gbit", "bash", "-c",
        f"$NETLAB_RSH 10.9.0.2 {measure} --host 1 & "
        f"$NETLAB_RSH 10.9.0.1 {measure} --host 0 --address 10.9.0.1 --json {results} && wait $!",
    )  # fmt: skip
    measured = read(results)
    assert (measured["ranks"], measured["hosts"]) == (4, 2)
    assert {r["backend"] for r in measured["results"]} == {"two-level"}
    assert not store.exists()


def test_a_lab_limits_its_links(lab):
    shown = succeed(lab, 2, "1gbit", "bash", "-c", "$NETLAB_RSH 10.9.0.2 'hostname; tc qdisc show dev eth0'")
    assert shown.startswith("h2\n")
    assert "tbf" in shown and "rate 1Gbit" in shown


def test_nothing_of_a_lab_outlives_it(lab, tmp_path):
    # A process with a session of its own on another host, when the lab is killed: it holds an end of this pipe.
    begun = "$NETLAB_RSH 10.9.0.2 'setsid bash -c \"echo begun; sleep 1000\"'"
    with subprocess.Popen([lab, "2", "none", "bash", "-c", begun], stdout=subprocess.PIPE) as started:
        assert started.stdout.readline() == b"begun\n"
        started.kill()
        ended, _, _ = select.select([started.stdout], [], [], 20)
        assert ended and started.stdout.read() == b""
