"""hvdrun with small shell and Python programs: places, output, input, signals, and how jobs end."""

import contextlib
import os
import pathlib
import pty
import re
import resource
import select
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest

from signals import await_taken
from timeouts import at_most, wait_until

pytestmark = pytest.mark.quick

TIMEOUT = 300


@pytest.fixture
def run(hvdrun):
    """Runs hvdrun to its end; output as text."""

    def run_to_end(*arguments, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        if "input" in options:
            del options["stdin"]
        return subprocess.run(
            [hvdrun, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT, **options
        )

    return run_to_end


@pytest.fixture
def start(hvdrun):
    """Starts hvdrun and leaves it running; what is still there after the test is killed."""
    started = []

    def start_and_return(*arguments, **options):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen([hvdrun, *map(str, arguments)], **{**streams, **options})
        started.append(process)
        return process

    yield start_and_return
    for process in started:
        process.kill()
        process.communicate()


def python(code):
    return [sys.executable, "-u", "-c", code]


def read_lines(stream, count):
    return [stream.readline().rstrip("\n") for _ in range(count)]


def stat_fields(pid):
    """State, parent, group, ... as in /proc/<pid>/stat; nothing for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def state_of(pid):
    return (stat_fields(pid) or "X")[0]


def is_alive(pid):
    return state_of(pid) not in "ZX"


# --- places and variables ---


def test_every_rank_finds_its_place_under_both_names(run):
    names = [
        prefix + name
        for prefix in ("HVD_", "HOROVOD_")
        for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    ]
    done = run("-np", 3, "sh", "-c", "echo " + " ".join(f"${name}" for name in names))
    assert done.returncode == 0, done.stderr
    expected = [" ".join([str(rank), "3", str(rank), "3", "0", "1"] * 2) for rank in range(3)]
    assert sorted(done.stdout.splitlines()) == expected
    assert done.stderr == ""


def test_every_rank_has_torchruns_variables_whatever_was_set(run):
    environment = {**os.environ, "RANK": "7", "MASTER_PORT": "1"}
    show = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT"
    done = run("-np", 2, "sh", "-c", show, env=environment)
    first, second = sorted(done.stdout.splitlines())
    port = first.split()[-1]
    assert (first, second) == (f"0 2 0 2 0 127.0.0.1 {port}", f"1 2 1 2 0 127.0.0.1 {port}")
    assert int(port) > 1023
    assert done.stderr == "hvdrun: overrides these variables of your environment: RANK=7 MASTER_PORT=1\n"
    chosen = run("-np", 1, "-x", "MASTER_PORT", "sh", "-c", "echo $MASTER_PORT", env=environment)
    assert chosen.stdout == "1\n"


def test_another_launchers_variables_in_a_rank_are_an_error_and_nothing_else(run):
    program = "import os; os.environ['WORLD_SIZE'] = '7'\nimport hvd\nhvd.init()\n"
    done = run("-np", 2, sys.executable, "-c", program)
    assert done.returncode == 1
    traceback, _ = done.stderr.split("hvdrun: rank ", 1)
    told = "ValueError: this process is one of 2 by HVD_SIZE=2, and one of 7 by WORLD_SIZE=7: "
    for text in traceback.split("Traceback (most recent call last):\n")[1:]:
        assert text.startswith(f'  File "<string>", line 3, in <module>\n{told}'), done.stderr
        assert "Exception ignored" not in text


def test_all_ranks_share_one_store_and_one_fresh_key(run):
    def rendezvous():
        done = run("-np", 3, "sh", "-c", "echo $HVD_STORE $HVD_JOB_KEY $HVD_HOSTNAME $HOROVOD_HOSTNAME")
        (line,) = set(done.stdout.splitlines())
        return line.split()

    store, key, hostname, twin = rendezvous()
    assert re.fullmatch(r"tcp:127\.0\.0\.1:\d+", store)
    assert re.fullmatch(r"[0-9a-f]{64}", key)
    assert hostname == twin == os.uname().nodename
    assert rendezvous()[1] != key


def test_the_key_is_on_no_command_line(run):
    code = """
import glob, os
key = os.environ["HVD_JOB_KEY"].encode()
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        assert key not in open(path, "rb").read(), path
    except (FileNotFoundError, ProcessLookupError):
        pass
"""
    done = run("-np", 2, *python(code))
    assert done.returncode == 0, done.stderr


def test_variables_are_inherited_set_and_passed_on(run):
    environment = {**os.environ, "FROM_OUTSIDE": "1", "PASSED": "two words", "HVD_RANK": "77", "HVD_SIZE": "78"}
    done = run(
        *("-np", 1, "-x", "PASSED", "-x", "SET=a=b c", "-x", "EMPTY=", "-x", "NOT_THERE"),
        *("sh", "-c", 'echo "$FROM_OUTSIDE|$PASSED|$SET|${EMPTY-unset}|${NOT_THERE-unset}|$HVD_RANK|$HVD_SIZE"'),
        env=environment,
    )
    assert done.stdout == "1|two words|a=b c||unset|0|1\n"
    assert "NOT_THERE" in done.stderr


def test_what_is_typed_wins_over_the_environment(run):
    environment = {**os.environ, "HVD_LEASE": "9"}
    say = ["sh", "-c", "echo $HVD_LEASE"]
    assert run("-np", 1, *say, env=environment).stdout == "9\n"
    assert float(run("-np", 1, "--lease", "5", *say, env=environment).stdout) == 5


def test_the_programs_arguments_are_left_alone(run):
    done = run("-np", 1, "printf", "%s|", "-np", "-x", "--help", "", "a b", "--")
    assert done.stdout == "-np|-x|--help||a b|--|"


def test_ranks_get_signals_descriptors_and_limits_as_hvdrun_found_them(run):
    # But for the two of the flight recorder.
    code = """
import os, resource, signal

def is_of_hvdrun(fd):  # or gone: that of the listing itself
    path = "/proc/self/fd/" + fd
    return not os.path.lexists(path) or os.readlink(path).startswith("/memfd:hvd-")

print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], signal.pthread_sigmask(signal.SIG_BLOCK, []),
      sorted(int(fd) for fd in os.listdir("/proc/self/fd") if not is_of_hvdrun(fd)),
      [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn"))])
"""
    outside = subprocess.run(python(code), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    assert run("-np", 1, *python(code)).stdout == outside.stdout


def test_ranks_inherit_what_hvdrun_was_given(run, tmp_path):
    given = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR) for number in range(5)]
    done = run("-np", 2, "readlink", *(f"/proc/self/fd/{fd}" for fd in given), pass_fds=given)
    assert done.stdout.splitlines() == [str(tmp_path / str(number)) for number in range(5)] * 2


def test_ranks_lead_process_groups_of_their_own_in_one_session(run):
    code = "import os; print(os.getpid() == os.getpgrp(), os.getsid(0))"
    assert run("-np", 2, *python(code)).stdout.splitlines() == [f"True {os.getsid(0)}"] * 2


# --- the command line ---


def test_version_and_help(run):
    assert re.fullmatch(r"hvdrun \d+\.\d+\.\d+\n", run("--version").stdout)
    text = run("--help").stdout
    for option in (
        "-np N",
        "--host HOST:N",
        "-x,--env VAR",
        "--output-filename",
        "--tag-output",
        "--grace",
        "--verbose",
        "Example",
    ):
        assert option in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        (["-H", "localhost:3"], 3),
        (["-np", 2, "-H", "localhost:3"], 2),
        (["-np", 4, "-host", "localhost:2,127.0.0.1:2"], 4),
        (["--num-proc=2"], 2),
    ],
)
def test_the_number_of_ranks(run, arguments, size):
    assert run(*arguments, "echo", "x").stdout == "x\n" * size


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ls"], 2, "-np N"),
        (["-np", 2], 2, "which program"),
        (["-np", "x", "ls"], 2, "x"),
        (["-np", 8, "-H", "localhost:4", "ls"], 2, "-np 8 but only 4 slots; raise it with -H localhost:8"),
        (["-np", 1, "-H", "localhost:", "ls"], 2, "number of slots"),
        (["-np", 2, "--no-such-option", "ls"], 2, "--no-such-option"),
        (["-np", 2, "no-such-program"], 127, "not found in PATH: no-such-program"),
        (["-np", 2, "./no-such-program"], 127, "not found: ./no-such-program"),
        (["-np", 2, "/etc/passwd"], 126, "/etc/passwd is not executable"),
        (["-np", 2, "/etc"], 126, "directory"),
        (["-np", 2, "--output-filename", "/dev/null/x", "ls"], 2, "/dev/null/x"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_starts(run, arguments, code, message):
    done = run(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(run, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo $HVD_RANK")
    script.chmod(0o755)
    assert run("-np", 1, script).stdout == "0\n"


def test_a_program_that_cannot_be_executed_after_all_is_a_failed_rank(run, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = run("-np", 1, script)
    assert done.returncode == 127
    assert f"cannot execute {script}" in done.stderr


# --- output and input ---


def test_output_goes_where_it_came_from(run):
    done = run("-np", 1, "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_lines_of_chatty_ranks_do_not_mix(run):
    code = """
import os, random, sys
rank = os.environ["HVD_RANK"]
text = "".join(f"{rank} {i} " + rank * random.randrange(3000) + " end\\n" for i in range(2000))
while text:
    size = random.randrange(1, 20000)
    os.write(1, text[:size].encode())
    text = text[size:]
"""
    lines = run("-np", 4, *python(code)).stdout.splitlines()
    seen = {str(rank): 0 for rank in range(4)}
    for line in lines:
        match = re.fullmatch(r"(\d) (\d+) (\d*) end", line)
        assert match, line[:200]
        rank, number, filling = match.groups()
        assert set(filling) <= {rank}
        assert int(number) == seen[rank], "lines of one rank are out of order"
        seen[rank] += 1
    assert set(seen.values()) == {2000}


def test_a_traceback_of_several_ranks_is_shown_once(run):
    text = 'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: bad\n'
    done = run("-np", 3, "sh", "-c", f"printf '{text}' >&2; echo here; sleep 3")
    assert done.returncode == 0
    # More than once, if a busy machine lets a rank come a second after another.
    numbers = {"ranks 0-2": 3, "ranks 0, 1": 2, "ranks 1, 2": 2, "ranks 0, 2": 2}
    headers = re.findall(r"^hvdrun: identical traceback from (ranks .*):$", done.stderr, re.MULTILINE)
    assert sum(numbers[header] - 1 for header in headers) + done.stderr.count(text) == 3, done.stderr
    tagged = run("-np", 3, "--tag-output", "sh", "-c", f"printf '{text}' >&2").stderr
    assert tagged.count("ValueError: bad\n") == 3, tagged


def test_output_without_a_last_line_end_is_complete(run):
    done = run("-np", 2, "sh", "-c", "printf 'rank %s' $HVD_RANK")
    assert done.stdout in ("rank 0rank 1", "rank 1rank 0")
    tagged = run("-np", 2, "--tag-output", "sh", "-c", "printf 'rank %s' $HVD_RANK")
    assert sorted(tagged.stdout.splitlines()) == ["[0]<stdout>:rank 0", "[1]<stdout>:rank 1"]


@pytest.mark.timed
def test_a_single_ranks_output_is_shown_at_once(start):
    process = start("-np", 1, "sh", "-c", "printf prompt; sleep 60")
    begin = time.monotonic()
    assert process.stdout.read(6) == "prompt"
    assert time.monotonic() - begin < at_most(10)


def test_a_progress_bar_is_a_line_now_and_then_where_there_is_no_terminal(start):
    """The first state soon, the last one, and not the thousands between."""
    code = """
import sys, time
for percent in range(1000):
    sys.stderr.write(f"\\r {percent / 10}%")
    sys.stderr.flush()
    if percent == 0:
        input()
sys.stderr.write("\\r 100%\\n")
"""
    process = start("-np", 2, "--stdin", "all", *python(code), stdin=subprocess.PIPE)
    assert [process.stderr.readline() for _ in range(2)] == [" 0.0%\n"] * 2
    process.stdin.write("\n")
    process.stdin.flush()
    lines = process.stderr.read().splitlines()
    assert process.wait(TIMEOUT) == 0
    assert lines.count(" 100%") == 2 and len(lines) < 10


def test_tagged_output(run):
    done = run("-np", 2, "--tag-output", "sh", "-c", "echo a; echo b; echo c >&2")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:{x}" for rank in range(2) for x in "ab"]
    assert sorted(done.stderr.splitlines()) == [f"[{rank}]<stderr>:c" for rank in range(2)]


def test_output_files(run, tmp_path):
    folder = tmp_path / "some" / "logs"
    command = "echo out $HVD_RANK; echo err $HVD_RANK >&2"
    done = run("-np", 11, "--tag-output", "--output-filename", folder, "sh", "-c", command)
    assert len(done.stdout.splitlines()) == 11, "the terminal has it all as well"
    assert sorted(os.listdir(folder)) == [f"rank.{rank:02}" for rank in range(11)]
    for rank in range(11):
        assert (folder / f"rank.{rank:02}" / "stdout").read_text() == f"out {rank}\n"
        assert (folder / f"rank.{rank:02}" / "stderr").read_text() == f"err {rank}\n"


def test_a_full_disk_is_said_once_and_the_job_goes_on(run, tmp_path):
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0" / "stdout").symlink_to("/dev/full")
    done = run("-np", 2, "--output-filename", tmp_path, "sh", "-c", "echo a; echo b")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["a", "a", "b", "b"]
    assert done.stderr.count("No space left on device") == 1
    assert (tmp_path / "rank.1" / "stdout").read_text() == "a\nb\n"


def test_a_file_at_the_limit_of_ulimit_is_said_and_the_job_goes_on(run, tmp_path):
    limit = resource.RLIMIT_FSIZE
    command = "head -c 5000 /dev/zero; head -c 5000 /dev/zero > f"
    done = run(
        *("-np", 1, "--output-filename", tmp_path, "sh", "-c", command),
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(limit, (4096, resource.getrlimit(limit)[1])),
    )
    assert "File too large (this process may write files of 4096 bytes: ulimit -f); the job goes on" in done.stderr
    assert len(done.stdout) == 5000
    assert "rank 0 failed: exit code 153" in done.stderr, "for a rank the signal is what it was"


@pytest.mark.parametrize("limit", [20, 32])
def test_a_limit_of_open_files_that_is_too_low_is_said_before_the_start(run, limit):
    hard = (limit, limit)
    done = run("-np", 4, "true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, hard))
    assert done.returncode == 1
    assert re.search(rf"4 ranks on this host take \d+ open files of hvdrun, which may have {limit}: raise", done.stderr)


def test_a_hundred_megabytes_come_through(hvdrun):
    command = f"{hvdrun} -np 2 head -c 50000000 /dev/zero | wc -c"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout.strip() == "100000000"


def test_a_slow_reader_loses_nothing(start):
    process = start("-np", 2, "sh", "-c", "seq 1 400000")
    time.sleep(0.5)  # hvdrun's buffer is full by now, and the ranks are held up
    lines = process.stdout.read().splitlines()
    assert process.wait(TIMEOUT) == 0
    assert len(lines) == 800000
    assert sum(map(int, lines)) == 400000 * 400001


def test_rank_0_reads_hvdruns_input_and_the_others_nothing(run):
    done = run("-np", 3, "sh", "-c", "echo $HVD_RANK:$(cat)", input="hello")
    assert sorted(done.stdout.splitlines()) == ["0:hello", "1:", "2:"]


@pytest.mark.parametrize("descriptors", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_do_no_harm(hvdrun, descriptors):
    done = subprocess.run(
        ["sh", "-c", f"{hvdrun} -np 2 sh -c 'cat; echo x; echo y >&2' {descriptors}"], timeout=TIMEOUT
    )
    assert done.returncode == 0


@pytest.mark.timed
def test_a_reader_that_leaves_ends_the_job(hvdrun):
    command = f"{{ {hvdrun} -np 2 yes; echo $? >&2; }} | head -1"
    begin = time.monotonic()
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout == "y\n"
    assert done.stderr == "141\n"
    assert time.monotonic() - begin < at_most(2)


# --- how jobs end ---


def test_a_job_waits_for_its_last_rank(run):
    done = run("-np", 3, "sh", "-c", "sleep 0.$((HVD_RANK * 3)); echo $HVD_RANK")
    assert done.returncode == 0
    assert sorted(done.stdout.split()) == ["0", "1", "2"]


@pytest.mark.timed
def test_the_first_failure_decides_and_is_reported_last(run):
    command = 'if [ $HVD_RANK = 1 ]; then for i in $(seq 30); do echo "line $i" >&2; done; exit 7; else sleep 60; fi'
    begin = time.monotonic()
    done = run("-np", 3, "--grace", 0.2, "sh", "-c", command)
    assert time.monotonic() - begin < at_most(2)
    assert done.returncode == 7
    report = done.stderr.splitlines()[30:]
    assert re.fullmatch(r"hvdrun: rank 1 failed first: exit code 7 \(pid \d+, after \d+\.\d s\)", report[0])
    assert report[2:-1] == [f"    line {i}" for i in range(11, 31)]
    assert report[-1] == "hvdrun: the others: ranks 0, 2 terminated by hvdrun (SIGTERM)"


def test_a_rank_killed_by_a_signal(run):
    done = run("-np", 2, "sh", "-c", "[ $HVD_RANK = 0 ] || kill -KILL $$; sleep 60")
    assert done.returncode == 137
    assert "rank 1 failed first: killed by SIGKILL" in done.stderr


def test_a_signal_beats_the_errors_that_follow_from_it(run):
    code = """
import os, signal, sys, time
if os.environ["HVD_RANK"] == "0":
    sys.exit("rank 0 lost its peer")
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGSEGV)
"""
    done = run("-np", 2, "--grace", 60, *python(code))
    assert done.returncode == 139
    assert "rank 1 failed first: killed by SIGSEGV" in done.stderr
    assert "the others: rank 0 exited with code 1" in done.stderr


def test_the_others_may_raise_their_own_error_first(run):
    code = """
import os, sys, time
if os.environ["HVD_RANK"] == "0":
    sys.exit(3)
time.sleep(0.5)
sys.exit("my own error")
"""
    done = run("-np", 2, "--grace", 60, *python(code))
    assert done.returncode == 3
    assert "my own error" in done.stderr
    assert "the others: rank 1 exited with code 1" in done.stderr


@pytest.mark.timed
def test_who_waits_in_init_is_told_of_a_failure_at_once(run):
    code = """
import os, sys, time
import hvd
if os.environ["HVD_RANK"] == "1":
    time.sleep(1)
    os.kill(os.getpid(), 9)
begin = time.monotonic()
try:
    hvd.init()
except RuntimeError as error:
    sys.exit(f"{time.monotonic() - begin:.1f} s: {error}")
"""
    done = run("-np", 3, "--grace", 20, *python(code))
    assert done.returncode == 128 + 9
    told = re.findall(r"^(\d+\.\d) s: .*rank 1 has failed: killed by SIGKILL", done.stderr, re.M)
    assert len(told) == 2 and all(float(seconds) < at_most(3) for seconds in told), done.stderr


@pytest.mark.timed
def test_a_rank_that_ignores_sigterm_is_killed(run, tmp_path):
    rank_0 = f"until [ -e {tmp_path}/ignores ]; do sleep 0.01; done; exit 5"
    rank_1 = f"trap '' TERM; touch {tmp_path}/ignores; while :; do sleep 1; done"
    command = f"if [ $HVD_RANK = 0 ]; then {rank_0}; else {rank_1}; fi"
    begin = time.monotonic()
    done = run("-np", 2, "--grace", 0.2, "sh", "-c", command)
    assert 2 < time.monotonic() - begin < at_most(4)
    assert done.returncode == 5
    assert "rank 1 terminated by hvdrun (SIGKILL)" in done.stderr


def test_a_stopped_rank_is_ended_too(run):
    done = run("-np", 2, "--grace", 0.2, "sh", "-c", "[ $HVD_RANK = 0 ] && exit 5; kill -STOP $$; sleep 60")
    assert done.returncode == 5
    assert "rank 1 terminated by hvdrun (SIGTERM)" in done.stderr


def test_grandchildren_and_daemons_are_ended(run, tmp_path):
    code = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
daemon = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait"], start_new_session=True,
                          stdout=subprocess.PIPE)
inner = int(daemon.stdout.readline())
print(child.pid, daemon.pid, inner, flush=True)
open(os.path.join(sys.argv[1], os.environ["HVD_RANK"]), "w").close()
while len(os.listdir(sys.argv[1])) < 2:
    time.sleep(0.01)
if os.environ["HVD_RANK"] == "0":
    sys.exit(1)
time.sleep(600)
"""
    done = run("-np", 2, "--grace", 0.2, *python(code), tmp_path)
    assert done.returncode == 1
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 6
    wait_until(lambda: not any(map(is_alive, pids)))


@pytest.mark.timed
def test_what_ranks_leave_behind_gets_the_grace_to_finish(run):
    begin = time.monotonic()
    done = run("-np", 1, "--grace", 60, "sh", "-c", "(sleep 0.3; echo late) &")
    assert (done.returncode, done.stdout) == (0, "late\n")
    assert time.monotonic() - begin < at_most(5)
    done = run("-np", 1, "--grace", 0.2, "sh", "-c", "sleep 600 & echo $!")
    assert done.returncode == 0
    assert not is_alive(int(done.stdout))


def test_children_from_before_are_not_the_jobs(hvdrun):
    command = f"sleep 600 > /dev/null 2>&1 & echo $!; exec {hvdrun} -np 1 --grace 0.1 sh -c 'sleep 500 & echo $!'"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT)
    before, of_the_job = map(int, done.stdout.split())
    try:
        assert is_alive(before)
        wait_until(lambda: not is_alive(of_the_job))
    finally:
        os.kill(before, signal.SIGKILL)


