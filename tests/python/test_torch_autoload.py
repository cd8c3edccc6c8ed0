"""init_process_group("hvd") in a script that imports torch alone: what `import torch` brings along, and its cost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from timeouts import at_most


def run(code: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


NOTHING_OF_HVD = """
import sys
assert not [name for name in sys.modules if name.split(".")[0] in ("hvd", "horovod")]
assert "libhvd" not in open("/proc/self/maps").read()
"""


def test_a_process_group_of_hvd_without_importing_it():
    autoloads = hasattr(torch, "_import_device_backends")  # from 2.5 on; before that the import is needed
    code = f"""
import torch, torch.distributed as dist
{NOTHING_OF_HVD}
{"" if autoloads else "import hvd.torch"}
dist.init_process_group("hvd")
tensor = torch.ones(3)
dist.all_reduce(tensor)
print(dist.get_backend(), tensor.tolist())
dist.destroy_process_group()
"""
    of_one = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    assert run(code, **of_one) == "hvd [1.0, 1.0, 1.0]\n"


@pytest.mark.timed
def test_what_import_torch_calls_is_quick_loads_nothing_and_never_raises():
    code = f"""
import time, torch
import torch.distributed as dist
registered = dist.Backend.register_backend
def refuse(*_, **__):
    raise AssertionError("a torch that has changed")
dist.Backend.register_backend = refuse
began = time.perf_counter()
import hvd_torch_autoload
hvd_torch_autoload.register()
dist.Backend.register_backend = registered
hvd_torch_autoload.register()
hvd_torch_autoload.register()
print(time.perf_counter() - began)
assert "hvd" in dist.Backend.backend_list
{NOTHING_OF_HVD}
"""
    assert float(run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")) < at_most(0.002)
