"""Common to the tests of whole jobs.

A shell starts background jobs with Ctrl-C ignored, and programs inherit that: these tests send it on purpose.
"""

import os
import pathlib
import shutil
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def hvdrun():
    path = os.environ.get("HVDRUN") or shutil.which("hvdrun")
    assert path, "hvdrun is neither on the PATH nor named by the variable HVDRUN"
    return str(pathlib.Path(path).resolve())
