"""Connections between the driver, ranks and feeding tasks: frames over TCP, between processes that have proven to each
other that they know one key.

The key is made on the driver and reaches the tasks in their closures, on the way that Spark's own secrets take
(spark.network.crypto.enabled encrypts it). After the handshake bytes are neither signed nor encrypted, as between
ranks.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_HEADER = struct.Struct(">BIQ")  # kind, number, length
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_HANDSHAKE_S = 10.0
_MOST_HANDSHAKES = 64  # at once; further connections are closed
_LONGEST_FRAME = 1 << 31
_ACCEPT_NAP_S = 0.1  # where no connection can be accepted
_MOST_PARTS = 512  # of a system call; the system's limit is 1024


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Closed(ConnectionError):
    """The other end closed the connection, between two frames."""


class Frame(NamedTuple):
    kind: int
    data: bytearray
    number: int


class Connection:
    """Frames of a kind, bytes and a number below 2^32. Any thread may send; one receives.

    Errors: OSError if the connection breaks, Closed (one of them) if the other end has closed it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that has vanished is noticed after half a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    @property
    def local_host(self) -> str:
        """This end's address: one by which the other end's host reaches this one."""
        return str(self._socket.getsockname()[0])

    def set_timeout(self, seconds: float | None) -> None:
        """For each further receive and send, within which some bytes must move; TimeoutError (an OSError) else."""
        self._socket.settimeout(seconds)

    def send(self, kind: int, *parts: bytes | bytearray | memoryview, number: int = 0) -> None:
        header = _HEADER.pack(kind, number, sum(map(len, parts)))
        with self._sending:
            self._send_all([header, *parts])

    def _send_all(self, parts: list[bytes | bytearray | memoryview]) -> None:
        """With few system calls, and without copies of large parts."""
        while parts:
            sent = self._socket.sendmsg(parts[:_MOST_PARTS])
            done = 0
            while done < len(parts) and sent >= len(parts[done]):
                sent -= len(parts[done])
                done += 1
            parts = parts[done:]
            if sent > 0:
                parts[0] = memoryview(parts[0])[sent:]

    def receive(self, spare: bytearray | None = None) -> Frame:
        """spare: becomes the frame's data, if there is room for them."""
        header = bytearray(_HEADER.size)
        if not self._fill(header):
            raise Closed("the other end has closed the connection")
        kind, number, size = _HEADER.unpack(header)
        if size > _LONGEST_FRAME:
            raise ConnectionError(f"a frame of {size} bytes: the other end is not hvd's")
        if spare is not None and size <= len(spare):
            data = spare
            del data[size:]
        else:
            data = bytearray(size)
        if size > 0 and not self._fill(data):
            raise ConnectionError("the connection broke within a frame")
        return Frame(kind, data, number)

    def has_input(self) -> bool:
        """Whether `receive` has something to read. No timeout may be set."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    def _fill(self, buffer: bytearray) -> bool:
        """False at the end of the stream, if it comes before the first byte."""
        view, done = memoryview(buffer), 0
        while done < len(buffer):
            # In one call if it has no deadline: each return waits for the interpreter's lock.
            count = self._socket.recv_into(view[done:], 0, socket.MSG_WAITALL)
            if count == 0 and done == 0:
                return False
            if count == 0:
                raise ConnectionError("the connection broke within a frame")
            done += count
        return True

    def close(self) -> None:
        """Ends receiving and sending in other threads, too."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Listener:
    """Listens on all interfaces, or on one, and calls `serve` with each authenticated connection, in a thread of its
    own; the connection is closed when `serve` returns."""

    def __init__(self, key: bytes, serve: Callable[[Connection], None], host: str = "") -> None:
        self._key = key
        self._serve = serve
        self._socket = socket.create_server((host, 0), backlog=1024)
        self._handshakes = threading.Semaphore(_MOST_HANDSHAKES)
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="hvd-accept", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                time.sleep(_ACCEPT_NAP_S)  # no descriptors are left, for instance
                continue
            if self._handshakes.acquire(blocking=False):
                threading.Thread(target=self._meet, args=(sock,), name="hvd-connection", daemon=True).start()
            else:
                sock.close()

    def _meet(self, sock: socket.socket) -> None:
        connection = Connection(sock)
        with self._lock:
            self._open.add(connection)
        try:
            try:
                sock.settimeout(_HANDSHAKE_S)
                own = secrets.token_bytes(_NONCE_BYTES)
                sock.sendall(own)
                answer = _exactly(sock, _NONCE_BYTES + _PROOF_BYTES)
                other, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
                if not hmac.compare_digest(proof, _proof(self._key, b"client", own, other)):
                    return
                sock.sendall(_proof(self._key, b"server", own, other))
                sock.settimeout(None)
            finally:
                self._handshakes.release()
            self._serve(connection)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def close(self) -> None:
        """Closes all connections, too."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            connection.close()


def connect(address: Address, key: bytes, what: str) -> Connection:
    """Raises ConnectionError that names `what` listens there: "the driver", and says what to do."""
    try:
        sock = socket.create_connection(address, timeout=_HANDSHAKE_S)
    except OSError as error:
        raise ConnectionError(
            f"{what} cannot be reached at {address} from {socket.gethostname()} ({error}): executors and the driver "
            "connect to each other at ports that the system chooses; let no firewall be between them"
        ) from None
    try:
        other = _exactly(sock, _NONCE_BYTES)
        own = secrets.token_bytes(_NONCE_BYTES)
        sock.sendall(own + _proof(key, b"client", other, own))
        if not hmac.compare_digest(_exactly(sock, _PROOF_BYTES), _proof(key, b"server", other, own)):
            raise ConnectionError("it does not know the key")
    except OSError as error:
        sock.close()
        raise ConnectionError(f"{what} at {address} does not answer as hvd does: {error}") from None
    sock.settimeout(None)
    return Connection(sock)


def new_key() -> bytes:
    return os.urandom(32)


def _proof(key: bytes, side: bytes, servers: bytes, clients: bytes) -> bytes:
    return hmac.digest(key, b"hvd.spark " + side + servers + clients, "sha256")


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("it has closed the connection")
        data += part
    return data
