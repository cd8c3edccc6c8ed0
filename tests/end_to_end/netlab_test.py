"""What netlab.sh promises of names and cuts; tests/bench/collectives_test.py tries its limits and its end."""

import os
import pathlib
import subprocess
import sys

HOSTS_FILE = pathlib.Path("/etc/hosts")

ADDRESSES_OF = "getent ahostsv4 {} | awk '/STREAM/ {{print $1}}'"

ECHO = """
import socket
connection = socket.create_server(("", 4711)).accept()[0]
while heard := connection.recv(64):
    connection.sendall(heard)
"""

# argv: netlab.sh, the echo's script, the address to ask, and what to cut.
ASKING = """
import shlex, socket, subprocess, sys, time
lab, echo, address, *what = sys.argv[1:]
server = subprocess.Popen([lab, "on", "h2", shlex.join([sys.executable, "-c", echo])])
deadline = time.monotonic() + 60
while True:
    try:
        connection = socket.create_connection((address, 4711), timeout=60)
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline

def ask():
    connection.sendall(b"?")
    try:
        return "answered" if connection.recv(64) else "closed"
    except TimeoutError:
        return "silent"

print(ask())
connection.settimeout(2)
subprocess.run([lab, "cut", *what], check=True)
print(ask())
subprocess.run([lab, "join", *what], check=True)
connection.settimeout(60)  # the kernel sends again, at growing intervals
print(ask())
connection.shutdown(socket.SHUT_WR)
while connection.recv(64):  # what was asked in silence is answered too, and may come by itself
    pass
print(server.wait())
"""


def run_in(lab, hosts, *command, networks=1):
    environment = {**os.environ, "NETLAB_NETWORKS": str(networks)}
    words = [str(word) for word in (lab, hosts, "none", *command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_every_name_is_an_address_of_the_lab_wherever_it_is_asked_for(lab):
    before = HOSTS_FILE.read_text()
    names = ["h1", "h2", "h2.netlab", "localhost"]
    ask = "; ".join(ADDRESSES_OF.format(name) for name in names)
    addresses = ["10.9.0.1", "10.9.0.2", "10.9.0.2", "127.0.0.1"]
    assert run_in(lab, 2, "bash", "-c", ask) == addresses
    assert run_in(lab, 2, lab, "on", "h1", ask) == addresses
    assert HOSTS_FILE.read_text() == before


def test_a_host_reaches_itself_under_its_own_name_by_its_address(lab):
    ask = ADDRESSES_OF.format("$(hostname)")
    assert run_in(lab, 2, lab, "on", "h2", ask) == ["10.9.0.2"]
    assert run_in(lab, 2, "bash", "-c", ask) == ["10.9.0.254"]


def test_a_host_that_is_cut_off_is_silent_until_it_is_joined_again(lab):
    heard = run_in(lab, 2, sys.executable, "-c", ASKING, lab, ECHO, "h2", "h2")
    assert heard == ["answered", "silent", "answered", "0"]


def test_a_second_network_is_cut_by_itself(lab):
    for interface, then in (("eth0", "answered"), ("eth1", "silent")):
        heard = run_in(lab, 2, sys.executable, "-c", ASKING, lab, ECHO, "10.8.0.2", "h2", interface, networks=2)
        assert heard == ["answered", then, "answered", "0"]


# argv: netlab.sh.
PARTING = """
import subprocess, sys
lab = sys.argv[1]
for word, here, there in (
    ("part", "h1", "10.9.0.2"),
    ("", "h2", "10.9.0.1"),
    ("", "h1", "10.9.0.3"),
    ("", "h3", "10.9.0.2"),
    ("mend", "h1", "10.9.0.2"),
):
    if word:
        subprocess.run([lab, word, "h1", "h2"], check=True)
    ask = f"python3 -c 'import socket; socket.create_connection((\\"{there}\\", 9), timeout=0.5)' 2>&1 | tail -n 1"
    answer = subprocess.run([lab, "on", here, ask], capture_output=True, text=True).stdout
    print("refused" if "refused" in answer else "silent" if "timed out" in answer else answer)
"""


def test_two_hosts_that_are_parted_still_reach_the_others_until_they_are_mended(lab):
    heard = run_in(lab, 3, sys.executable, "-c", PARTING, lab)
    assert heard == ["silent", "silent", "refused", "refused", "refused"]
