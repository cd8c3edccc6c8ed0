"""`hvdrun agent --listen` and hvdrun that calls such agents, all on this machine: no ssh, and no lab."""

import hashlib
import hmac
import os
import re
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elastic_test import JOB, check_no_step_is_lost, done
from listening_agents import TIMEOUT, Agents

from ports import free_ports

PLACE = ["sh", "-c", "echo $HVD_RANK $HVD_SIZE $HVD_HOSTNAME; echo key $HVD_JOB_KEY"]


@pytest.fixture
def agents(tmp_path):
    agents = Agents(tmp_path)
    yield agents
    agents.close()


def test_an_agent_serves_one_job_after_the_other(agents):
    for name in ("h1", "h2"):
        agents.start(name)
    for _ in range(2):
        job = agents.hvdrun("-np", 4, "-H", "h1:2,h2:2", *PLACE)
        assert job.finish() == 0, job.text
        assert {line for line in job.text.splitlines() if "key" not in line} == {
            *("0 4 h1", "1 4 h1", "2 4 h2", "3 4 h2"),
        }
        keys = set(re.findall(r"key (\w+)", job.text))
        assert len(keys) == 1 and agents.key not in keys, "ranks have a key of their own job"
    failing = agents.hvdrun("-np", 2, "-H", "h1,h2", "sh", "-c", "exit $((3 * HVD_RANK))")
    assert failing.finish() == 3 and "rank 1 on h2 failed first: exit code 3" in failing.text, failing.text
    code, said = agents.end("h1")
    assert code == 128 + signal.SIGTERM and said.count("serves hvdrun at 127.0.0.1") == 3, said


def test_the_collectives_of_ranks_under_listening_agents(agents):
    for name in ("h1", "h2"):
        agents.start(name, "--once")
    program = (
        "import hvd, numpy; hvd.init(); print('sum', hvd.allreduce(numpy.ones(3), op=hvd.Sum)[0], hvd.local_size())"
    )
    job = agents.hvdrun("-np", 2, "-H", "h1,h2", sys.executable, "-c", program)
    assert job.finish() == 0 and job.text.count("sum 2.0 2\n") == 2, job.text  # they share this machine's memory
    for name in ("h1", "h2"):
        assert agents.processes.pop(name).wait(TIMEOUT) == 0, "it ends with its first job"


def test_hvdrun_waits_for_agents_that_come_later(agents):
    agents.start("h1")
    first = agents.hvdrun("-np", 1, "-H", "h1", "sh", "-c", "read line < /dev/zero & echo runs; sleep 2")
    first.await_text("runs")
    second = agents.hvdrun("-np", 1, "-H", "h1", *PLACE)
    second.await_text("h1: the agent there serves another hvdrun, at 127.0.0.1, until that job has ended")
    (port,) = free_ports(1)
    agents.name("late", port)
    third = agents.hvdrun("-np", 1, "-H", "late", *PLACE)
    time.sleep(0.3)
    late = subprocess.Popen(
        ["hvdrun", "agent", "--listen", str(port), "--once"], env=agents.environment(), stdout=subprocess.DEVNULL
    )
    assert third.finish() == 0 and "0 1 late" in third.text, third.text
    assert late.wait(TIMEOUT) == 0
    assert first.finish() == 0, first.text
    assert second.finish() == 0 and "0 1 h1" in second.text, second.text


def test_agents_end_with_their_standard_input(agents):
    """One that was never called, and one that serves a job, whose rank would run for ever."""
    idle, serving = (agents.start(name, "--until-eof", stdin=subprocess.PIPE) for name in ("h1", "h2"))
    job = agents.hvdrun("-np", 1, "-H", "h2", "sh", "-c", "echo runs as $$; read line < /dev/zero")
    job.await_text(r"runs as \d+\n")
    for agent in (idle, serving):
        agent.stdin.close()
        assert agent.wait(TIMEOUT) == 128 + signal.SIGTERM
        assert "ends: whoever has started it has ended" in agent.stderr.read()
    agents.processes.clear()
    assert job.finish() != 0 and "host h2" in job.text, job.text
    assert not Path("/proc", re.search(r"runs as (\d+)", job.text)[1]).exists()


