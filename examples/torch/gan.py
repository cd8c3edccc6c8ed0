"""A generative adversarial network, trained by several processes: two models, and a DistributedOptimizer for each.

    hvdrun -np 2 python examples/torch/gan.py --steps 1500

The generator learns to make points on a circle out of noise, the discriminator to tell them from true ones. The
generator's loss goes through the discriminator and leaves gradients there that nobody wants; `no_sync()` keeps them
from travelling, and `zero_grad()` drops them.
"""

import argparse
import math

import torch
from torch import nn

import hvd.torch as hvd

BATCH = 128  # points per rank and step
RADIUS = 2.0


def true_points():
    angles = 2 * math.pi * torch.rand(BATCH)
    return RADIUS * torch.stack([angles.cos(), angles.sin()], dim=1) + 0.05 * torch.randn(BATCH, 2)


def perceptron(inputs, outputs):
    return nn.Sequential(
        *(nn.Linear(inputs, 64), nn.LeakyReLU(0.2)),
        *(nn.Linear(64, 64), nn.LeakyReLU(0.2)),
        nn.Linear(64, outputs),
    )


def distributed_adam(model):
    # Both optimizers' parameters are called "0.weight" and so on: each optimizer keeps its names apart.
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, betas=(0.5, 0.9))
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def says(answers, truth):
    return nn.functional.binary_cross_entropy_with_logits(answers, torch.full_like(answers, truth))


@torch.no_grad()
def quality(generator):
    """How far points are from the circle, and the share of its 16 sectors that has some; averaged over the ranks."""
    points = generator(torch.randn(1000, 4))
    distance = (points.norm(dim=1) - RADIUS).abs().mean()
    sectors = (torch.atan2(points[:, 1], points[:, 0]) / math.pi * 8).floor().unique().numel() / 16
    return hvd.allreduce(torch.tensor([distance, sectors])).tolist()


def main():
    parser = argparse.ArgumentParser(description="Trains a generative adversarial network on points of a circle.")
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())  # other points and other noise on every rank
    generator, discriminator = models = nn.ModuleList([perceptron(4, 2), perceptron(2, 1)])
    generator_optimizer, discriminator_optimizer = (distributed_adam(model) for model in models)
    hvd.broadcast_parameters(models.state_dict(), root_rank=0)
    distance_before, _ = quality(generator)

    for _ in range(options.steps):
        made = generator(torch.randn(BATCH, 4))
        discriminator_optimizer.zero_grad()
        loss = says(discriminator(true_points()), 0.9) + says(discriminator(made.detach()), 0.0)
        loss.backward()
        discriminator_optimizer.step()

        generator_optimizer.zero_grad()
        with discriminator_optimizer.no_sync():
            says(discriminator(made), 1.0).backward()
        generator_optimizer.step()

    distance, sectors = quality(generator)
    parameters = nn.utils.parameters_to_vector(models.parameters()).detach()
    same = torch.equal(hvd.allreduce(parameters, op=hvd.Min), hvd.allreduce(parameters, op=hvd.Max))
    assert same, "the ranks' models have come apart"
    if hvd.rank() == 0:
        print(f"points are {distance:.2f} away from the circle on average ({distance_before:.2f} before training)")
        print(f"and in {sectors:.0%} of its sectors, {hvd.size()} ranks", flush=True)


if __name__ == "__main__":
    main()
