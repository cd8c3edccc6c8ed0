"""A rank is killed while it writes its part of a checkpoint, the second: loses_a_part.py FOLDER"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from typing import Any

import hvd
from hvd import checkpoint, elastic


class Parts(elastic.ObjectState):
    """Each rank has a part of it."""

    def is_sharded(self) -> bool:
        return True

    def write(self, saved: dict[str, Any], folder: pathlib.Path, rank: int = 0) -> list[pathlib.Path]:
        (folder / f"part-{rank}").write_text(json.dumps(saved["objects"]))
        return [folder / f"part-{rank}"]

    def complete(self, folder: pathlib.Path, ranks: int) -> list[pathlib.Path]:
        (folder / "ranks").write_text(str(ranks))
        return [folder / "ranks"]

    def read(self, folder: pathlib.Path) -> None:
        rank = self._rank() % int((folder / "ranks").read_text())
        self.load({"objects": json.loads((folder / f"part-{rank}").read_text())})


class Losing(Parts):
    def write(self, saved: dict[str, Any], folder: pathlib.Path, rank: int = 0) -> list[pathlib.Path]:
        if rank == 1 and saved["objects"]["step"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(saved, folder, rank)


if __name__ == "__main__":
    hvd.init()
    state: Any = Losing(lambda given: given, hvd.rank, step=0)
    checkpoints = checkpoint.keep(state, sys.argv[1], seconds=0)
    assert checkpoints is not None
    for state.step in range(1, 1000):
        state.commit()
        checkpoints.wait()
