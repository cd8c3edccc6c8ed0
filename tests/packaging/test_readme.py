"""README.md as a newcomer reads it: its programs run, its commands work as written, its links lead somewhere."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
# This very test is a part of tests/run.sh.
COMMANDS = [text for language, text in BLOCKS if language == "sh" and "tests/run.sh" not in text]


def the_block(language):
    (text,) = (text for block_language, text in BLOCKS if block_language == language)
    return text


@pytest.fixture
def dependencies():
    return {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("commands", COMMANDS, ids=lambda text: text.split()[0])
def test_commands(commands, root, succeed):
    output = succeed("bash", "-euc", commands, cwd=root, stdin=subprocess.DEVNULL)
    assert "WRONG" not in output
    assert all(float(percent) >= 96 for percent in re.findall(r"test accuracy (\S+)%", output))


def test_python_program(tmp_path, succeed, dependencies):
    (tmp_path / "train.py").write_text(the_block("python"))
    output = succeed("hvdrun", "-np", 4, "python", "train.py", cwd=tmp_path, env=dependencies)
    # On a busy machine hvdrun may report in between that a rank is late.
    assert re.search(r"^4 ranks, loss \d\.\d{3}$", output, re.MULTILINE)


def test_cpp_program(root, tmp_path, succeed, dependencies):
    (tmp_path / "allreduce.cc").write_text(the_block("cpp"))
    (tmp_path / "CMakeLists.txt").write_text((root / "examples/cpp/CMakeLists.txt").read_text())
    succeed("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={sys.prefix}")
    succeed("cmake", "--build", tmp_path / "build")
    assert succeed("hvdrun", "-np", 4, tmp_path / "build/allreduce", env=dependencies) == "2.5\n"


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)", README))
def test_links(target, root):
    assert (root / target).exists()


def test_fits_on_one_screen_of_reading():
    assert len(README.splitlines()) < 100
