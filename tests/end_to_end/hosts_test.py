"""hvdrun over several hosts, which are those of a lab: places, streams, signals, and how jobs end."""

import contextlib
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from standing_lab import PATIENCE_S, StandingLab, descendants, resident_mb, stat_of, words_of

from signals import await_taken
from timeouts import at_most, wait_until

HERE = pathlib.Path(__file__).parent
SLURM, SSHD = HERE.parent / "support/slurm.sh", HERE.parent / "support/sshd.sh"
SETS = HERE.parent / "python/programs/sets_over_hosts.py"
TEXT = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 120}
LOOP = HERE.parents[1] / "build/release/tests/end_to_end/allreduce_loop"
DIGITS = HERE.parents[1] / "examples/torch/digits.py"
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def four_hosts(lab):
    standing = StandingLab(lab, 4)
    yield standing
    standing.close()


@pytest.fixture(scope="module")
def two_networks(lab):
    standing = StandingLab(lab, 3, networks=2)
    yield standing
    standing.close()


@pytest.fixture
def hosts(four_hosts):
    yield four_hosts
    four_hosts.await_nothing_left()


@pytest.fixture
def run(hvdrun, hosts):
    """Runs hvdrun to its end; afterwards nothing of it may be left."""
    return lambda *arguments, **options: hosts.run(hvdrun, "--rsh", hosts.rsh, *arguments, **options)


@pytest.fixture
def start(hvdrun, hosts):
    """Starts hvdrun; its process here, and its own number here, to which signals go."""
    started = []

    def start_and_return(*arguments, **options):
        process = hosts.popen([hvdrun, "--rsh", hosts.rsh, *arguments], **options)
        started.append(process)
        wait_until(lambda: hvdrun_below(process.pid))
        return process, hvdrun_below(process.pid)

    yield start_and_return
    for process in started:
        for pid in [*descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def hvdrun_below(pid):
    for child in descendants(pid):
        if words_of(child)[:1] and words_of(child)[0].endswith("hvdrun"):
            return child
    return None


def shell(line):
    return ["sh", "-c", line]


def places(done):
    assert done.returncode == 0, done.stderr
    return [tuple(line.split()) for line in sorted(done.stdout.splitlines(), key=lambda line: int(line.split()[0]))]


PLACE = shell(
    "echo $HVD_RANK $HVD_SIZE $HVD_LOCAL_RANK $HVD_LOCAL_SIZE $HVD_CROSS_RANK $HVD_CROSS_SIZE $HVD_ADDRESS $(hostname)"
)


# --- places ---


def test_the_rank_that_failed_first_is_named_with_its_host(run):
    for rank in (3, 1, 0, 2):
        job = [sys.executable, str(HERE / "failing_job.py"), "exception", str(rank)]
        done = run("-np", 4, "-H", "h1:2,h2:2", *job)
        name = f"rank {rank} on h{1 + rank // 2}"
        assert done.returncode == 1, done.stderr
        assert f"hvdrun: {name} failed first: exit code 1" in done.stderr, done.stderr
        causes = re.findall(r"HorovodInternalError: (.*)", done.stderr)
        assert causes and all(cause.startswith(f"{name} raised ValueError: bad data (") for cause in causes)


def test_sixteen_ranks_on_four_hosts(run):
    found = places(run("-np", 16, "-H", "h1:4,h2:4,h3:4,h4:4", *PLACE))
    for rank, place in enumerate(found):
        host, local = rank // 4, rank % 4
        expected = (rank, 16, local, 4, host, 4, f"10.9.0.{host + 1}", f"h{host + 1}")
        assert place == tuple(map(str, expected))


def test_hosts_with_different_numbers_of_slots(run):
    found = places(run("-np", 6, "-H", "h1:1,h2:3,h3:2", *PLACE))
    assert [place[7] for place in found] == ["h1", "h2", "h2", "h2", "h3", "h3"]
    assert [place[2:6] for place in found] == [
        ("0", "1", "0", "3"),
        ("0", "3", "1", "3"),
        ("1", "3", "0", "2"),
        ("2", "3", "0", "1"),
        ("0", "2", "2", "3"),
        ("1", "2", "1", "2"),
    ]


def test_a_host_without_ranks(run):
    assert {place[7] for place in places(run("-np", 2, "-H", "h1:2,h2:2", *PLACE))} == {"h1"}


def test_servers_are_dealt_to_the_hosts_and_started_again_there(run, tmp_path):
    job = [sys.executable, "-u", str(HERE / "served_job.py"), tmp_path, "killed"]
    done = run("-np", 2, "--servers", 3, "--grace", 60, "-H", "h1:2,h2:2", "--tag-output", *job)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"hvdrun: server 1 on h2 \(pid \d+\) was killed by SIGKILL; it is started again\n", done.stderr)
    assert "[server 1]<stdout>:2 3 1 1 - - -" in done.stdout
    assert done.stdout.count("]<stdout>:told to end") == 3


