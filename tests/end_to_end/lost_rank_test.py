"""A rank that dies is heard of although a child that it had forked lives on with copies of its connections."""

import re
import subprocess
import sys
import textwrap

import pytest

from timeouts import at_most

SCRIPT = """
    import os, pathlib, signal, sys, time
    import arrays, hvd
    from hvd.exceptions import HorovodInternalError

    hvd.init()
    arrays.allreduce([1.0] * 4, name="warm")
    if hvd.rank() == 1:
        child = os.fork()
        if child == 0:
            os.setsid()  # not even the launcher's signal to the group reaches it
            time.sleep(60)
            os._exit(0)
        pathlib.Path(sys.argv[1]).write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        while True:
            arrays.allreduce([1.0] * 4, name="loop")
    except HorovodInternalError as error:
        print(f"heard after {time.monotonic() - start:.2f} s: {error}", flush=True)
        os.kill(int(pathlib.Path(sys.argv[1]).read_text()), signal.SIGKILL)  # whom hvdrun would let go on
        sys.exit(0)
"""


@pytest.mark.timed
def test_a_forked_child_does_not_hide_the_death_of_its_parent(hvdrun, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [hvdrun, "-np", "2", "--grace", "40", sys.executable, str(script), str(tmp_path / "child")],
        capture_output=True,
        text=True,
        timeout=360,
    )
    heard = re.search(r"heard after (\S+) s: .*rank 1\b", done.stdout)
    assert heard and float(heard[1]) < at_most(1), done.stdout + done.stderr
    assert done.returncode == 128 + 9, done.stdout + done.stderr