# Nothing tells that the job has started these: not their parent, session, group or environment.
LEFTOVERS = """
setsid env -i sh -c 'echo $$; exec sleep 600' &
(setsid env -i sh -c 'sh -c "echo \\$\\$; exec sleep 600" &' &)
echo $$; exec sleep 600
"""


@pytest.mark.parametrize("whole_group", [False, True], ids=["hvdrun", "its process group"])
def test_nothing_that_ranks_have_started_outlives_a_killed_hvdrun(start, whole_group):
    process = start("-np", 2, "sh", "-c", LEFTOVERS, preexec_fn=os.setpgrp)
    pids = [int(line) for line in read_lines(process.stdout, 6)]
    assert all(map(is_alive, pids))
    os.kill(-process.pid if whole_group else process.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)))


def test_what_was_opened_for_the_ranks_reaches_them_whatever_its_number(hvdrun, tmp_path):
    """Also where there is much of it, and beyond the limit of open files."""
    files = [(tmp_path / str(number)).open("w") for number in range(300)]
    numbers = [*(file.fileno() for file in files[1:]), os.dup2(files[0].fileno(), 1000)]
    shell = ["sh", "-c", f"ulimit -n 500; exec {hvdrun} -np 1 sh -c 'echo here > /proc/self/fd/1000'"]
    done = subprocess.run(shell, capture_output=True, text=True, pass_fds=numbers, timeout=TIMEOUT)
    os.close(1000)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "0").read_text() == "here\n"


