"""DistributedOptimizer with the gradients of a ResNet-50 (161 tensors, 102 MB), by turns
with and without gradient_as_bucket_view; gradients set to None after each step, or zeroed; alone or in groups:

    OMP_NUM_THREADS=1 hvdrun -np 2 python tests/bench/torch_gradients.py

A time is that of a backward pass, which makes given gradients, up to reduced gradients; rank 0's median.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import hvd.torch as hvd
from resnet50 import shapes

STEPS_IN_A_ROW = 5  # so that the schedule may lock


class Produce(torch.autograd.Function):
    """Passes its input on; its backward pass makes a gradient of the parameter's shape."""

    @staticmethod
    def forward(ctx, value, parameter):
        ctx.shape = parameter.shape
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, torch.full(ctx.shape, 1.0)


class Training:
    def __init__(self, set_to_none: bool, **options) -> None:
        self.parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes()]
        self.optimizer = hvd.DistributedOptimizer(torch.optim.SGD(self.parameters, lr=0.0), **options)
        self.set_to_none = set_to_none

    def step(self) -> float:
        value = torch.zeros((), requires_grad=True)
        for parameter in self.parameters:
            value = Produce.apply(value, parameter)
        start = time.perf_counter()
        value.backward()
        self.optimizer.synchronize()
        seconds = time.perf_counter() - start
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    hvd.init()
    torch.set_num_threads(1)
    cases = {
        (kind, "views" if views else "none"): Training(gradient_as_bucket_view=views, **options)
        for kind, options in {
            "set to None": {"set_to_none": True},
            "zeroed": {"set_to_none": False},
            "set to None, 4 groups": {"set_to_none": True, "num_groups": 4},
        }.items()
        for views in (False, True)
    }
    times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case, training in cases.items():
            seconds = [training.step() for _ in range(STEPS_IN_A_ROW)]
            times[case] += seconds if number > 0 else []
    if hvd.rank() == 0:
        for (kind, views), seconds in times.items():
            print(f"{kind:24} {views:6} {statistics.median(seconds) * 1e3:6.1f} ms")


if __name__ == "__main__":
    main()
