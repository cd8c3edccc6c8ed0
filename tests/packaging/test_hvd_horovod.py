"""The distribution hvd-horovod: what is in it, that it installs by itself, and that it does not share its name."""

import email
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

SOURCE = pathlib.Path("bindings/python/horovod")


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory, succeed):
    folder = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, root / SOURCE)
    succeed(*command)
    (path,) = folder.glob("hvd_horovod-*.whl")
    return path


@pytest.fixture(scope="module")
def installed_horovod(wheel, tmp_path_factory, succeed):
    folder = tmp_path_factory.mktemp("installed")
    options = ("--no-deps", "--no-index", "--target", folder)
    succeed(sys.executable, "-m", "pip", "install", *options, wheel)
    return folder


def run(code, *folders):
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment)


def test_the_wheel_is_pure_and_complete(wheel, root):
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = [path.relative_to(root / SOURCE) for path in (root / SOURCE / "horovod").rglob("*.py")]
    assert len(sources) > 20 and {str(path) for path in sources} <= set(names)
    assert "horovod/py.typed" in names
    assert all(name.startswith(("horovod/", "hvd_horovod-")) for name in names)


def test_metadata(wheel, root):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
        entry_points = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    version = re.search(r"project\(hvd VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())[1]
    assert (metadata["Name"], metadata["Version"]) == ("hvd-horovod", version)
    assert set(metadata.get_all("Requires-Dist")) == {f"hvd=={version}", "PyYAML"}
    assert "horovodrun = horovod.runner.launch:run_commandline" in entry_points


def test_the_command_that_is_installed(installed_horovod, succeed):
    environment = {**os.environ, "PYTHONPATH": f"{installed_horovod}:{os.environ.get('PYTHONPATH', '')}"}
    command = (sys.executable, installed_horovod / "bin" / "horovodrun")
    assert succeed(*command, "--version", env=environment) == "0.28.1\n"
    code = "import horovod, hvd; hvd.init(); print(horovod.__file__, hvd.size(), flush=True)"
    output = succeed(*command, "-np", 2, sys.executable, "-c", code, env=environment)
    assert output == f"{installed_horovod}/horovod/__init__.py 2\n" * 2


def claim_the_name(folder, files):
    described = folder / "horovod-0.28.1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    (described / "RECORD").write_text("".join(f"{file},,\n" for file in ["horovod-0.28.1.dist-info/METADATA", *files]))


def test_beside_the_real_one_it_says_so(installed_horovod, tmp_path):
    claim_the_name(tmp_path, ["horovod/__init__.py"])
    done = run("import horovod.torch", installed_horovod, tmp_path)
    assert done.returncode == 1
    assert (
        "ImportError: the package horovod belongs to two distributions: horovod 0.28.1 and hvd-horovod" in done.stderr
    )
    assert "pip uninstall horovod hvd-horovod" in done.stderr


def test_a_distribution_that_only_bears_the_name_is_no_other_owner(installed_horovod, tmp_path):
    claim_the_name(tmp_path, [])
    done = run("import horovod; print(horovod.__version__)", installed_horovod, tmp_path)
    assert (done.returncode, done.stdout) == (0, "0.28.1\n"), done.stderr
