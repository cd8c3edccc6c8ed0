"""Who keeps the others waiting: said by hvdrun of a job that stalls, fails or takes too long; asked by hvd stacks; and
what hvd top shows of one that runs."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from timeouts import wait_until

TIMEOUT = 300

# argv: what rank 1 does after ten operations: sleep for so many seconds, or exit once a file is there.
SCRIPT = """
import os, sys, time
import arrays, hvd

def load_batch():
    what = sys.argv[1]
    if what == "exit":
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        os._exit(3)
    time.sleep(float(what))

hvd.init()
for step in range(10):
    arrays.allreduce([1.0], "gradient")
print("ready", flush=True)
if hvd.rank() == 1:
    load_batch()
arrays.allreduce([1.0], "last")
hvd.shutdown()
"""

# Rank 1 comes last to every operation.
LOOP = """
import time, arrays, hvd
hvd.init()
for step in range(100000):
    if hvd.rank() == 1 and step > 100:
        time.sleep(0.03)  # longer than a busy machine keeps the other rank from its CPU, and no reason to end the lock
    arrays.allreduce([1.0] * 1000, "x")
    if step == 100:
        print("ready", flush=True)
"""

BEHIND = r"rank 1 \(host \S+\) has not submitted allreduce 'allreduce.last' \(operation 11 of set 0\), "
BEHIND += r"for which rank 0 has waited \d+\.\d s"
PLACE = r"; it is at script.py:\d+ in load_batch"


@pytest.fixture
def start(hvdrun, tmp_path):
    """Starts a job of two ranks that have come as far as "ready"; what there still is after the test is ended."""
    started = []

    def start_and_return(script, *arguments, options=("-np", 2), before=(), **variables):
        file = tmp_path / "script.py"
        file.write_text(script)
        words = [*before, hvdrun, *options, sys.executable, "-u", file, *arguments]
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        started.append(process)
        size = options[options.index("-np") + 1]
        assert [process.stdout.readline() for _ in range(size)] == ["ready\n"] * size
        return process

    yield start_and_return
    for process in started:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=300)
        process.kill()
        process.communicate()


def ask(*arguments):
    command = [sys.executable, "-m", "hvd", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)


def await_last_operation(process):
    """Until rank 0 waits in it."""
    wait_until(lambda: "allreduce 'allreduce.last'" in ask("stacks", process.pid).stdout)


def sockets_of(pid):
    with open("/proc/net/unix") as file:
        return [line for line in file if line.rstrip().endswith(f"@hvd-job-{os.geteuid()}-{pid}")]


def test_a_stall_is_told_once_with_the_line_of_the_script(start):
    process = start(SCRIPT, 6, HVD_STALL_CHECK_TIME_SECONDS="1")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert len(re.findall(f"hvdrun: the job is stalled: {BEHIND}{PLACE}\n", errors)) == 1, errors
    # On a busy machine one rank may take a second longer than the other to come.
    told = [line for line in errors.splitlines() if "hvdrun:" in line and "has not called hvd.init()" not in line]
    assert len(told) == 1, errors


# The last operation before the stall has failed alone: the job goes on.
AFTER_FAILURE = """
import time, arrays, hvd

def load_batch():
    time.sleep(6)

hvd.init()
try:
    arrays.allreduce([1.0] * (3 + hvd.rank()), "differs")
except hvd.HorovodInternalError:
    print("ready", flush=True)
if hvd.rank() == 1:
    load_batch()
arrays.allreduce([1.0], "last")
hvd.shutdown()
"""


def test_a_stall_behind_an_operation_that_failed_alone_is_told(start):
    process = start(AFTER_FAILURE, HVD_STALL_CHECK_TIME_SECONDS="1")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    behind = BEHIND.replace("operation 11", "operation 2")
    assert len(re.findall(f"hvdrun: the job is stalled: {behind}{PLACE}\n", errors)) == 1, errors


# argv: a file, which rank 1 makes before it sleeps. Until then rank 0 does not wait for it.
LATE = """import hvd, os, pathlib, sys, time
come = pathlib.Path(sys.argv[1])
if os.environ["HVD_RANK"] == "1":
    come.touch()
    time.sleep(5)
