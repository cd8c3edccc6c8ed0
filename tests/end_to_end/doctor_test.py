"""hvd doctor: all is well here, and what is not well is named."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hvd.tools import doctor as doctor_module
from hvd.tools.doctor import kind_of_mpi, look_at_framework

SECTIONS = ["hvd", "frameworks", "machine", "backends"]


def test_hvdrun_asks_the_doctor_and_ranks_reach_each_other_in_every_way_within_a_job_too():
    job = {"HVD_RANK": "1", "HVD_SIZE": "2", "HVD_STORE": "127.0.0.1:1", "HVD_JOB_KEY": "0" * 64}
    done = subprocess.run(
        [Path(sys.prefix, "bin/hvdrun"), "--check-build"],
        env={**os.environ, **job, "HVD_SHARED_MEMORY": "0"},  # which does not keep shared memory from being tried
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [*SECTIONS, "no problems"]
    for way in ("shared memory", "TCP", "Open MPI", "MPICH"):
        assert re.search(rf"^    {way}: .*allreduce between two ranks: 8 bytes in ", done.stdout, re.MULTILINE), lines
    frameworks = dict(re.findall(r"^    (\w+): .*; import (hvd\.\w+)$", done.stdout, re.MULTILINE))
    # MXNet is not in the tests' environment: it has one of its own.
    expected = {"PyTorch": "torch", "TensorFlow": "tensorflow", "Keras": "keras", "JAX": "jax"}
    assert expected == {name: frameworks[name].removeprefix("hvd.") for name in expected}
    assert "    Keras: keras 3." in done.stdout
    assert ("  - MXNet: not installed" in lines) == (importlib.util.find_spec("mxnet") is None)


def test_findings_as_json(without_frameworks, capsys):
    assert doctor_module.main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == 0
    found = {(finding["section"], finding["name"]): finding for finding in report["findings"]}
    assert found["backends", "TCP"]["status"] == "ok"
    for library in ("CUDA driver", "NCCL"):
        assert found["backends", library]["text"]
    for name in ("library", "hvdrun", "benchmark"):
        assert os.path.exists(found["hvd", name]["text"])
    assert str(len(os.sched_getaffinity(0))) in found["machine", "CPUs"]["text"]


@pytest.mark.parametrize("package", ["tensorflow", "torch", "jax"])
def test_a_framework_that_does_not_load(package, tmp_path, monkeypatch):
    (tmp_path / f"{package}.py").write_text("raise ImportError('such a symbol is not there')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    finding = look_at_framework("the framework", f"hvd.{package}", package)
    assert finding.status == "problem" and "such a symbol is not there" in finding.advice


@pytest.mark.parametrize(
    ("package", "command"), [("absent", "pip install absent"), ("mxnet", "pip install mxnet==1.9.1 numpy==1.23.5")]
)
def test_a_framework_that_is_not_installed_comes_with_the_command_that_installs_one_that_works(
    package, command, monkeypatch
):
    monkeypatch.setattr(doctor_module, "version_of", lambda _: None)
    finding = look_at_framework("the framework", f"hvd.{package}", package)
    assert (finding.status, finding.advice) == ("note", f"hvd.{package} needs it: {command}")


def test_an_import_that_takes_too_long_is_given_up_after_a_time_that_is_named(tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(doctor_module, "IMPORT_SECONDS", 1)
    finding = look_at_framework("TensorFlow", "hvd.tensorflow", "tensorflow")
    assert finding.status == "problem" and re.search(r"not imported within \d+ s", finding.text)


@pytest.mark.parametrize(("load", "seconds"), [(0.0, 60), (4.0, 60), (12.0, 180), (1000.0, 600)])
def test_there_is_more_time_where_processes_outnumber_cpus(load, seconds, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert doctor_module.seconds_for(60) == seconds


@pytest.mark.parametrize(
    ("text", "kind", "version"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", "Open MPI", "Open MPI 4.1.4"),
        ("mpirun.real (OpenRTE) 4.0.3", "Open MPI", "Open MPI 4.0.3"),
        ("HYDRA build details:\n    Version:                                 4.0.2\n", "MPICH", "MPICH 4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 2023", "MPICH", "MPICH 2021.10"),
        ("mpirun: command of something else", None, ""),
    ],
)
def test_launchers_are_known_by_what_they_say(text, kind, version):
    assert kind_of_mpi(text) == (kind, version)


@pytest.fixture
def without_frameworks(monkeypatch):
    """Importing them takes seconds."""
    monkeypatch.setattr(doctor_module, "look_at_frameworks", lambda: iter(()))


def test_a_machine_without_mpi_is_told_so_in_plain_words(without_frameworks, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor_module.main([]) == 0
    written = capsys.readouterr().out
    assert "- MPI: no mpirun or mpiexec was found" in written
    assert "hvdrun does without" in written


def test_what_fails_is_shown_with_the_reason(without_frameworks, monkeypatch, capsys):
    monkeypatch.setenv("HVD_CHUNK_BYTES", "nonsense")
    assert doctor_module.main([]) == 1
    written = capsys.readouterr().out
    assert "! shared memory: two ranks did not reach each other" in written
    assert "HVD_CHUNK_BYTES" in written
    assert written.endswith("\nproblems: 4\n")


@pytest.mark.parametrize("name", ["HVD_TIMELINE", "HOROVOD_TIMELINE", "HVD_AUTOTUNE_LOG", "HOROVOD_AUTOTUNE_LOG"])
def test_self_tests_write_to_no_file_that_the_environment_names_for_jobs(name, monkeypatch):
    monkeypatch.setenv(name, "results of yesterday")
    assert name not in doctor_module.outside_job()


@pytest.mark.parametrize(
    "name", ["HVD_RANK", "HVD_PROCESS", "HVD_ELASTIC", "HOROVOD_ELASTIC", "HVD_SERVER", "HVD_SERVERS"]
)
def test_self_tests_know_nothing_of_the_job_in_which_the_doctor_runs(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert name not in doctor_module.outside_job()


@pytest.mark.parametrize("way", doctor_module.WAYS)
def test_ranks_reach_each_other_by_hvds_own_ways_also_where_mpi_is_asked_for(way, monkeypatch):
    monkeypatch.setenv("HVD_CPU_BACKEND", "mpi")
    finding = doctor_module.self_test(way, doctor_module.WAYS[way])
    assert finding.status == "ok", finding


def test_where_no_temporary_folder_can_be_made_that_is_a_finding(monkeypatch):
    def none(**_):
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", none)
    finding = doctor_module.try_two_ranks("TCP", ["hvdrun"], {})
    assert finding.status == "problem" and "No usable temporary directory" in finding.text
