"""A state of FSDP2 goes on with its checkpoint, or makes one with two ranks: sharded_state.py FOLDER"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import hvd.torch as hvd
from hvd.torch.elastic import TorchState


def sharded_state(seed: int, shard: Callable[[nn.Module], object] = fully_shard) -> TorchState:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return TorchState(model, optimizer, scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1), step=0)


def train_step(state: TorchState) -> None:
    state.optimizer.zero_grad()
    state.model(torch.arange(12.0).reshape(4, 3)).square().sum().backward()
    state.optimizer.step()
    state.scheduler.step()
    state.step += 1


def whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.tolist() if isinstance(value, torch.Tensor) else value


def content(state: TorchState) -> list[Any]:
    return [
        whole(state.model.state_dict()),
        whole(state.optimizer.state_dict()),
        state.scheduler.last_epoch,
        state.step,
    ]


if __name__ == "__main__":
    dist.init_process_group("hvd")
    state = sharded_state(seed=hvd.rank())
    hvd.checkpoint.keep(state, sys.argv[1], seconds=0)
    hvd.elastic.run(lambda state: None)(state)
    if hvd.size() == 2:
        train_step(state)
        state.commit()
    shown = content(state)
    if hvd.rank() == 0:
        print("content:", shown)
    dist.destroy_process_group()  # the checkpoint may still be written
