"""The wheel: one file that brings everything, to a machine without a compiler."""

import os
import pathlib
import shutil
import stat
import sys
import zipfile

import pytest


@pytest.fixture(scope="module")
def wheel(root):
    """The one that .ci/setup.sh has built and installed here."""
    found = list((root / "build/wheel").glob("hvd-*.whl"))
    assert len(found) == 1, f"build/wheel has {len(found)} wheels of hvd: run .ci/setup.sh build check"
    return found[0]


def test_the_wheel_brings_the_python_package_the_launcher_and_the_cpp_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
    names = [entry.filename for entry in entries]
    assert not [entry.filename for entry in entries if stat.S_ISLNK(entry.external_attr >> 16)]
    data = f"{'-'.join(wheel.name.split('-')[:2])}.data"
    for wanted in (
        "hvd/__init__.py",
        "hvd/torch/__init__.py",
        "hvd_torch_autoload/__init__.py",
        f"{data}/scripts/hvdrun",
        f"{data}/scripts/hvd-bench",
        f"{data}/scripts/hvd-simulate",
        f"{data}/data/lib/libhvd.so.0",
        f"{data}/data/include/hvd.hpp",
        f"{data}/data/lib/cmake/hvd/hvdConfig.cmake",
    ):
        assert wanted in names
    assert [name for name in names if name.startswith("hvd/_native") and name.endswith(".so")]
    assert [name for name in names if name.endswith("LICENSE")]
    allowed = ("hvd/", "hvd_torch_autoload/", f"{data}/", f"{data.removesuffix('.data')}.dist-info/")
    assert not [name for name in names if not name.startswith(allowed)]


def test_the_wheel_runs_in_a_fresh_environment_without_a_compiler(wheel, tmp_path, succeed):
    fresh = tmp_path / "fresh"
    succeed(sys.executable, "-m", "venv", "--without-pip", fresh)
    succeed(sys.executable, "-m", "pip", "--python", fresh / "bin/python", "install", "--no-deps", "--no-index", wheel)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to(shutil.which("sh"))
    dependencies = {"PATH": f"{fresh}/bin:{tools}", "HOME": os.environ.get("HOME", "/")}
    program = "import hvd; hvd.init(); print(hvd.size(), flush=True); hvd.shutdown()"
    output = succeed(fresh / "bin/hvdrun", "-np", 2, "python", "-c", program, env=dependencies, cwd=tmp_path)
    assert output == "2\n2\n"
    output = succeed(fresh / "bin/hvd", "bench", "-np", 2, "--sizes", 8, "--seconds", 0, env=dependencies, cwd=tmp_path)
    assert "2 ranks on 1 host" in output
    cmake_dir = succeed(fresh / "bin/python", "-m", "hvd", "--cmake-dir", env=dependencies, cwd=tmp_path).strip()
    assert pathlib.Path(cmake_dir) == fresh / "lib/cmake/hvd"
