"""Ports for servers that a test starts later."""

import contextlib
import secrets
import socket

# Below those that Linux gives to connections (net.ipv4.ip_local_port_range): one of those could become a connection's
# of a test beside this one before the server is there.
CHOICE = range(10000, 32000)


def free_ports(count: int) -> list[int]:
    """Different ports on which nobody listens."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            port = secrets.choice(CHOICE)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("", port)))
                ports.append(port)
    return ports