def test_programs_that_write_no_file_start_without_a_file(run):
    done = run("-np", 2, "true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_standard_input_that_is_closed_is_empty(hvdrun):
    closed = f"exec {hvdrun} -np 1 sh -c 'readlink /proc/self/fd/0; cat' <&-"
    done = subprocess.run(["sh", "-c", closed], capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (0, "/dev/null\n"), done.stderr


def supervisor_of(process):
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if (fields := stat_fields(pid)) and int(fields[1]) == process.pid:
            return pid
    return None


def test_a_killed_supervisor_ends_the_job_and_is_named(start):
    process = start("-np", 2, "sh", "-c", LEFTOVERS)
    pids = [int(line) for line in read_lines(process.stdout, 6)]
    supervisor = supervisor_of(process)
    os.kill(supervisor, signal.SIGKILL)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert f"(ranks 0, 1) is lost: hvd-supervisor (process {supervisor}), which starts the ranks there" in errors
    assert "was killed by SIGKILL" in errors
    assert not any(map(is_alive, pids))


def test_a_stopped_supervisor_does_not_keep_hvdrun(start):
    process = start("-np", 1, "--grace", 0.1, "sh", "-c", LEFTOVERS)
    pids = [int(line) for line in read_lines(process.stdout, 3)]
    os.kill(supervisor_of(process), signal.SIGSTOP)
    process.terminate()
    assert process.wait(TIMEOUT) == 143
    wait_until(lambda: not any(map(is_alive, pids)))


def test_a_nested_hvdrun_and_its_ranks_end_with_the_outer_one(start, hvdrun):
    process = start("-np", 1, hvdrun, "-np", 2, "sh", "-c", LEFTOVERS)
    pids = [int(line) for line in read_lines(process.stdout, 6)]
    process.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_an_environment_may_be_large(run):
    done = run("-np", 2, "sh", "-c", "echo ${#LARGE_0} ${#LARGE_3}", env={**os.environ, **LARGE_VARIABLES})
    assert done.stdout == "100000 100000\n" * 2


LARGE_VARIABLES = {f"LARGE_{number}": "x" * 100_000 for number in range(4)}


def test_no_rank_outlives_a_killed_hvdrun(start):
    process = start("-np", 2, "--servers", 1, "sh", "-c", "echo $$; exec sleep 600")
    pids = [int(line) for line in read_lines(process.stdout, 3)]
    process.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


# --- servers ---

SERVED = [sys.executable, "-u", pathlib.Path(__file__).parent / "served_job.py"]


def test_servers_are_beside_the_ranks_started_again_and_ended_after_them(run, tmp_path):
    ready, files = tmp_path / "ready", tmp_path / "files"
    ready.mkdir()
    options = ["-np", 2, "--servers", 2, "--grace", 60, "--tag-output", "--output-filename", files]
    done = run(*options, *SERVED, ready, "killed")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"hvdrun: server 1 \(pid \d+\) was killed by SIGKILL; it is started again\n", done.stderr)
    assert sorted(done.stdout.splitlines()) == [
        "[0]<stdout>:2 2 - - 0 0 0",
        "[1]<stdout>:2 2 - - 1 1 1",
        "[server 0]<stdout>:2 2 0 0 - - -",
        "[server 0]<stdout>:told to end",
        "[server 1]<stdout>:2 2 1 0 - - -",
        "[server 1]<stdout>:2 2 1 1 - - -",
        "[server 1]<stdout>:told to end",
    ]
    assert (files / "server.1/stdout").read_text() == "2 2 1 0 - - -\n2 2 1 1 - - -\ntold to end\n"
    assert (files / "rank.1/stdout").read_text() == "2 2 - - 1 1 1\n"


def test_a_server_may_leave_and_a_rank_that_fails_ends_the_others(run, tmp_path):
    done = run("-np", 2, "--servers", 2, "--grace", 60, *SERVED, tmp_path, "one leaves")
    assert done.returncode == 3
    assert done.stdout.count("told to end") == 1
    assert done.stderr.startswith("hvdrun: rank 1 failed first: exit code 3"), done.stderr
    assert done.stderr.endswith("hvdrun: the others: rank 0 exited normally\n"), done.stderr


def test_a_server_that_fails_again_and_again_has_failed_first(run):
    command = '[ -n "$HVD_SERVER" ] || exec sleep 60; echo "broken $HVD_SERVER_START" >&2; exit 5'
    done = run("-np", 2, "--servers", 1, "--grace", 0.1, "sh", "-c", command)
    assert done.returncode == 5
    assert done.stderr.count("ended with exit code 5; it is started again") == 10
    report = done.stderr.splitlines()[-4:]
    assert report[0].startswith("hvdrun: server 0 failed first: exit code 5 (pid ")
    assert report[2:] == ["    broken 10", "hvdrun: the others: ranks 0, 1 terminated by hvdrun (SIGTERM)"]


# --- signals ---

COUNTS_INTERRUPTS = """
import os, signal, time
count = 0
def note(number, frame):
    global count
    count += 1
signal.signal(signal.SIGINT, note)
print("ready", os.getpid())
deadline = time.monotonic() + 60
while count == 0 and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.3)
print("interrupts", count)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_all_ranks(start, number):
    # Under nohup all that a shell starts ignores SIGHUP.
    options = {"preexec_fn": lambda: signal.signal(number, signal.SIG_DFL)}
    process = start("-np", 2, "sh", "-c", "echo $$; exec sleep 600", **options)
    pids = [int(line) for line in read_lines(process.stdout, 2)]
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + number
    assert f"hvdrun: ended by {number.name}; ranks 0, 1 killed by {number.name}\n" in errors
    wait_until(lambda: not any(map(is_alive, pids)))


def test_a_program_that_ends_well_on_sigterm_has_ended_well(start):
    process = start("-np", 2, "sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    assert read_lines(process.stdout, 2) == ["ready"] * 2
    process.terminate()
    output, _ = process.communicate(timeout=TIMEOUT)
    assert output == "saved\n" * 2
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_are_passed_on(start, number):
    command = f"trap 'echo got it; exit 0' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    process = start("-np", 2, "sh", "-c", command)
    assert read_lines(process.stdout, 2) == ["ready"] * 2
    process.send_signal(number)
    output, _ = process.communicate(timeout=TIMEOUT)
    assert output == "got it\n" * 2
    assert process.returncode == 0


@pytest.mark.timed
def test_two_interrupts_kill_at_once(start):
    process = start("-np", 2, "--grace", 30, "sh", "-c", "trap '' INT TERM; echo ready; while :; do sleep 1; done")
    assert read_lines(process.stdout, 2) == ["ready"] * 2
    process.send_signal(signal.SIGINT)
    await_taken(process.pid, signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert time.monotonic() - begin < at_most(1)
    assert process.returncode == 130
    assert "ranks 0, 1 terminated by hvdrun (SIGKILL)" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_hvdrun_and_its_process_group_is_one(start, number):
    """As coreutils' timeout sends it. On a busy machine hvdrun may see the second one too late to know that."""
    trap = f"trap 'echo saving; sleep 0.5; echo saved; exit 0' {number.name[3:]}"
    command = f"{trap}; echo ready; while :; do sleep 0.05; done"
    for _ in range(5):
        process = start("-np", 2, "--grace", 30, "sh", "-c", command, start_new_session=True)
        assert read_lines(process.stdout, 2) == ["ready"] * 2
        process.send_signal(number)
        os.killpg(process.pid, number)
        output, errors = process.communicate(timeout=TIMEOUT)
        if process.returncode == 0 and sorted(output.split()) == ["saved"] * 2 + ["saving"] * 2:
            return
    pytest.fail(output + errors)


def test_ranks_stop_and_go_on_with_hvdrun(start):
    process = start("-np", 2, "sh", "-c", "echo $$; exec sleep 600")
    everybody = [process.pid, *map(int, read_lines(process.stdout, 2))]
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: all(state_of(pid) == "T" for pid in everybody))
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: all(state_of(pid) == "S" for pid in everybody))
    process.terminate()
    assert process.wait(TIMEOUT) == 143


