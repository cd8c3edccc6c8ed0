"""Plugins: the example, built as its author says, and others with faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTY = ROOT / "tests/end_to_end/plugins/faulty.c"

SUM = """
import arrays, hvd
from hvd.exceptions import HorovodInternalError
hvd.init()
try:
    for step in range(3):
        total = arrays.allreduce([hvd.rank() + 1.0], op=arrays.Sum)
    arrays.broadcast([1.0, 1.0, 1.0], root_rank=0)
    print(f"rank {hvd.rank()}: {total.item()}", flush=True)
except HorovodInternalError as error:
    print(f"rank {hvd.rank()} heard: {error}", flush=True)
"""


def build(source, path, *options):
    include = subprocess.run([sys.executable, "-m", "hvd", "--include-dir"], capture_output=True, text=True, check=True)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", *options]
    subprocess.run([*command, f"-I{include.stdout.strip()}", source, "-o", path], check=True)
    return path


def run(plugins, ranks=2, **variables):
    command = [Path(sys.prefix, "bin/hvdrun"), "-np", str(ranks), sys.executable, "-c", SUM]
    variables = {"HVD_PLUGINS": ":".join(map(str, plugins)), "HVD_START_TIMEOUT": "10", **variables}
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=360)
    return done.returncode, done.stdout + done.stderr


def test_the_example_logs_and_hands_on(tmp_path):
    plugin = build(ROOT / "examples/plugin/logging_plugin.c", tmp_path / "logging.so")
    code, output = run([plugin, plugin], HVD_LOG_LEVEL="info")
    assert code == 0, output
    for rank in range(2):
        assert f"rank {rank}: 3.0" in output
        for collective in ("allreduce", "broadcast"):
            assert f"logging: rank {rank} of 2: {collective} of 1 tensors" in output


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("WRONG_VERSION", "it was built with another version of hvd_plugin.h"),
        ("NO_FUNCTIONS", "functions are missing in its table"),
        ("FAILS_SELF_TEST", "the device is on fire"),
        ("FAILS_TO_OPEN", "rank 1 on "),
        ("MISSES_A_SYMBOL", "undefined symbol: surely_nobody_has_this"),
    ],
)
def test_what_cannot_be_used_is_left_out_on_all_ranks(tmp_path, fault, words):
    code, output = run([build(FAULTY, tmp_path / "faulty.so", f"-DFAULT={fault}")])
    assert code == 0, output
    assert "going on without a plugin of HVD_PLUGINS: rank " in output
    assert words in output
    assert "rank 0: 3.0" in output and "rank 1: 3.0" in output


def test_a_file_that_is_no_plugin_is_left_out(tmp_path):
    code, output = run([tmp_path / "nowhere.so", "/lib/x86_64-linux-gnu/libm.so.6"])
    assert code == 0, output
    assert "nowhere.so: cannot open shared object file" in output
    assert "it has no function hvd_plugin_get" in output


def test_a_failure_is_the_same_named_error_on_every_rank(tmp_path):
    code, output = run([build(FAULTY, tmp_path / "faulty.so", "-DFAULT=FAILS_TO_RUN")])
    assert code == 0, output
    for rank in range(2):
        assert f"rank {rank} heard: " in output
    assert "faulty: the device is on fire" in output


def test_a_plugin_that_never_returns_holds_up_nobody(tmp_path):
    plugin = build(FAULTY, tmp_path / "faulty.so", "-DFAULT=NEVER_RETURNS")
    code, output = run([plugin], HVD_COLLECTIVE_TIMEOUT_SECONDS="1")
    assert code == 0, output
    for rank in range(2):
        assert f"rank {rank} heard: " in output
    assert "waiting for a collective of faulty, call 1" in output


def test_a_plugin_that_never_opens_ends_the_start_at_its_deadline(tmp_path):
    plugin = build(FAULTY, tmp_path / "faulty.so", "-DFAULT=NEVER_OPENS")
    code, output = run([plugin], HVD_START_TIMEOUT="2")
    assert code != 0, output
    assert "waiting for faulty to open its group of 2 ranks" in output
