"""A rank that dies is heard of although a child that it had forked lives on with copies of its connections."""

import subprocess
import sys
import textwrap

SCRIPT = """
    import os, signal, sys, time
    import arrays, hvd
    from hvd.exceptions import HorovodInternalError

    hvd.init()
    arrays.allreduce([1.0] * 4, name="warm")
    if hvd.rank() == 1:
        if os.fork() == 0:
            os.setsid()  # not even the launcher's signal to the group reaches it
            time.sleep(15)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        while True:
            arrays.allreduce([1.0] * 4, name="loop")
    except HorovodInternalError as error:
        print(f"heard after {time.monotonic() - start:.2f} s: {error}", flush=True)
        sys.exit(0 if time.monotonic() - start < 1 and "rank 1" in str(error) else 3)
"""


def test_a_forked_child_does_not_hide_the_death_of_its_parent(hvdrun, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [hvdrun, "-np", "2", sys.executable, str(script)], capture_output=True, text=True, timeout=360
    )
    assert "heard after" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 128 + 9, done.stdout + done.stderr