def ignore_hangup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_signals_ignored_outside_stay_ignored(start):
    process = start("-np", 1, "sh", "-c", "echo ready; sleep 0.5; echo done", preexec_fn=ignore_hangup)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert process.stdout.read() == "done\n"
    assert process.wait(TIMEOUT) == 0


@pytest.mark.parametrize("by_agent", [False, True])
def test_without_a_path_programs_are_looked_for_where_shells_do(run, by_agent):
    environment = {name: value for name, value in os.environ.items() if name != "PATH"}
    done = run("-np", 1, *["--launcher", "ssh"] * by_agent, "echo", "a", env=environment)
    assert (done.stdout, done.returncode) == ("a\n", 0), done.stderr


# --- at a terminal ---


class Terminal:
    """hvdrun as the foreground process of a terminal of its own."""

    def __init__(self, *arguments, **variables):
        environment = {**os.environ, **variables}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(arguments[0], list(map(str, arguments)), environment)
        self.text = ""
        self.code = None

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, pattern, seconds=60):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            left = deadline - time.monotonic()
            assert left > 0, f"waited for {pattern!r}, got {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode()
                except OSError:  # the other end is closed
                    assert re.search(pattern, self.text), f"waited for {pattern!r}, got {self.text!r}"

    def wait(self):
        with contextlib.suppress(OSError):
            while data := os.read(self.fd, 65536):
                self.text += data.decode()
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(hvdrun):
    opened = []

    def open_terminal(*arguments, **variables):
        opened.append(Terminal(hvdrun, *arguments, **variables))
        return opened[-1]

    yield open_terminal
    for entry in opened:
        entry.close()


