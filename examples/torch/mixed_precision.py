"""Mixed precision, trained by several processes: autocast, GradScaler and clipping, as with one process.

    hvdrun -np 2 python examples/torch/mixed_precision.py --dtype bfloat16
    hvdrun -np 2 python examples/torch/mixed_precision.py --dtype float16

float16 has a small range, so that its losses are scaled up before the backward pass. When `backward()` returns,
gradients are averaged: if they overflowed on one rank, they are not finite on any, and all ranks skip that step and
lower their scales. bfloat16 has the range of float32 and needs no scaler. The digits come with scikit-learn.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import hvd.torch as hvd

BATCH = 32  # images per rank and step


def load_images():
    """Images and labels, the same order on every rank; the first fifth is for testing."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    return images[order], torch.tensor(digits.target)[order]


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits in mixed precision.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], default="bfloat16")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    images, labels = load_images()
    tests = len(images) // 5
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    # Parameters and gradients are of float32; gradients travel as bfloat16, in half the bytes.
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=hvd.Compression.bf16)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    # The scale that it begins with is too large on purpose, so that steps are skipped.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, enabled=dtype is torch.float16)

    for epoch in range(options.epochs):
        order = torch.randperm(len(images) - tests, generator=torch.Generator().manual_seed(epoch)) + tests
        for chosen in order.split(BATCH * size)[:-1]:
            mine = chosen[rank::size]
            with torch.autocast("cpu", dtype=dtype):
                loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)  # for clipping: of averaged gradients, in their true size
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()

    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        right = (model(images[rank:tests:size]).argmax(dim=1) == labels[rank:tests:size]).sum()
    accuracy = hvd.allreduce(right, op=hvd.Sum).item() / tests
    scale = torch.tensor([scaler.get_scale()])
    parameters = torch.cat([scale, nn.utils.parameters_to_vector(model.parameters()).detach()])
    same = torch.equal(hvd.allreduce(parameters, op=hvd.Min), hvd.allreduce(parameters, op=hvd.Max))
    assert same, "the ranks' models or scales have come apart"
    if rank == 0:
        print(f"test accuracy {accuracy:.1%} in {options.dtype}, scale {scale.item():.0f}, {size} ranks", flush=True)


if __name__ == "__main__":
    main()