def test_errors_say_what_to_do(agents):
    agents.start("h1")
    agents.name("h2", 9)
    other = {"HVD_JOB_KEY": secrets.token_hex(32)}
    wrong = agents.hvdrun("-np", 1, "-H", "h1", "true", **other)
    gone = agents.hvdrun("-np", 1, "-H", "h2", "--start-timeout", 5, "true")
    assert wrong.finish() == 1 and gone.finish() == 1
    told = f"the agent at 127.0.0.1:{agents.ports['h1']} does not accept this hvdrun: not accepted by "
    assert told in wrong.text and "; HVD_JOB_KEY and hvd's version must be the same" in wrong.text, wrong.text
    assert "host h1: " in wrong.text, wrong.text
    told = r"no agent listens at 127.0.0.1:9 \(.*Connection refused\): is `hvdrun agent --listen 9` running there\?"
    assert re.search(told, gone.text) and "host h2: " in gone.text, gone.text
    for options, more, told in [
        (["-H", "h1,h3"], {}, "does not say where the agent of host h3 listens"),
        (["-np", 2], {}, "which hosts? Name them with -H, --hostfile or --host-discovery-script"),
        (["-H", "h1"], {"HVD_JOB_KEY": "short"}, "expected 64 hexadecimal digits"),
        (["-H", "h1", "--rsh", "x"], {}, "say how hosts are reached"),
    ]:
        job = agents.hvdrun(*options, "true", **more)
        assert job.finish() == 2 and told in job.text, job.text
    code, said = agents.end("h1")
    assert code == 128 + signal.SIGTERM and "from 127.0.0.1: it does not know the job's key" in said, said
    for arguments, key, told in [
        (["7780x"], "a" * 64, "with a port"),
        (["0"], None, "openssl rand -hex 32"),
        (["0", "--until-eof"], "a" * 64, "standard input is no pipe"),
    ]:
        environment = {name: value for name, value in os.environ.items() if name != "HVD_JOB_KEY"}
        ended = subprocess.run(
            ["hvdrun", "agent", "--listen", *arguments],
            env={**environment, **({"HVD_JOB_KEY": key} if key else {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert ended.returncode == 2 and told in ended.stderr, ended.stderr


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_an_agent_prints_its_options_when_asked_and_needs_no_key_for_that(option):
    environment = {name: value for name, value in os.environ.items() if name != "HVD_JOB_KEY"}
    done = subprocess.run(["hvdrun", "agent", option], env=environment, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: hvdrun agent --listen [ADDRESS:]PORT [--once] [--until-eof]\n")
    assert {"--listen", "--once", "--until-eof"} <= set(done.stdout.split())


def authenticated(port, key):
    """A connection that knows the key (core/net/authentication.h): what it sends from now on is still not trusted."""
    stream = socket.create_connection(("127.0.0.1", port), timeout=10)
    challenge = stream.recv(40, socket.MSG_WAITALL)
    place, nonce = struct.pack("<Ii", 7, 0), secrets.token_bytes(32)
    said = b"hvd handshake: client" + challenge[8:] + nonce + place
    proof = hmac.new(bytes.fromhex(key), said, hashlib.sha512).digest()[:32]
    stream.sendall(challenge[:4] + place + nonce + proof)
    assert len(stream.recv(32, socket.MSG_WAITALL)) == 32
    return stream


def frame(payload, length=None):
    return struct.pack("<II", 0x64766801, len(payload) if length is None else length) + payload


def test_hostile_peers_do_not_disturb_it(agents):
    agents.start("h1")
    port = agents.ports["h1"]
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    for noise in (b"GET / HTTP/1.1\r\n\r\n", secrets.token_bytes(200), b"\0" * 76):
        with socket.create_connection(("127.0.0.1", port)) as stream:
            stream.sendall(noise)
    insiders = [authenticated(port, agents.key) for _ in range(70)]  # more than it takes
    public = secrets.token_bytes(32)
    attacks = [
        frame(b"", 1 << 30),  # no memory is taken for it
        frame(b"\0" * 32),  # a public key whose shared secret is known
        frame(public) + frame(secrets.token_bytes(100)),
        secrets.token_bytes(500),
    ]
    for stream, attack in zip(insiders, attacks):
        stream.sendall(attack)
        while stream.recv(4096):
            pass  # until it is closed
    for stream in insiders[len(attacks) :]:
        stream.close()
    job = agents.hvdrun("-np", 1, "-H", "h1", *PLACE)
    assert job.finish() == 0 and "0 1 h1" in job.text, job.text
    memory = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{agents.processes['h1'].pid}/status").read_text())[1])
    assert memory < 64 << 10, f"{memory} KB"
    for stream in silent:
        stream.close()


def test_hosts_are_added_to_an_elastic_job_and_preempted(agents, tmp_path):
    hosts = tmp_path / "hosts"

    def names(text):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(hosts)

    agents.start("h1")
    names("h1:1\n")
    discovery = ("--host-discovery-script", f"cat {hosts}", "--discovery-interval", 0.2)
    variables = ("-x", "PYTHONUNBUFFERED=", "-x", f"ENOUGH={tmp_path / 'enough'}")
    job = agents.hvdrun("-np", 1, "--min-np", 1, "--max-np", 2, *discovery, *variables, sys.executable, JOB, 10_000)
    job.await_text(r"step 10 rank 0 of 1\n")
    agents.start("h2")
    names("h1:1\nh2:1\n")
    job.await_text(r"step \d+ rank 1 of 2\n")
    code, said = agents.end("h2")  # as Kubernetes ends a pod
    assert code == 128 + signal.SIGTERM, said
    job.await_text(r"epoch 3 with 1 ranks?, .*; left: process 1; host h2 is preempted\n")
    names("h1:1\n")
    agents.start("h3")
    names("h1:1\nh3:1\n")
    job.await_text(r"epoch 4 with 2 ranks")
    agents.end("h3", signal.SIGKILL)  # as a node dies
    job.await_text(r"epoch 5 with 1 ranks?, .*host h3 is lost")
    (tmp_path / "enough").touch()
    assert job.finish() == 0, job.text
    assert len(done(job.text)) == 1, job.text
    check_no_step_is_lost(job.text)