COLOUR = r"\x1b\[38;5;\d+m"
COLOURED = {"TERM": "xterm-256color", "NO_COLOR": ""}


def test_tags_on_a_terminal_have_the_colour_of_their_rank_and_files_have_none(terminal, tmp_path):
    command = r"printf '\033[1mbold\n'; echo plain >&2"
    options = ["-np", 2, "--tag-output", "--output-filename", tmp_path]
    session = terminal(*options, "sh", "-c", command, **COLOURED)
    assert session.wait() == 0
    lines = session.text.splitlines()
    assert len(lines) == 4
    colours = {}
    for line in lines:
        found = re.fullmatch(rf"({COLOUR})\[(\d)\]<(stdout|stderr)>:\x1b\[39m(.*)", line)
        assert found, repr(line)
        assert found[4] == ("\x1b[1mbold" if found[3] == "stdout" else "plain")
        colours.setdefault(found[2], set()).add(found[1])
    assert [len(found) for found in colours.values()] == [1, 1], "both streams of a rank have its colour"
    assert colours["0"] != colours["1"]
    assert (tmp_path / "rank.0" / "stdout").read_text() == "\x1b[1mbold\n"


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_tags_on_a_terminal_are_plain_where_colours_are_not_wanted(terminal, variables):
    session = terminal("-np", 2, "--tag-output", "echo", "a", **{**COLOURED, **variables})
    assert session.wait() == 0
    assert sorted(session.text.splitlines()) == ["[0]<stdout>:a", "[1]<stdout>:a"]


