import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def succeed():
    """Runs a command to its end and returns what it wrote; fails with that if it fails."""

    def run(*command, **options):
        command = [str(part) for part in command]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, timeout=1800, **streams, **options)
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def installed(tmp_path_factory, succeed):
    """hvd installed with CMake alone, and moved afterwards: nothing may remember where it was."""
    build = ROOT / "build" / "release"
    if not (build / "cmake_install.cmake").exists():
        pytest.skip("build/release is not built")
    prefix = tmp_path_factory.mktemp("install") / "first"
    succeed("cmake", "--install", build, "--prefix", prefix)
    return shutil.move(prefix, prefix.with_name("moved"))
