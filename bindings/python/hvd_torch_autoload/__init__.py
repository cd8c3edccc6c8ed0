"""Makes hvd known to torch.distributed: the backend "hvd", init_method="hvd://", and env:// without torch's variables.

PyTorch 2.5 and later call register() at the end of `import torch`, in every program where hvd is installed (the entry
point torch.backends); `import hvd.torch` calls it as well. It is a package of its own so that importing it
imports nothing of hvd, and loads no library, until one of the three is used.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlparse

# Where the url may say it instead.
_VARIABLES = {"RANK": "rank", "WORLD_SIZE": "world_size", "MASTER_ADDR": None, "MASTER_PORT": None}


def register() -> None:
    """Twice is once. Never raises: without hvd PyTorch still works."""
    with contextlib.suppress(Exception):
        _register()


def _register() -> None:
    import torch.distributed as dist

    if not dist.is_available() or "HVD" in dist.Backend._plugins:
        return
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers

    by_variables = handlers["env"]

    def rendezvous_by_variables(url: str, **options: Any) -> Any:
        given = parse_qs(urlparse(url).query)
        wanted = [name for name, key in _VARIABLES.items() if key not in given]
        known = all(os.environ.get(name) for name in wanted)
        # Each group of a job that has joined has a port of its own: the last one's may not be free yet.
        is_ours = _has_joined() and any(_is_set_by_hvd(name) for name in wanted)
        return (by_variables if known and not is_ours else rendezvous_if_launched)(url, **options)

    def rendezvous_if_launched(url: str, **options: Any) -> Any:
        from hvd.torch import backend

        return (backend.rendezvous if backend.is_launched() else by_variables)(url, **options)

    dist.Backend.register_backend("hvd", _make_group, extended_api=True, devices=["cpu", "cuda"])
    dist.register_rendezvous_handler("hvd", _rendezvous)  # type: ignore[no-untyped-call]
    handlers["env"] = rendezvous_by_variables


def _has_joined() -> bool:
    basics = sys.modules.get("hvd.basics")
    return basics is not None and basics.is_initialized()


def _is_set_by_hvd(name: str) -> bool:
    return f"{name}={os.environ.get(name)}" in os.environ.get("HVD_TORCH_VARIABLES", "").split()


def _make_group(*arguments: Any) -> Any:
    from hvd.torch import backend

    return backend.make_group(*arguments)


def _rendezvous(url: str, **options: Any) -> Any:
    from hvd.torch import backend

    return backend.rendezvous(url, **options)