def test_only_the_stream_that_is_a_terminal_has_coloured_tags(start):
    ours, its = pty.openpty()
    command = ["-np", 1, "--tag-output", "sh", "-c", "echo a; echo b >&2"]
    process = start(*command, stdout=its, env={**os.environ, **COLOURED})
    assert process.wait(TIMEOUT) == 0
    assert re.fullmatch(rf"{COLOUR}\[0\]<stdout>:\x1b\[39ma\r\n", os.read(ours, 1000).decode())
    assert process.stderr.read() == "[0]<stderr>:b\n"
    os.close(ours)
    os.close(its)


def test_ctrl_c_reaches_every_rank_exactly_once(terminal):
    session = terminal("-np", 2, *python(COUNTS_INTERRUPTS))
    session.read_until(r"(?s)ready.*ready")
    session.type("\x03")
    assert session.wait() == 0
    assert session.text.count("interrupts 1") == 2, session.text


def test_ctrl_c_ends_a_python_program(terminal):
    # Short sleeps: Python does not notice a signal that comes right before one begins.
    code = "import time; print('ready')\nwhile True: time.sleep(0.05)"
    session = terminal("-np", 2, *python(code))
    session.read_until(r"(?s)ready.*ready")
    session.type("\x03")
    assert session.wait() == 130
    # One, if they came at the same moment and are the same.
    told = session.text.count("KeyboardInterrupt")
    assert told == (1 if "hvdrun: identical traceback from ranks 0, 1:" in session.text else 2), session.text
    assert "hvdrun: ended by SIGINT" in session.text


