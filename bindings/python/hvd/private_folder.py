"""A temporary folder that does not outlive the processes that use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

# It waits for the end of a pipe, which comes when no process has the other end any more.
_REMOVER = 'read -r none; exec rm -rf -- "$0"'


class PrivateFolder:
    """Only its owner may look inside. A context, at whose end it is removed.

    If this process is killed before, the folder is removed when those have ended, too, that were started with
    `pass_fds=(folder.held,)`.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        all_have_ended, self.held = os.pipe()
        try:
            self._remover = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVER, str(self.path)],
                stdin=all_have_ended,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that it survives signals to this process's group
            )
        except OSError:
            os.close(self.held)
            self.path.rmdir()
            raise
        finally:
            os.close(all_have_ended)

    def remove(self) -> None:
        self._remover.kill()
        self._remover.wait()
        os.close(self.held)
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