def test_a_host_that_is_lost_with_a_server_fails_the_job(run):
    """What starts the processes of the second host dies, and that is a server only."""
    command = '[ "$HVD_SERVER" = 1 ] && kill -KILL $PPID; exec sleep 60'
    done = run("-np", 2, "--servers", 2, "-H", "h1:2,h2:2", *shell(command))
    assert done.returncode == 1
    assert "hvdrun: host h2 (server 1) is lost: " in done.stderr, done.stderr


@pytest.mark.parametrize("text", ["h1 slots=2\n\n# a comment\nh2 slots=1  # another\n", "h1:2\nh2:1\n"])
def test_hosts_from_a_file(run, tmp_path, text):
    (tmp_path / "hosts").write_text(text)
    found = places(run("-np", 3, "--hostfile", tmp_path / "hosts", *PLACE))
    assert [place[7] for place in found] == ["h1", "h1", "h2"]


def test_ranks_go_round_the_hosts(run):
    found = places(run("-np", 4, "-H", "h1:2,h2:2", "--map-by", "node", *PLACE))
    assert [place[7] for place in found] == ["h1", "h2", "h1", "h2"]


def test_the_drivers_own_machine_among_others(run):
    found = places(run("-np", 3, "-H", "localhost:1,h1:2", *PLACE))
    assert [place[6:] for place in found] == [
        ("10.9.0.254", os.uname().nodename),
        ("10.9.0.1", "h1"),
        ("10.9.0.1", "h1"),
    ]


# Rank 0 serves at the place that PyTorch's variables name, and the others come to it, as PyTorch's own store has it.
MASTER = """
import os, socket, time
import hvd
hvd.init()
rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
deadline = time.monotonic() + 60
if rank == 0:
    server = socket.create_server(("", port))
    server.settimeout(60)
    came = sorted(server.accept()[0].recv(1) for _ in range(size - 1))
    print("came", came, os.environ["MASTER_ADDR"], flush=True)
while rank > 0:
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=60).sendall(str(rank).encode())
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline
"""


def test_torchs_variables_name_a_port_of_rank_0s_host(run):
    done = run("-np", 3, "-H", "h2:1,h1:2", sys.executable, "-c", MASTER)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "came [b'1', b'2'] 10.9.0.2\n"


def test_mpirun_over_hosts_has_torchs_variables(hosts):
    to_hosts = ["--mca", "plm_rsh_agent", hosts.rsh, "--mca", "plm_rsh_no_tree_spawn", "1", "-x", "PYTHONPATH"]
    network = [part for layer in ("oob", "btl") for part in ("--mca", f"{layer}_tcp_if_include", "10.9.0.0/24")]
    line = ["mpirun.openmpi", "--allow-run-as-root", *to_hosts, *network, "-H", "h2:1,h1:2", "-np", "3"]
    done = hosts.run(*line, sys.executable, "-c", MASTER)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "came [b'1', b'2'] h2.netlab\n"


# --- how jobs end ---


@pytest.mark.parametrize(
    "command, code, words",
    [
        (shell("test $HVD_RANK != 3 || { echo the reason >&2; exit 3; }; sleep 30"), 3, "rank 3 on h2 failed first"),
        (["/no/such/program"], 127, "/no/such/program"),
        (["/etc/hosts"], 126, "/etc/hosts"),
        (shell("test $HVD_RANK != 2 || kill -SEGV $$; sleep 30"), 139, "rank 2 on h2 failed first"),
    ],
)
def test_the_first_failure_decides(run, command, code, words):
    done = run("-np", 4, "-H", "h1:2,h2:2", "--grace", "0.2", *command)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    if code == 3:
        assert "the reason" in done.stderr.rpartition("failed first")[2]


