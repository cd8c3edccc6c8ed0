"""For all Python tests."""

import os
import pathlib
import signal
import subprocess

import pytest

NETLAB = pathlib.Path(__file__).parent / "support/netlab.sh"

# Whoever starts a command in the background of a shell script has it ignore Ctrl-C, and so would every program that a
# test starts. Signals that have a handler here have their default there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def lab():
    """netlab.sh, where this machine permits what it does: whoever is root and may have namespaces has it run."""
    if os.geteuid() != 0:
        pytest.skip("netlab.sh needs root")
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"namespaces are not permitted: {tried.stderr.decode().strip()}")
    return NETLAB
