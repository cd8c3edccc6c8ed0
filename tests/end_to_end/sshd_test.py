"""That tests/support/sshd.sh is a real server, on this machine and on the hosts of a lab, and leaves nothing behind."""

import os
import pathlib
import signal
import socket
import subprocess

import pytest

SSHD = pathlib.Path(__file__).parents[1] / "support/sshd.sh"


@pytest.fixture
def sshd(tmp_path, monkeypatch):
    """sshd.sh with its temporary folder in this test's."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if subprocess.run([SSHD, "auto", "true"], capture_output=True).returncode == 69:
        pytest.skip("there is no sshd here")
    return SSHD


def output_of(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_command_runs_behind_it(sshd, tmp_path):
    by_hand = (
        "ssh -p $SSH_PORT -i $SSH_KEY -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
        "127.0.0.1 hostname"
    )
    own = socket.gethostname()
    assert output_of(sshd, "auto", "bash", "-c", f"$SSH localhost hostname && {by_hand}").split() == [own, own]
    assert list(tmp_path.iterdir()) == []


def test_another_key_does_not_open_it(sshd):
    script = (
        'other=$(dirname "$SSH_KEY")/other && ssh-keygen -q -t ed25519 -N "" -f "$other" && '
        "sed s:$SSH_KEY:$other: $SSH_CONFIG > $other.config && ssh -F $other.config 127.0.0.1 hostname"
    )
    done = subprocess.run([sshd, "auto", "bash", "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_each_host_of_a_lab_has_one(sshd, lab):
    script = "for host in h1 h2 10.9.0.2 localhost; do $SSH $host hostname; done"
    heard = output_of(lab, 2, "none", sshd, "2222", "bash", "-c", script).split()
    assert heard == ["h1", "h2", "h2", socket.gethostname()]


def test_a_signal_ends_the_server_and_its_connections(sshd, tmp_path):
    command = [str(sshd), "auto", "bash", "-c", "echo $SSH_PORT; $SSH 127.0.0.1 cat; true"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        port = int(started.stdout.readline())
        print("heard", file=started.stdin, flush=True)
        assert started.stdout.readline() == "heard\n"
        os.kill(started.pid, signal.SIGTERM)
        assert started.wait(timeout=20) == 128 + signal.SIGTERM
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert list(tmp_path.iterdir()) == []