def test_a_program_that_is_missing_on_one_host_only(run, tmp_path):
    done = run("-np", 2, "-H", "h1,h2", "--wdir", tmp_path / "nowhere", "true")
    assert done.returncode != 0
    assert "nowhere" in done.stderr


def test_the_timeout_ends_all(run):
    done = run("-np", 4, "-H", "h1:2,h2:2", "--timeout", "0.5", "--grace", "0.1", "sleep", 30)
    assert done.returncode == 124, done.stderr


@pytest.mark.parametrize("name, code", [("INT", 130), ("TERM", 143)])
def test_a_signal_ends_all_in_order(start, name, code):
    program = "trap 'echo caught; exit 1' INT TERM; echo ready; while :; do sleep 0.05; done"
    process, hvdrun = start("-np", 4, "-H", "h1:2,h2:2", *shell(program))
    assert [process.stdout.readline() for _ in range(4)] == ["ready\n"] * 4
    os.kill(hvdrun, signal.Signals["SIG" + name])
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, errors
    assert output == "caught\n" * 4


@pytest.mark.timed
def test_ctrl_c_twice_is_immediate(start):
    process, hvdrun = start(
        *("-np", 2, "-H", "h1,h2", "--grace", "60"),
        *shell("trap '' INT TERM; echo ready; while :; do sleep 0.05; done"),
    )
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    began = time.monotonic()
    os.kill(hvdrun, signal.SIGINT)
    await_taken(hvdrun, signal.SIGINT)
    time.sleep(0.3)
    os.kill(hvdrun, signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert time.monotonic() - began < at_most(5)


def test_a_suspended_job_goes_on_after_longer_than_its_lease(start, hosts):
    counting = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; sleep 0.1; done"
    process, hvdrun = start("-np", 2, "-H", "h1,h2", "--lease", "1", *shell(counting))
    first = [process.stdout.readline()]
    while first.count("1\n") < 2:
        first.append(process.stdout.readline())
    os.kill(hvdrun, signal.SIGTSTP)
    wait_until(lambda: stat_of(hvdrun)[0] == "T")
    time.sleep(2.5)
    shells = [pid for pid, words in hosts.left().items() if words.startswith("sh -c 'i=0")]
    ranks = [pid for pid in shells if int(stat_of(pid)[1]) not in shells]  # not what is about to become sleep
    states = [stat_of(pid)[0] for pid in ranks]  # D: it waits for what it was just starting, which is stopped
    assert len(ranks) == 2 and all(state in "TD" for state in states), states
    os.kill(hvdrun, signal.SIGCONT)
    os.kill(process.pid, signal.SIGCONT)  # nsenter stops with what it has started
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert output.count("20\n") == 2


def test_a_killed_driver_leaves_nothing(start, hosts):
    process, hvdrun = start(
        "-np", 4, "-H", "h1:2,h2:2", *shell("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    )
    assert [process.stdout.readline() for _ in range(4)] == ["ready\n"] * 4
    os.kill(hvdrun, signal.SIGKILL)
    hosts.await_nothing_left(8)


# --- output and input ---


def test_output_is_tagged_merged_stamped_and_in_files(run, tmp_path):
    done = run(
        *("-np", 2, "-H", "h1,h2", "--tag-output", "--output-filename", tmp_path / "out"),
        *shell("echo to $HVD_RANK; echo oh $HVD_RANK >&2"),
    )
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:to 0", "[1]<stdout>:to 1"]
    assert sorted(done.stderr.splitlines()) == ["[0]<stderr>:oh 0", "[1]<stderr>:oh 1"]
    assert (tmp_path / "out/rank.1/stdout").read_text() == "to 1\n"
    assert (tmp_path / "out/rank.1/stderr").read_text() == "oh 1\n"
    merged = run("-np", 2, "-H", "h1,h2", "--merge-stderr-to-stdout", *shell("echo a; echo b >&2; echo c"))
    assert sorted(merged.stdout.split()) == list("aabbcc") and merged.stderr == ""
    stamped = run("-np", 2, "-H", "h1,h2", "--timestamp-output", *shell("echo hello"))
    assert re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} hello\n){2}", stamped.stdout)


def test_much_output_through_a_slow_reader_is_whole_and_not_kept(start):
    size_mb = 20
    line = "x" * 1023
    write = f"import sys\nfor _ in range({size_mb} * 1024): sys.stdout.write({line!r} + '\\n')"
    process, hvdrun = start("-np", 4, "-H", "h1:2,h2:2", sys.executable, "-c", write, text=False)
    digest, total, most_mb = hashlib.sha256(), 0, 0
    while piece := process.stdout.read(1 << 20):
        total += len(piece)
        digest.update(piece)
        most_mb = max(most_mb, resident_mb(hvdrun))
        time.sleep(0.02)
    assert process.wait(PATIENCE_S) == 0
    assert total == 4 * size_mb << 20
    assert digest.hexdigest() == hashlib.sha256((line + "\n").encode() * (4 * size_mb * 1024)).hexdigest()
    assert most_mb < 60


def test_whoever_reads_no_more_ends_the_job(hvdrun, hosts):
    line = shlex.join([hvdrun, "--rsh", hosts.rsh, "-np", "2", "-H", "h1,h2", "yes"])
    done = hosts.run("bash", "-c", line + " | head -n 3", timeout=300)
    assert done.stdout == "y\n" * 3


@pytest.mark.parametrize("option, readers", [([], "0"), (["--stdin", "3"], "3"), (["--stdin", "all"], "0123")])
def test_input_reaches_ranks_on_other_hosts(run, tmp_path, option, readers):
    text = "".join(f"line {number}\n" for number in range(30000))
    digest = hashlib.md5(text.encode()).hexdigest()
    sums = ("-np", 4, "-H", "h1:2,h2:2", *option, *shell("echo $HVD_RANK $(md5sum)"))
    expected = {str(rank): digest if str(rank) in readers else hashlib.md5().hexdigest() for rank in range(4)}
    (tmp_path / "input").write_text(text)
    with open(tmp_path / "input") as file:
        for source in ({"input": text}, {"stdin": file}):
            found = dict(place[:2] for place in places(run(*sums, **source)))
            assert found == expected


def test_the_environment_travels(run, tmp_path):
    (tmp_path / "my-program").write_text("#!/bin/sh\necho $HVD_RANK $FROM_OUTSIDE $SET $PASSED $(pwd)\n")
    (tmp_path / "my-program").chmod(0o755)
    environment = {**os.environ, "FROM_OUTSIDE": "1", "PASSED": "2", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["OLD_ENCODING"] = os.fsdecode(b"\xe9t\xe9")
    done = run(
        *("-np", 2, "-H", "h1,h2", "-x", "SET=3", "-x", "PASSED", "--wdir", tmp_path, "my-program"), env=environment
    )
    assert places(done) == [(str(rank), "1", "3", "2", str(tmp_path)) for rank in range(2)]


def test_a_program_is_needed_only_on_the_hosts_that_run_it(hvdrun, hosts, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "of-h1").write_text("#!/bin/sh\necho here\n")
    (programs / "of-h1").chmod(0o755)
    rsh = tmp_path / "rsh"  # under which h2 sees an empty folder
    hide = f'mount -t tmpfs none {programs} && exec {hosts.rsh} "$@"'
    rsh.write_text(f'#!/bin/sh\n[ $1 = h2 ] && exec unshare -m sh -c \'{hide}\' rsh "$@"\nexec {hosts.rsh} "$@"\n')
    rsh.chmod(0o755)
    words = ("-np", 1, "-H", "h1", programs / "of-h1", ":", "-np", 1, "-H", "h2", "echo", "there")
    done = hosts.run(hvdrun, "--rsh", rsh, *words)
    assert done.returncode == 0 and sorted(done.stdout.split()) == ["here", "there"], done.stderr


# --- hosts that do not come, or come late ---


def test_a_command_that_cannot_reach_a_host(run):
    done = run("-np", 2, "-H", "h1,nowhere", "true")
    assert done.returncode == 1
    assert "host nowhere: " in done.stderr


def test_a_command_that_is_not_there(hvdrun, hosts):
    done = hosts.run(hvdrun, "--rsh", "/no/such/rsh", "-np", 2, "-H", "h1,h2", "true")
    assert done.returncode == 1
    # Both fail at the same time; the first to be heard is told.
    assert any(f"host {host}: " in done.stderr for host in ("h1", "h2")), done.stderr
    assert "/no/such/rsh" in done.stderr and "127" in done.stderr


def test_a_host_from_which_nobody_comes(hvdrun, hosts):
    done = hosts.run(hvdrun, "--rsh", "sleep 30; :", "--start-timeout", "0.5", "-np", 1, "-H", "h1", "true")
    assert done.returncode == 1
    assert "host h1: no agent connected within 0.5 s (--start-timeout)" in done.stderr


def test_a_host_that_comes_late(hvdrun, hosts, tmp_path):
    late = tmp_path / "late"
    late.write_text(f'#!/bin/sh\ntest $1 != h2 || sleep 2\nexec {hosts.rsh} "$@"\n')
    late.chmod(0o755)
    done = hosts.run(hvdrun, "--rsh", late, "-np", 2, "-H", "h1,h2", "hostname")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["h1", "h2"]


def test_another_network_is_found_where_one_is_cut(hvdrun, two_networks):
    two_networks.cut("h2", "eth0")
    try:
        done = two_networks.run(hvdrun, "--rsh", two_networks.rsh, "-np", 2, "-H", "h1,h2", *PLACE)
    finally:
        two_networks.join("h2", "eth0")
    assert places(done)[1][6] == "10.8.0.2"
    two_networks.await_nothing_left()


def test_an_interface_is_chosen_by_its_name_or_network(hvdrun, two_networks):
    named = ("--rsh", two_networks.rsh, "-np", 2, "-H", "h1,h2", "--network-interface")
    # The driver's interface has another name than the hosts': a bridge.
    done = two_networks.run(hvdrun, *named, "eth1,bridge1", *PLACE)
    assert [place[6] for place in places(done)] == ["10.8.0.1", "10.8.0.2"]
    done = two_networks.run(hvdrun, *named, "10.8.0.0/16", *PLACE)
    assert [place[6] for place in places(done)] == ["10.8.0.1", "10.8.0.2"]
    done = two_networks.run(hvdrun, *named, "ib7,bridge1", *PLACE)
    assert done.returncode == 1
    assert "--network-interface: none of those is here; there are" in done.stderr and "eth1 (10.8.0." in done.stderr
    done = two_networks.run(hvdrun, *named, "ib7", *PLACE)
    assert done.returncode != 0 and "none of those is here" in done.stderr
    two_networks.await_nothing_left()


SENT_BY_INTERFACE = """
import pathlib
import numpy as np
import arrays, hvd

def sent():
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]
    return {line.split(":")[0].strip(): int(line.split(":")[1].split()[8]) for line in lines}

hvd.init()
before = sent()
values = np.random.default_rng(hvd.rank()).random(1 << 20, np.float32)
total = arrays.allreduce(values, op=arrays.Sum)
expected = sum(np.random.default_rng(rank).random(1 << 20, np.float32) for rank in range(2))
after = sent()
print(hvd.rank(), after["eth0"] - before["eth0"], after["eth1"] - before["eth1"], (total == expected).all())
"""


def test_data_takes_all_named_networks(hvdrun, two_networks):
    # Of several messages, every other one takes the other network; on a busy machine one message could seem faster.
    job = ("--rsh", two_networks.rsh, "-np", 2, "-H", "h1,h2", "-x", "HVD_ALGORITHM=allreduce:0-=ring")
    program = (sys.executable, "-c", SENT_BY_INTERFACE)
    done = two_networks.run(hvdrun, *job, "--network-interface", "eth0,eth1,bridge0,bridge1", *program)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        _, first, second, right = line.split()
        assert right == "True"
        # A ring of two ranks: each sends as much as a tensor has, 4 MB.
        assert 1.9e6 < int(first) < 2.6e6 and 1.9e6 < int(second) < 2.6e6, line
    assert len(done.stdout.splitlines()) == 2
    done = two_networks.run(hvdrun, *job, "-x", "HVD_NETWORK_INTERFACES=ib7", *program)
    assert done.returncode != 0
    assert "HVD_NETWORK_INTERFACES: none of those is here; there are eth0 (10.9.0." in done.stderr
    two_networks.await_nothing_left()


# --- the data plane ---


@pytest.mark.parametrize("number", [2, 4, pytest.param(8, marks=LONG)])
def test_sums_are_right_over_hosts_with_slow_links(lab, hvdrun, number):
    standing = StandingLab(lab, number, rate="1gbit")
    try:
        names = ",".join(f"h{host}:2" for host in range(1, number + 1))
        for size in (64, 1 << 20):
            command = (LOOP, "--steps", 20, "--bytes", size)
            done = standing.run(hvdrun, "--rsh", standing.rsh, "-np", 2 * number, "-H", names, *command)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.count("done 20") == 2 * number
        standing.await_nothing_left()
    finally:
        standing.close()


def test_process_sets_span_hosts(run):
    done = run("-np", 4, "-H", "h1:2,h2:2", sys.executable, SETS, timeout=360)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["right"] * 4


# --- other ways to a host ---


def test_agents_come_by_ssh(lab, hvdrun):
    """Through a real sshd on each host."""
    place = ["-np", 4, "-H", "h1:2,h2:2", "--ssh-port", "$SSH_PORT", "--ssh-identity-file", "$SSH_KEY"]
    by_rsh = f'{hvdrun} -np 4 -H h1:2,h2:2 --rsh "$SSH" {LOOP} --steps 5'
    by_options = " ".join(map(str, [hvdrun, *place, "--dry-run", "true"]))
    script = f"{by_rsh} && {by_options}"
    done = subprocess.run([lab, "2", "none", SSHD, "2222", "bash", "-c", script], **TEXT)
    if done.returncode == 69:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done 5") == 4
    assert "ssh -x -o BatchMode=yes -p 2222 -i " in done.stdout


@pytest.mark.xdist_group(name="slurm")
def test_agents_come_by_srun(hvdrun, tmp_path):
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("starting Slurm needs root, and Debian's slurm-wlm and munge")
    subprocess.run([SLURM, "start", tmp_path], check=True, timeout=300)
    try:
        environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
        within = ["salloc", "--overcommit", "-n", "2", hvdrun, "--launcher", "slurm", "-np", "2"]
        done = subprocess.run([*within, LOOP, "--steps", "5"], env=environment, **TEXT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("done 5") == 2
    finally:
        subprocess.run([SLURM, "stop", tmp_path], check=True, timeout=300)


# --- many ---


@pytest.mark.timed
def test_sixty_four_empty_ranks_start_quickly(run):
    began = time.monotonic()
    done = run("-np", 64, "-H", "h1:16,h2:16,h3:16,h4:16", "true")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert time.monotonic() - began < at_most(3)


def ages(done):
    """What --verbose says of the job's course: milliseconds by what has happened then, in the order of the lines."""
    assert done.returncode == 0, done.stderr
    said = re.findall(
        r"^hvdrun: all (.*?),? (?:after )?(\d+) ms(?: after they were planned)?$", done.stderr, re.MULTILINE
    )
    return [(event, int(age)) for event, age in said]


def test_where_the_time_of_sixty_four_ranks_goes(run):
    began = time.monotonic()
    done = run("--verbose", "-np", 64, "-H", "h1:16,h2:16,h3:16,h4:16", LOOP, "--steps", 1)
    took_ms = 1000 * (time.monotonic() - began)
    found = ages(done)
    print(f"init and one allreduce: {found}, {took_ms:.0f} ms in all")
    assert [event for event, _ in found] == [
        *("hosts have come", "ranks are started", "ranks have met in init", "ranks have ended"),
    ]
    hosts, started, initialized, ended = (age for _, age in found)
    assert started <= initialized <= ended and hosts + ended < took_ms


def test_ranks_have_met_when_the_last_one_has_come(run, start, tmp_path):
    line = f'test "$HVD_RANK" != 3 || until [ -e {tmp_path}/come ]; do sleep 0.05; done; exec {LOOP} --steps 1'
    process, _ = start("--verbose", "-np", 4, "-H", "h1:2,h2:2", *shell(line), stdout=subprocess.DEVNULL)
    said = ""
    while "all ranks are started" not in said:
        said += process.stderr.readline()
        assert process.poll() is None, said
    time.sleep(0.5)
    (tmp_path / "come").touch()
    said += process.stderr.read()
    found = dict(ages(subprocess.CompletedProcess(process.args, process.wait(PATIENCE_S), stderr=said)))
    assert found["ranks have met in init"] - found["ranks are started"] >= 499  # in whole milliseconds
    assert "ranks have met in init" not in dict(ages(run("--verbose", "-np", 2, "-H", "h1,h2", "true")))
    # One of them does not come, and the others give up.
    line = f'test "$HVD_RANK" != 3 || exit 3; exec {LOOP} --steps 1'
    done = run("--verbose", "-np", 4, "-H", "h1:2,h2:2", *shell(line))
    assert done.returncode == 3 and "have met" not in done.stderr


@LONG
def test_more_hosts_than_hvdrun_has_agents_of_its_own(lab, hvdrun):
    standing = StandingLab(lab, 70)
    try:
        names = ",".join(f"h{host}" for host in range(1, 71))
        done = standing.run(hvdrun, "--rsh", standing.rsh, "-np", 70, "-H", names, *PLACE)
        assert [place[7] for place in places(done)] == [f"h{host}" for host in range(1, 71)]
        assert done.stderr == ""
        done = standing.run(hvdrun, "--rsh", standing.rsh, "-np", 70, "-H", names, LOOP, "--steps", 20, timeout=360)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        assert done.stdout.count("done 20") == 70
        standing.await_nothing_left()
    finally:
        standing.close()


# --- training ---


def parameters_of_digits(lab, hvdrun, place, folder):
    """Trained over the hosts of `place`, and checked against one process: the first 100 losses agree within 1e-4."""
    folder.mkdir()
    command = [*place, "--wdir", folder, "-x", "OMP_NUM_THREADS=1", sys.executable, DIGITS, "--json", "--reference"]
    done = lab.run(hvdrun, *command, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "agrees with one process" in done.stderr and '"identical": true' in done.stdout
    return parameters_in(folder)


def parameters_in(folder):
    torch = pytest.importorskip("torch")
    parameters = torch.load(folder / "digits.pt")["model"]
    return b"".join(value.numpy().tobytes() for value in parameters.values())


@LONG
@pytest.mark.parametrize("each", [1, 4])
def test_digits_twice_over_hosts_are_bitwise_equal(hvdrun, hosts, tmp_path, each):
    names = ",".join(f"h{host}:{each}" for host in range(1, 5))
    place = ("--rsh", hosts.rsh, "-np", 4 * each, "-H", names)
    # Each is compared with one process on its way, and so are 4 ranks on one host.
    if each == 1:
        parameters_of_digits(hosts, hvdrun, ("-np", 4), tmp_path / "one")
    first, second = (parameters_of_digits(hosts, hvdrun, place, tmp_path / name) for name in ("first", "second"))
    assert first == second


@LONG
def test_digits_twice_by_ssh_are_bitwise_equal(lab, hvdrun, tmp_path):
    """Sixteen ranks on four hosts, each with a real sshd; hvdrun calls ssh by its name."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "$SSH_CONFIG" "$@"\n')
    ssh.chmod(0o755)
    runs = [tmp_path / name for name in ("first", "second")]
    for folder in runs:
        folder.mkdir()
    place = f"{hvdrun} -np 16 -H h1:4,h2:4,h3:4,h4:4 -x OMP_NUM_THREADS=1"
    train = f"{place} --wdir $folder {sys.executable} {DIGITS} --json --reference"
    script = f"PATH={tmp_path}:$PATH; for folder in {shlex.join(map(str, runs))}; do {train} || exit; done"
    done = subprocess.run([lab, "4", "none", SSHD, "2222", "bash", "-c", script], **{**TEXT, "timeout": 600})
    if done.returncode == 69:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout, *(line for line in done.stderr.splitlines() if "epochs" not in line), sep="\n")
    assert done.stderr.count("agrees with one process") == 2 and done.stdout.count('"identical": true') == 2
    assert parameters_in(runs[0]) == parameters_in(runs[1])