def test_a_prompt_of_rank_0_is_shown_and_answered(terminal):
    code = """
import os, sys
if os.environ["HVD_RANK"] == "0":
    print("answer:", input("question? ") + "!")
    print("then:", repr(sys.stdin.read()))
"""
    session = terminal("-np", 2, *python(code))
    session.read_until(r"question\? ")
    session.type("forty-two\n")
    session.read_until("answer: forty-two!")
    session.type("more\n\x04")
    assert session.wait() == 0
    assert "then: 'more\\n'" in session.text


def test_progress_bars_of_ranks_have_a_line_each(terminal):
    """In the order of the ranks, below the lines that are complete."""
    code = r"""
import os, sys
rank = os.environ["HVD_RANK"]
sys.stderr.write(f"\rrank {rank}: 10%")
sys.stderr.flush()
input()
print("between")
sys.stderr.write(f"\rrank {rank}: 50%")
sys.stderr.flush()
input()
sys.stderr.write(f"\rrank {rank}: done\n")
"""
    session = terminal("-np", 2, "--stdin", "all", *python(code), TERM="xterm")
    session.read_until(r"rank 0: 10%\r\nrank 1: 10%")
    session.type("\n")
    session.read_until(r"rank 0: 50%\r\nrank 1: 50%")
    session.type("\n")
    assert session.wait() == 0
    assert "\r\x1b[1A\x1b[J" in session.text
    assert re.search(r"between\r\n(rank . *: \d+%\r\n)*rank 1: \d+%", session.text)
    assert sorted(re.findall(r"rank \d: done\r\n", session.text)) == ["rank 0: done\r\n", "rank 1: done\r\n"]


# --- cost ---


@pytest.mark.timed
def test_starting_through_hvdrun_costs_little(run):
    run("-np", 4, "true")
    begin = time.monotonic()
    assert run("-np", 4, "true").returncode == 0
    assert time.monotonic() - begin < at_most(0.5)


def test_waiting_costs_no_cpu_time(start):
    process = start("-np", 2, "sh", "-c", "echo ready; sleep 600")
    assert read_lines(process.stdout, 2) == ["ready"] * 2

    def cpu_ticks_and_switches():
        fields = stat_fields(process.pid)
        with open(f"/proc/{process.pid}/status") as file:
            switches = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", file.read(), re.M)
        return int(fields[11]) + int(fields[12]), int(switches[1])

    time.sleep(0.1)
    begin = time.monotonic()
    before = cpu_ticks_and_switches()
    time.sleep(1)
    after = cpu_ticks_and_switches()
    elapsed = time.monotonic() - begin
    assert after[0] - before[0] <= 1
    assert after[1] - before[1] <= 1 + elapsed, "hvdrun wakes up more often than to look for stalls once a second"


# ---- mpirun's options


def test_a_line_of_mpirun_works_with_hvdrun(run):
    options = "-np 4 -H localhost:4 -bind-to none -map-by slot -x PATH -mca pml ob1 -mca btl ^openib -allow-run-as-root"
    done = run(*shlex.split(options), "sh", "-c", "echo $HVD_RANK $OMPI_MCA_pml $OMPI_MCA_btl")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} ob1 ^openib" for rank in range(4)]


def test_several_programs_are_one_job(run, tmp_path):
    show = ["sh", "-c", 'echo "$HVD_RANK of $HVD_SIZE, local $HVD_LOCAL_RANK: $A, $(pwd)"']
    done = run("-np", 1, "-x", "A=first", *show, ":", "-np", 2, "-x", "A=second", "-wdir", tmp_path, *show)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"0 of 3, local 0: first, {os.getcwd()}",
        f"1 of 3, local 1: second, {tmp_path}",
        f"2 of 3, local 2: second, {tmp_path}",
    ]


