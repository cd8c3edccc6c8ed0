"""One rank of a job that runs the programs of a page in docs/, over hvd and then as a user would write them who has
never heard of hvd, and compares what they have trained. Arguments: the page, and whether this program is to start the
ranks with the page's own lines ("starts"), or which package is meant by the page's "lightning.pytorch"."""

from __future__ import annotations

import gc
import os
import re
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hvd.torch as hvd

PAGE, SPECIALLY = sys.argv[1], sys.argv[2:]
PROGRAMS = re.findall(
    r"^```python\n(.*?)^```$", (Path(__file__).parents[3] / "docs" / PAGE).read_text(), re.MULTILINE | re.DOTALL
)


def trained(program: str, backend: str) -> torch.Tensor:
    """The parameters that a program ends with, as one row, the same on both ranks. Ranks begin with different ones."""
    torch.manual_seed(int(os.environ.get("LOCAL_RANK", "0")))
    sent_before = bytes_through_hvd()
    script: dict = {"__name__": "page"}
    exec(compile(program, PAGE, "exec"), script)
    model = script["train"]() if "train" in script else script["model"]
    row = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert (dist.get_backend(), dist.get_world_size()) == (backend, 2)
    sent = bytes_through_hvd() - sent_before  # a few by which ranks find each other go through hvd for gloo, too
    assert (sent > row.nbytes) == (backend == "hvd"), sent
    rows = [torch.empty_like(row) for _ in range(2)]
    dist.all_gather(rows, row)
    assert torch.equal(*rows)
    if backend == "hvd":  # gloo does not meet twice in torchrun's store
        dist.destroy_process_group()
        gc.collect()
        hvd.barrier()  # else a rank may find the store of before at the port of the next one
    return row


def bytes_through_hvd() -> int:
    return hvd.metrics()["bytes"] if hvd.is_initialized() else 0


def compare(name: str, over_hvd: torch.Tensor, over_gloo: torch.Tensor) -> None:
    torch.testing.assert_close(over_hvd, over_gloo)
    print(f"rank {hvd.rank()} of {hvd.size()}: {name} as over gloo", flush=True)


def lightning() -> None:
    package = SPECIALLY[0] if SPECIALLY else "lightning.pytorch"
    with_own_strategy, ddp = (text.replace("lightning.pytorch", package) for text in PROGRAMS)
    with_ddp = with_own_strategy.replace("strategy = HvdStrategy()\n", ddp)
    forgotten = with_own_strategy.replace("    strategy=strategy,\n", "")
    alone = with_own_strategy.replace("devices=2", "devices=1")
    assert len({with_own_strategy, with_ddp, forgotten, alone}) == 4
    if "RANK" in os.environ:  # a launcher's
        with pytest.raises(ValueError, match=r"devices=1\b.*\b2\b"):  # under torchrun it is Lightning's own
            trained(alone, "hvd")
    rows = [trained(with_own_strategy, "hvd"), trained(with_ddp, "hvd"), trained(forgotten, "gloo")]
    compare("HvdStrategy", rows[0], rows[2])
    compare("DDPStrategy", rows[1], rows[2])


def huggingface() -> None:
    from accelerate.state import AcceleratorState

    programs = dict(zip(("Accelerate", "Trainer"), PROGRAMS))
    rows = {}
    for backend in ("hvd", "gloo"):
        for name, program in programs.items():
            forgotten = program.replace('    dist.init_process_group("hvd")', "    ")
            assert forgotten != program
            rows[name, backend] = trained(program if backend == "hvd" else forgotten, backend)
            AcceleratorState._reset_state(reset_partial_state=True)
    for name in programs:
        compare(name, rows[name, "hvd"], rows[name, "gloo"])


if PAGE == "lightning.md":
    lightning()
elif SPECIALLY == ["starts"]:
    import transformers  # noqa: F401 (once for both ranks)
    from transformers import Trainer  # noqa: F401

    exec(PROGRAMS[-1], {"train": huggingface})
else:
    huggingface()
