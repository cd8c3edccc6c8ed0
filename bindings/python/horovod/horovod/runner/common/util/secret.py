"""Keys of jobs. hvd makes its own; these are for programs that make one themselves."""

from __future__ import annotations

import secrets

DIGEST_LENGTH = 32


def make_secret_key() -> bytes:
    return secrets.token_bytes(DIGEST_LENGTH)