def test_a_program_is_looked_for_in_its_working_directory(run, tmp_path):
    (tmp_path / "here.sh").write_text("#!/bin/sh\necho found in $(pwd)\n")
    (tmp_path / "here.sh").chmod(0o755)
    done = run("-np", 1, "-wdir", tmp_path, "./here.sh")
    assert done.stdout == f"found in {tmp_path}\n", done.stderr
    missing = run("-np", 1, "-wdir", tmp_path / "nowhere", "ls")
    assert missing.returncode == 2
    assert "there is no such folder" in missing.stderr


def test_a_hostfile_has_the_slots(run, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("# this machine\nlocalhost slots=2\n")
    assert run("-hostfile", hosts, "echo", "x").stdout == "x\n" * 2
    assert run("-machinefile", hosts, "-np", 3, "echo", "x").returncode == 2
    assert run("-machinefile", hosts, "-np", 3, "-oversubscribe", "echo", "x").stdout == "x\n" * 3


@pytest.mark.timed
def test_a_job_that_takes_too_long_is_ended(run):
    begun = time.monotonic()
    done = run("-np", 2, "-timeout", 0.5, "sleep", 600)
    assert done.returncode == 124
    assert "the job has reached its --timeout; ranks 0, 1 terminated by hvdrun (SIGTERM)" in done.stderr
    assert time.monotonic() - begun < at_most(10)
    assert run("-np", 1, "-timeout", 60, "true").returncode == 0
    environment = {**os.environ, "MPIEXEC_TIMEOUT": "1"}
    assert run("-np", 1, "sleep", 600, env=environment).returncode == 124
    assert run("-np", 1, "-timeout", 0, "sleep", 1.5, env=environment).returncode == 0
    assert run("-np", 1, "true", env={**os.environ, "MPIEXEC_TIMEOUT": "soon"}).returncode == 2


def test_lines_of_hvdrun_begin_a_line(run):
    done = run("-np", 1, "sh", "-c", "printf ... >&2; exit 3")
    assert done.stderr.startswith("...\nhvdrun: rank 0"), done.stderr


def test_an_allocation_of_this_host_alone_gives_the_number_of_ranks(run):
    environment = {**os.environ, "SLURM_JOB_NODELIST": socket.gethostname(), "SLURM_TASKS_PER_NODE": "3"}
    assert run("echo", "x", env=environment).stdout == "x\n" * 3
    assert run("-np", 4, "echo", "x", env=environment).stdout == "x\n" * 4


@pytest.mark.timed
def test_the_time_limit_holds_while_others_have_time_to_end_by_themselves(run):
    begun = time.monotonic()
    done = run("-np", 2, "-timeout", 3, "-grace", 60, "sh", "-c", "[ $HVD_RANK = 0 ] && exit 3; sleep 600")
    assert done.returncode == 3
    assert time.monotonic() - begun < at_most(20)


def test_merged_output_comes_in_the_order_of_writing(run):
    done = run("-np", 1, "-merge-stderr-to-stdout", "sh", "-c", "echo 1; echo 2 >&2; echo 3; exit 4")
    assert done.returncode == 4
    assert done.stdout == "1\n2\n3\n"
    assert "the last lines of its output:\n    1\n    2\n    3\n" in done.stderr


def test_merged_output_has_one_file(run, tmp_path):
    show = ["sh", "-c", "echo 1; echo 2 >&2"]
    assert run("-np", 1, "-output-filename", tmp_path, *show).returncode == 0
    assert (tmp_path / "rank.0/stderr").read_text() == "2\n"
    assert run("-np", 1, "-output-filename", tmp_path, "-merge-stderr-to-stdout", *show).returncode == 0
    assert (tmp_path / "rank.0/stdout").read_text() == "1\n2\n"
    assert not (tmp_path / "rank.0/stderr").exists()


def test_lines_can_begin_with_the_time(run):
    done = run("-np", 1, "-timestamp-output", "-tag-output", "echo", "now")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[0\]<stdout>:now\n", done.stdout)


@pytest.mark.parametrize("reader, output", [("1", "[1]<stdout>:typed\n"), ("none", "")])
def test_another_rank_or_none_may_read_the_input(run, reader, output):
    done = run("-np", 2, "-stdin", reader, "-tag-output", "cat", input="typed\n")
    assert done.stdout == output
    assert done.returncode == 0


def test_ranks_may_stop_reading_a_long_input(run, tmp_path):
    (tmp_path / "input").write_bytes(bytes(20 << 20))
    with open(tmp_path / "input") as file:
        done = run("-np", 2, "--stdin", "all", "head", "-c", 1, stdin=file)
    assert (done.returncode, done.stdout) == (0, "\0\0"), done.stderr


def test_an_input_for_a_rank_that_is_not_there_is_refused(run):
    done = run("-np", 2, "-stdin", 2, "cat")
    assert done.returncode == 2
    assert "there are only 2 ranks" in done.stderr


def test_ranks_are_bound_to_cpus(run):
    cpus = sorted(os.sched_getaffinity(0))
    show = ["grep", "Cpus_allowed_list", "/proc/self/status"]
    done = run("-np", 1, "-bind-to", "hwthread", "-report-bindings", *show)
    assert done.stdout.split() == ["Cpus_allowed_list:", str(cpus[0])], done.stderr
    assert done.stderr == f"hvdrun: rank 0 is bound to CPU {cpus[0]}\n"
    assert run("-np", 1, "-report-bindings", "true").stderr == "hvdrun: rank 0 is not bound\n"
    oversubscribed = run("-np", len(cpus) + 1, "-bind-to", "hwthread", *show)
    assert oversubscribed.returncode == 2
    assert "too few hardware threads here" in oversubscribed.stderr
    assert run("-np", len(cpus) + 1, "-bind-to", "hwthread", "-oversubscribe", *show).returncode == 0


def test_an_unknown_option_is_named_with_the_nearest_known_one(run):
    done = run("-np", 2, "-oversubscrib", "ls")
    assert done.returncode == 2
    assert "unknown option -oversubscrib; did you mean --oversubscribe?" in done.stderr
