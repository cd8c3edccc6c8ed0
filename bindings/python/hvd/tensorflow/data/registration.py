"""How the compute workers of a data service and the ranks of a training find each other.

Both are jobs of their own, and know nothing of each other but what a `TfDataServiceConfig` says: the addresses of a
`ComputeService`, and its key. Dispatchers and workers register there, ranks wait until they have. Elements of datasets
never come here: they go from tf.data's workers to the ranks.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hvd.tensorflow.data.messages import Exchange
from hvd.tensorflow.data.registrations import LONGEST_WAIT_S, Registrations

Addresses = Mapping[str, Sequence[tuple[str, int]]]  # host and port, by network interface

_TRANSFER_S = 10.0  # for a connection to be made, and for a message to come
_STOPPING_S = 30.0  # for workers to stop
_POLL_S = 0.1  # how soon the server notices that it is to stop
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of a network interface


class _Server(socketserver.ThreadingTCPServer):
    request_queue_size = 1024
    key: bytes
    registrations: Registrations


class _Handler(socketserver.BaseRequestHandler):
    """A thread of its own for each question."""

    server: _Server

    def handle(self) -> None:
        # A process without the key, or one that is gone. Clients of the service learn on their side what went wrong.
        with contextlib.suppress(OSError):
            exchange = Exchange(self.request, self.server.key, is_client=False, seconds=_TRANSFER_S)
            exchange.send(self.server.registrations.answer(exchange.receive(_TRANSFER_S)))


class ComputeService:
    """Where dispatchers and workers register, in the process that made it, until `shutdown`."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes) -> None:
        self._registrations = Registrations(dispatchers, workers_per_dispatcher)
        self._server = _Server(("", 0), _Handler)
        self._server.key = key
        self._server.registrations = self._registrations
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True)
        self._thread.start()

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Under which other hosts may reach it; the loopback device comes last."""
        port = self._server.server_address[1]
        return {interface: [(host, port)] for interface, host in _own_addresses().items()}

    def shutdown(self) -> None:
        """Tells the workers to stop and waits until they have, half a minute at most; then nobody can register."""
        self._registrations.shutdown()
        self._registrations.wait_until_workers_have_stopped(_STOPPING_S)
        self._server.shutdown()
        self._server.server_close()  # waits for the threads that still answer
        self._thread.join()


def _own_addresses() -> dict[str, str]:
    """This host's IPv4 addresses by network interface."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, interface in socket.if_nameindex():
            name = struct.pack("256s", interface.encode())
            with contextlib.suppress(OSError):  # one without an address
                found[interface] = socket.inet_ntoa(fcntl.ioctl(any_socket, _SIOCGIFADDR, name)[20:24])
    return dict(sorted(found.items(), key=lambda item: item[1].startswith("127.")))


class ComputeClient:
    """Asks a `ComputeService`. Each question has a connection of its own.

    The methods raise ConnectionError if the service is gone, ValueError if it refuses, and TimeoutError, with what was
    missing, if something has not happened within `timeout` seconds.

    Attributes:
        host: this host's address in the network in which it reaches the service.
    """

    host: str

    def __init__(self, addresses: Addresses, key: bytes) -> None:
        self._key = key
        failures = []
        for address in (address for of_interface in addresses.values() for address in of_interface):
            self._address = address
            try:
                self._ask("hello")
                return
            except ConnectionError as error:  # an address may belong to a network that this host is not on
                failures.append(str(error))
        raise ConnectionError(f"{'; '.join(failures)}: does the data service still run, or is its file an old one?")

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        self._ask("register_dispatcher", dispatcher=dispatcher_id, address=dispatcher_address)

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        self._ask("register_worker", dispatcher=dispatcher_id, worker=worker_id)

    def worker_has_stopped(self, dispatcher_id: int, worker_id: int) -> None:
        self._ask("worker_has_stopped", dispatcher=dispatcher_id, worker=worker_id)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """The dispatcher's address, `grpc://host:port`, once it has registered."""
        return self._wait("wait_for_dispatcher", timeout, dispatcher=dispatcher_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Returns once all workers of the dispatcher have registered."""
        self._wait("wait_for_workers", timeout, dispatcher=dispatcher_id)

    def agree_on_job(self, rank: int, size: int, timeout: float) -> str:
        """A new name for a job of tf.data's, once all ranks of the training have asked: the same for all."""
        return self._wait("agree_on_job", timeout, rank=rank, size=size)

    def begin_reading(self, dispatcher_id: int, rank: int) -> None:
        """From here to `end_reading` the rank needs the dispatcher."""
        self._ask("begin_reading", dispatcher=dispatcher_id, rank=rank)

    def end_reading(self, dispatcher_id: int, rank: int) -> None:
        self._ask("end_reading", dispatcher=dispatcher_id, rank=rank)

    def withdraw_dispatcher(self, dispatcher_id: int, timeout: float) -> None:
        """Returns once no rank needs the dispatcher; none may from then on."""
        self._wait("withdraw_dispatcher", timeout, dispatcher=dispatcher_id)

    def abandon_dispatcher(self, dispatcher_id: int) -> None:
        """The dispatcher stops although ranks may need it: no rank begins to read from it, or waits for its workers."""
        self._ask("abandon_dispatcher", dispatcher=dispatcher_id)

    def shutdown(self) -> None:
        """Ends the data service: its workers and dispatchers stop. Returns at once."""
        self._ask("shutdown")

    def wait_for_shutdown(self, timeout: float | None = None) -> None:
        """Returns once somebody has called `shutdown`. With None, for as long as the service lives."""
        self._wait("wait_for_shutdown", timeout)

    def _wait(self, request: str, timeout: float | None, **arguments: Any) -> str:
        """Asks again and again, so that each wait ends soon after the service has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = LONGEST_WAIT_S if deadline is None else max(0.0, deadline - time.monotonic())
            is_there, text = self._ask(request, **arguments, seconds=min(left_s, LONGEST_WAIT_S))
            if is_there:
                return str(text)
            if left_s <= LONGEST_WAIT_S and deadline is not None:
                raise TimeoutError(f"{text} within {timeout:g} s")

    def _ask(self, request: str, **arguments: Any) -> Any:
        try:
            with socket.create_connection(self._address, timeout=_TRANSFER_S) as connection:
                self.host = connection.getsockname()[0]
                exchange = Exchange(connection, self._key, is_client=True, seconds=_TRANSFER_S)
                exchange.send({"request": request, **arguments})
                answer = exchange.receive(arguments.get("seconds", 0) + _TRANSFER_S)
        except OSError as error:
            host, port = self._address
            raise ConnectionError(f"the data service does not answer at {host}:{port}: {error}") from error
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer.get("result")
