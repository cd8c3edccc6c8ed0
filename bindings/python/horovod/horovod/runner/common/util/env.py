"""Environment variables between launchers and ranks."""

from __future__ import annotations

import os
import re

# Shell functions, and what belongs to a shell's own session.
IGNORE_REGEXES = {"BASH_FUNC_.*\\(\\)", "OLDPWD", ".*[^A-Za-z0-9_].*"}

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]

_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(v: str) -> bool:
    """Whether a variable of this name can be handed on to ranks."""
    return not any(re.fullmatch(pattern, v) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """What the launcher says of this process's rank and the job's size, without init(); (0, 1) if there is none.

    Raises:
        ValueError: the variables are not numbers.
    """
    for rank, size in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
