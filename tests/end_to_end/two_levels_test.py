"""What moves between 2, 4 and, with --all, 8 hosts: what their leaders say; inside a host there is shared memory."""

import collections
import itertools
import json
import pathlib
import re
import time

import pytest
from standing_lab import PATIENCE_S, StandingLab, descendants, find_hvdrun, read, words_of

PROGRAM = pathlib.Path(__file__).parents[2] / "build/release/tests/end_to_end/allreduce_loop"
EACH = 3  # ranks of a host
BYTES = 1 << 20  # of an allreduce


@pytest.fixture(scope="module")
def hvdrun():
    return find_hvdrun(PROGRAM)


@pytest.fixture(scope="module", params=[2, 4, pytest.param(8, marks=pytest.mark.long)])
def hosts(lab, request):
    standing = StandingLab(lab, request.param)
    standing.number = request.param
    yield standing
    standing.await_nothing_left()
    standing.close()


@pytest.fixture
def job(hvdrun, hosts):
    """Command line of allreduce_loop with EACH ranks on each host."""
    names = ",".join(f"h{host}:{EACH}" for host in range(1, hosts.number + 1))
    return lambda *options: [
        *(hvdrun, "--rsh", hosts.rsh, "-np", EACH * hosts.number, "-H", names),
        *(*options[: options.index("--")], PROGRAM, *options[options.index("--") + 1 :]),
    ]


def tree_edges(rank, hosts):
    """Of the control tree: from a host's ranks to its leader, the lowest one, and from the leaders to rank 0."""
    if rank % EACH:
        return 1
    return EACH - 1 + (hosts - 1 if rank == 0 else 1)


def ranks_below(process):
    """By their number in the lab, which is what ss says."""
    found = {}
    for pid in descendants(process.pid):
        if words_of(pid)[:1] != [str(PROGRAM)]:
            continue
        variables = dict(entry.partition(b"=")[::2] for entry in read(f"/proc/{pid}/environ").split(b"\0"))
        status = dict(line.split(":", 1) for line in read(f"/proc/{pid}/status").decode().splitlines())
        found[int(status["NSpid"].split()[-1])] = int(variables[b"HVD_RANK"])
    return found


def connections_of_ranks(hosts, ranks):
    """For each rank, a number for each of its connections to other ranks: the bytes that it has sent there."""
    sent = collections.defaultdict(list)
    for host in range(1, hosts.number + 1):
        # Two lines for each connection; the store's are on the loopback device.
        lines = hosts.run(hosts.netlab, "on", f"h{host}", "ss -tinpH state established").stdout.splitlines()
        for place, facts in itertools.pairwise(lines):
            owner = re.search(r"\bpid=(\d+)", place)
            if not owner or "127.0.0.1:" in place or int(owner[1]) not in ranks:
                continue
            count = re.search(r"\bbytes_sent:(\d+)", facts)
            sent[ranks[int(owner[1])]].append(int(count[1]) if count else 0)
    return sent


def bytes_sent(hosts):
    """By the loopback device and by the network interface of each host."""
    sent = {"lo": [], "eth0": []}
    for host in range(1, hosts.number + 1):
        for row in hosts.run(hosts.netlab, "on", f"h{host}", "cat /proc/net/dev").stdout.splitlines()[2:]:
            device, _, fields = row.partition(":")
            sent[device.strip()].append(int(fields.split()[8]))
    return sent


def await_all(hosts, process, out, err, line):
    deadline = time.monotonic() + PATIENCE_S
    while out.read_text().count(line + "\n") < EACH * hosts.number:
        assert time.monotonic() < deadline and process.poll() is None, out.read_text() + err.read_text()
        time.sleep(0.05)


def test_data_crosses_a_network_once_for_each_host(hosts, job, tmp_path):
    """Not once for each rank; and never the loopback device, by which ranks of a host reach each other over TCP."""
    enough, timeline, out, err = (tmp_path / name for name in ("enough", "timeline", "out", "err"))
    before = bytes_sent(hosts)
    variables = ["-x", f"HVD_TIMELINE={timeline}", "-x", "HVD_SCHEDULE_LOCK=0", "-x", "HVD_SOCKETS_PER_PEER=1"]
    variables += [
        "-x",
        "HVD_ALGORITHM=allreduce:0-=ring",
    ]  # what a busy machine finds out of its links may suggest others
    with out.open("w") as output, err.open("w") as errors:
        command = job(*variables, "--", "--bytes", BYTES, "--until", enough, "--announce", 10)
        process = hosts.popen(command, stdout=output, stderr=errors)
    try:
        await_all(hosts, process, out, err, "step 100")
        sent = connections_of_ranks(hosts, ranks_below(process))
    finally:
        enough.touch()
    assert process.wait(PATIENCE_S) == 0, err.read_text()
    after = bytes_sent(hosts)

    steps = int(re.search(r"^done (\d+)$", out.read_text(), re.MULTILINE)[1])
    performed = collections.Counter(event.get("name") for event in json.loads(timeline.read_text()))
    assert performed["two-level"] == performed["ALLREDUCE"] == steps
    # What an allreduce cannot do without, if each host has one leader; and headers, acknowledgements, the first probes.
    least = steps * 2 * BYTES * (hosts.number - 1) // hosts.number
    crossed = [now - then for now, then in zip(after["eth0"], before["eth0"], strict=True)]
    looped = [now - then for now, then in zip(after["lo"], before["lo"], strict=True)]
    print(
        f"{steps} steps of {BYTES} bytes: a host has sent {max(crossed) / least:.3f} of the least, {max(looped)} by lo"
    )
    assert least < min(crossed) and max(crossed) < 1.15 * least + (16 << 20)
    assert max(looped) < BYTES
    # All ranks have connections to all others, for what is not an allreduce, and those of the control tree.
    size = EACH * hosts.number
    assert {rank: len(each) for rank, each in sent.items()} == {
        rank: size - 1 + tree_edges(rank, hosts.number) for rank in range(size)
    }
    leaders = [sum(each) for rank, each in sent.items() if rank % EACH == 0]
    others = [sum(each) for rank, each in sent.items() if rank % EACH]
    assert min(leaders) > 100 * BYTES and max(others) < BYTES, sent


def test_control_messages_go_along_a_tree(hosts, job):
    """A rank asks its leader, a leader rank 0, for all ranks of its host at once; and so do answers come back."""
    steps = 200
    options = ("-x", "HVD_SCHEDULE_LOCK=0", "--", "--steps", steps, "--announce", 0, "--metric", "control_messages")
    done = hosts.run(*job("--tag-output", *options))
    assert done.returncode == 0, done.stderr
    said = re.findall(r"^\[(\d+)\]<stdout>:control_messages (\d+)$", done.stdout, re.MULTILINE)
    messages = {int(rank): int(count) for rank, count in said}
    print(messages)
    assert sorted(messages) == list(range(EACH * hosts.number))
    for rank, count in messages.items():
        # One for each edge: up, or down. More only where somebody is late.
        expected = steps * tree_edges(rank, hosts.number)
        assert expected <= count < 1.5 * expected, messages
