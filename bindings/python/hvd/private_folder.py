"""A temporary folder that does not outlive the processes that use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

# Waits for the end of a pipe, which comes once no process holds its write end.
_REMOVER = 'read -r none; exec rm -rf -- "$0"'


class PrivateFolder:
    """A temporary folder that only its owner can read. A context manager; leaving it removes the folder.

    If this process is killed first, the folder is removed once the processes that were started with
    `pass_fds=(folder.held,)` have ended, too.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            self._remover, self.held = _start_remover(self.path)
        except OSError:
            self.path.rmdir()
            raise

    def remove(self) -> None:
        self._remover.kill()
        self._remover.wait()
        os.close(self.held)
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _start_remover(path: Path) -> tuple[subprocess.Popen[bytes], int]:
    all_have_ended, held = os.pipe()
    try:
        remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVER, str(path)],
            stdin=all_have_ended,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that it survives signals to this process's group
        )
    except OSError:
        os.close(held)
        raise
    finally:
        os.close(all_have_ended)
    return remover, held
