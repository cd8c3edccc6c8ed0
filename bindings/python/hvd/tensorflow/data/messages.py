"""A question and its answer over a connection between two processes that share a key.

Each side begins with 32 random bytes. A message is its length, an HMAC-SHA256, and JSON; the HMAC is over the sender's
role, both sides' random bytes and the JSON, so that a message cannot be changed, sent back, or used on another
connection. Messages are authentic, not secret. Nothing is unpickled, and nothing larger than `LARGEST` is read.

    client                  server
    nonce ───────────────►
          ◄─────────────── nonce
    length, HMAC, question ►
          ◄ length, HMAC, answer
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any

LARGEST = 1 << 16  # bytes of JSON

_HEADER = struct.Struct("!I32s")
_NONCE_BYTES = 32


class MessageError(ConnectionError):
    """The other side does not speak this protocol, or does not know the key."""


class Exchange:
    """One side of a connection, for one question and one answer."""

    def __init__(self, connection: socket.socket, key: bytes, is_client: bool, seconds: float) -> None:
        """Sends this side's nonce and waits for the other's.

        Args:
            connection: not closed by this class.
            seconds: for the nonces; `receive` has a time of its own.
        """
        self._connection = connection
        self._key = key
        self._own_role, self._other_role = (b"client", b"server") if is_client else (b"server", b"client")
        local_nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.settimeout(seconds)
        connection.sendall(local_nonce)
        other_nonce = self._read(_NONCE_BYTES, time.monotonic() + seconds)
        self._nonces = local_nonce + other_nonce if is_client else other_nonce + local_nonce

    def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode()
        if len(text) > LARGEST:
            raise ValueError(f"a message of {len(text)} bytes: more than {LARGEST}")
        self._connection.sendall(_HEADER.pack(len(text), self._code(self._own_role, text)) + text)

    def receive(self, seconds: float) -> dict[str, Any]:
        """The other side's message.

        Raises:
            MessageError: it is not authentic, too large, or no JSON object.
            OSError: it did not come whole in time.
        """
        deadline = time.monotonic() + seconds
        length, code = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if length > LARGEST:
            raise MessageError(f"a message of {length} bytes: more than {LARGEST}")
        text = self._read(length, deadline)
        if not hmac.compare_digest(code, self._code(self._other_role, text)):
            raise MessageError("a message that was not made with the key")
        try:
            message = json.loads(text)
        except ValueError as error:
            raise MessageError("a message that is no JSON") from error
        if not isinstance(message, dict):
            raise MessageError("a message that is no JSON object")
        return message

    def _code(self, role: bytes, text: bytes) -> bytes:
        return hmac.new(self._key, role + self._nonces + text, hashlib.sha256).digest()

    def _read(self, count: int, deadline: float) -> bytes:
        """All of the bytes by the deadline, however slowly they come."""
        received = b""
        while len(received) < count:
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            part = self._connection.recv(count - len(received))
            if not part:
                raise MessageError("the connection was closed too early")
            received += part
            if time.monotonic() > deadline and len(received) < count:
                raise socket.timeout("timed out")
        return received