while not come.exists():
    time.sleep(0.01)
hvd.init()
"""


def test_a_rank_that_does_not_come_is_told_with_the_line_of_the_script(hvdrun, tmp_path):
    file = tmp_path / "script.py"
    file.write_text(LATE)
    done = subprocess.run(
        [hvdrun, "-np", "2", sys.executable, file, tmp_path / "come"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env={**os.environ, "HVD_STALL_CHECK_TIME_SECONDS": "1"},
    )
    assert done.returncode == 0, done.stderr
    sentence = r"rank 1 \(host \S+\) has not called hvd.init\(\) yet, in which rank 0 has waited \d\.\d s"
    assert re.findall(f"hvdrun: the job is stalled: {sentence}; it is at script.py:5 in <module>\n", done.stderr), done


# Rank 1 has done nothing in the set yet.
FIRST_OF_SET = """
import time, arrays, hvd
hvd.init()
some = hvd.add_process_set([0, 1])
print("ready", flush=True)
if hvd.rank() == 1:
    time.sleep(6)
if hvd.rank() < 2:
    arrays.allreduce([1.0], "first", process_set=some.process_set_id)
hvd.shutdown()
"""


def test_a_stall_in_the_first_operation_of_a_process_set_is_told(start):
    process = start(FIRST_OF_SET, options=("-np", 3), HVD_STALL_CHECK_TIME_SECONDS="1")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    sentence = r"waiting for rank 1 on \S+ \(pid \d+\) to submit allreduce 'allreduce.first' \(\d\.\d s\)"
    assert len(re.findall(f"hvdrun: the job is stalled: {sentence}\n", errors)) == 1, errors


def test_a_rank_that_is_stopped_inside_a_locked_schedule_is_told(start):
    process = start(LOOP, HVD_STALL_CHECK_TIME_SECONDS="1")
    pid = int(re.search(r"rank 1 .*?pid (\d+)", ask("stacks", process.pid).stdout)[1])
    os.kill(pid, signal.SIGSTOP)
    sentence = r"hvdrun: the job is stalled: rank 1 \(host \S+\) is stopped, as by SIGSTOP or Ctrl-Z; "
    # On a busy machine a rank may have been told to be late before.
    line = next((line for line in process.stderr if "is stopped, as by" in line), "")
    os.kill(pid, signal.SIGCONT)
    assert re.match(sentence + r"rank 0 has waited \d\.\d s in allreduce 'allreduce.x'", line), line


# One rank has joined, and waits; the others take their time, but less than counts as a stall.
JOINED = """
import time, numpy, hvd
hvd.init()
print("ready", flush=True)
if hvd.rank() == 0:
    hvd.join()
else:
    for step in range(2):
        if hvd.rank() == 1:
            time.sleep(3.5)
        hvd.allreduce(numpy.ones(3), name="g")
    hvd.join()
"""


def test_a_rank_that_has_joined_makes_no_stall(start):
    process = start(JOINED, options=("-np", 3), HVD_STALL_CHECK_TIME_SECONDS="6")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0 and errors == "", errors


AGAIN = """
import time, hvd
hvd.init()
hvd.shutdown()
print("ready", flush=True)
if int(__import__("os").environ["HVD_RANK"]) == 1:
    time.sleep(4)
