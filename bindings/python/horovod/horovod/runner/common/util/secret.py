"""Job keys, for programs that make them themselves; hvd makes its own."""

from __future__ import annotations

import secrets

DIGEST_LENGTH = 32


def make_secret_key() -> bytes:
    return secrets.token_bytes(DIGEST_LENGTH)
