"""The package without a framework: its command line, its version, what an import brings with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hvd
from hvd import installation

pytestmark = pytest.mark.quick


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300)


def test_version():
    assert run("-m", "hvd", "--version").stdout.strip() == hvd.__version__


def test_environment_is_markdown_with_every_variable():
    text = run("-m", "hvd", "--environment").stdout
    assert "HVD_FUSION_THRESHOLD" in text and "HVD_STALL_CHECK_TIME_SECONDS" in text


def test_cmake_dir_holds_the_package():
    done = run("-m", "hvd", "--cmake-dir")
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / "hvdConfig.cmake").exists()


def test_a_directory_near_the_root_may_hold_the_package(monkeypatch):
    monkeypatch.setattr(hvd, "__file__", "/hvd/__init__.py")
    with pytest.raises(FileNotFoundError, match="is not installed beside /hvd"):
        installation.find("lib/libhvd_none.so")


def test_what_is_no_command_is_refused():
    assert run("-m", "hvd", "nonsense").returncode == 2


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_names_the_commands(arguments):
    done = run("-m", "hvd", *arguments)
    assert done.returncode == 0 and not done.stderr
    assert "hvd bench -np 4 allreduce" in done.stdout and "hvd simulate --ranks" in done.stdout


BENCH = ("bench", "allreduce", "--sizes", "8,16,32", "--seconds", "0")


@pytest.mark.parametrize("arguments", [("--environment",), BENCH, (*BENCH, "-np", "2")])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(arguments):
    reading, writing = os.pipe()
    os.close(reading)  # as head does after its last line
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hvd", *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    finally:
        os.close(writing)
    assert done.returncode in (128 + signal.SIGPIPE, -signal.SIGPIPE)
    assert done.stderr == ""


def test_output_that_a_full_disk_does_not_take_is_told():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "hvd", "--environment"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (1, "hvd: the output cannot be written: No space left on device\n")


def test_the_script_is_the_module():
    script = Path(sys.executable).with_name("hvd")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == hvd.__version__


def test_import_brings_no_framework():
    code = "import hvd, sys; hvd.init(); assert hvd.size() == 1; assert not {'torch', 'numpy'} & sys.modules.keys()"
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


def test_exception_is_one_class():
    import hvd.torch
    from hvd.exceptions import HorovodInternalError

    assert hvd.torch.HorovodInternalError is HorovodInternalError and issubclass(HorovodInternalError, RuntimeError)