hvd.init()
"""


def test_a_rank_that_does_not_come_again_is_told(start):
    process = start(AGAIN, HVD_STALL_CHECK_TIME_SECONDS="1")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    sentence = r"rank 1 \(host \S+\) has not called hvd.init\(\) yet, in which rank 0 has waited \d\.\d s; it is at"
    assert len(re.findall(f"hvdrun: the job is stalled: {sentence} script.py:7", errors)) == 1, errors


def test_a_failure_is_told_with_what_the_others_waited_for(start, tmp_path):
    process = start(SCRIPT, "exit", tmp_path / "enough")
    await_last_operation(process)
    (tmp_path / "enough").touch()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert "hvdrun: rank 1 failed first: exit code 3" in errors
    assert re.search(f"\nhvdrun: the others: .*\nhvdrun: when it failed: {BEHIND}\n", errors), errors


def test_a_job_that_takes_too_long_is_told_with_the_line_of_the_script(start):
    process = start(SCRIPT, 600, options=("-np", 2, "--timeout", 25))
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 124
    assert re.search(f"hvdrun: when it failed: {BEHIND}{PLACE}\n", errors), errors


def test_where_nobody_is_behind_nothing_is_said_of_it(hvdrun):
    done = subprocess.run([hvdrun, "-np", "2", "sh", "-c", "exit $HVD_RANK"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "when it failed" not in done.stderr


def test_stacks_of_a_running_job(start):
    process = start(SCRIPT, 600)
    await_last_operation(process)
    done = ask("stacks", process.pid)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("\nrank 1 (")
    assert "allreduce 'allreduce.last'" in first and "in <module>" in first
    assert re.match(r"host \S+\): pid \d+, at script.py:\d+ in load_batch, 10 operations so far", second)
    assert 'script.py", line' in second and "in load_batch" in second


def test_a_stopped_rank_is_waited_for_no_longer_than_half_a_second(start):
    process = start(LOOP)
    pid = int(re.search(r"rank 1 .*?pid (\d+)", ask("stacks", process.pid).stdout)[1])
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    done = ask("stacks", process.pid)
    os.kill(pid, signal.SIGCONT)
    assert re.search(r"rank 1 \(host \S+\): pid \d+, stopped", done.stdout), done.stdout


def test_top_shows_rates_and_the_straggler(start):
    process = start(LOOP)
    # On a busy machine the lock may just have ended, or the second may have too few calls that are measured.
    for _ in range(30):
        done = ask("top", "--once", process.pid)
        assert done.returncode == 0, done.stderr
        title, _, headings, *rows = done.stdout.splitlines()
        assert title.startswith(f"job of hvdrun {process.pid}, 2 ranks")
        assert headings.split()[:2] == ["rank", "host"]
        first, second = (row.split(None, 9) for row in rows)
        is_waiting = float(first[5]) > 50 > float(second[5])
        if first[6] == "locked" and is_waiting and len(first) == 9 and second[9:] and second[9].startswith("<-"):
            break
    else:
        pytest.fail(done.stdout)
    assert 0 < float(first[2]) < 250 and 0 < float(first[3]) < 250  # steps, operations


def test_top_goes_on_until_the_job_ends_and_then_says_so(start):
    process = start(LOOP)
    top = subprocess.Popen(
        [sys.executable, "-m", "hvd", "top", str(process.pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = 0
    while seen < 2:
        seen += top.stdout.readline().startswith("job of")
    assert len(sockets_of(process.pid)) > 0
    process.terminate()
    process.wait(timeout=TIMEOUT)
    _, errors = top.communicate(timeout=TIMEOUT)
    assert top.returncode == 1
    assert errors.startswith("hvd top: ")
    assert sockets_of(process.pid) == []


def test_a_job_that_is_not_there_is_an_error():
    done = ask("stacks", 1)
    assert done.returncode == 1
    assert done.stderr.startswith("hvd stacks: no hvdrun with process number 1")


def test_over_two_hosts(start, lab):
    options = ["-np", 2, "-H", "h1:1,h2:1", "--rsh", f"{lab} on"]
    process = start(SCRIPT, 6, options=options, before=[lab, 2, "none"], HVD_STALL_CHECK_TIME_SECONDS="1")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    expected = BEHIND.replace(r"\S+", "h2")
    assert len(re.findall(f"hvdrun: the job is stalled: {expected}{PLACE}\n", errors)) == 1, errors
