"""A process that hvdrun has started answers a signal with its Python stacks, wherever it hangs."""

import os
import subprocess
import sys
import time

import pytest

SCRIPT = """
import sys, threading, time
from hvd import stacks

stacks.announce()

def hang():
    print("ready", flush=True)
    time.sleep(100)

threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
hang()
"""


def memory(name="hvd-stacks"):
    file = os.memfd_create(name, 0)
    os.ftruncate(file, 65536)
    return file


def start(script, file, **options):
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "HVD_FLIGHT_STACKS": str(file)},
        pass_fds=[file],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def announcement(file):
    return os.pread(file, 1024, 0).split(b"\n")[0].decode().split(" ", 4)


def answer(file):
    text = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and b"<module>" not in text:
        text = os.pread(file, 65536, 1024).rstrip(b"\0")
        time.sleep(0.01)
    return text.decode()


def test_process_announces_itself_and_answers():
    file = memory()
    with start(SCRIPT, file) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            word, version, number, pid, package = announcement(file)
            assert (word, version, int(pid)) == ("hvd-stacks", "1", process.pid)
            assert package.endswith("/hvd")
            assert int(number) > 34
            for _ in range(2):
                os.lseek(file, 1024, os.SEEK_SET)
                os.pwrite(file, bytes(8192), 1024)
                os.kill(process.pid, int(number))
                text = answer(file)
                assert " in hang\n" in text
                assert text.count("hread 0x") == 2
            assert process.poll() is None
        finally:
            process.kill()
    os.close(file)


def test_late_signal_does_not_kill_a_process_that_ends():
    """Python takes its handler back when it ends; what is below must not be the default."""
    file = memory()
    script = (
        "import faulthandler, os\n"
        "from hvd import stacks\n"
        "stacks.announce()\n"
        f"number = int(os.pread({file}, 1024, 0).split()[2])\n"
        "assert faulthandler.unregister(number)\n"
        "os.kill(os.getpid(), number)\n"
        "print('alive')\n"
    )
    with start(script, file) as process:
        assert process.communicate()[0] == "alive\n"
        assert process.returncode == 0
    os.close(file)


def test_children_do_not_have_the_file():
    file = memory()
    list_it = f"subprocess.run(['ls', '/proc/self/fd/{file}'], close_fds=False, capture_output=True)"
    script = f"import subprocess\nfrom hvd import stacks\nstacks.announce()\nprint({list_it}.returncode)\n"
    with start(script, file) as process:
        assert process.communicate()[0] != "0\n"
    os.close(file)


@pytest.mark.parametrize("name", [None, "something-else"])
def test_another_file_is_left_alone(name, tmp_path):
    file = memory(name) if name else os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    script = f"import fcntl\nfrom hvd import stacks\nstacks.announce()\nprint(fcntl.fcntl({file}, fcntl.F_GETFD))\n"
    with start(script, file) as process:
        assert process.communicate()[0] == "0\n"
    assert os.pread(file, 10, 0).strip(b"\0") == b""
    os.close(file)


def test_nothing_happens_without_the_variable():
    for value in ("", "x", "12345"):
        environment = {**os.environ, "HVD_FLIGHT_STACKS": value}
        subprocess.run([sys.executable, "-c", "from hvd import stacks; stacks.announce()"], env=environment, check=True)
