"""Building hvd where something is missing."""

import os
import subprocess


def test_a_missing_compiler_is_named_with_what_to_install(root, tmp_path):
    command = ["cmake", "-S", root, "-B", tmp_path, "-G", "Ninja"]
    without = {**os.environ, "CXX": "/nowhere/g++"}
    done = subprocess.run(command, env=without, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    assert "hvd needs a C++ compiler" in words and "apt-get install g++" in words, done.stderr
