"""A character model whose parameters, gradients and optimizer state are divided among the ranks: FSDP2 over hvd.

    hvdrun -np 2 python examples/torch/fsdp2.py
    torchrun --nproc-per-node 2 examples/torch/fsdp2.py

It reads the pages of Python's documentation that come with Python.
"""

from __future__ import annotations

import argparse
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import hvd.torch  # noqa: F401  makes the backend "hvd" known

CONTEXT = 32


class CharacterModel(nn.Module):
    """Predicts the next character from the last ones, by attention and a perceptron per layer."""

    def __init__(self, characters: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.zeros(CONTEXT, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.output = nn.Linear(width, characters)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        hidden = self.embedding(characters) + self.position
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.output(hidden.flatten(0, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description="A character model with FSDP2 over hvd.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16, help="sequences per rank and step")
    arguments = parser.parse_args()

    dist.init_process_group("hvd")
    rank, size = dist.get_rank(), dist.get_world_size()
    text = "\n".join(topics.values())
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([letters[letter] for letter in text])

    torch.manual_seed(0)  # the same parameters on every rank before they are divided
    model = CharacterModel(len(letters))
    everything = sum(parameter.numel() for parameter in model.parameters())
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    own = sum(parameter.to_local().numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if rank == 0:
        print(f"{everything} parameters, {own} of them on rank 0 of {size}")

    generator = torch.Generator().manual_seed(1 + rank)  # other text on every rank
    for step in range(arguments.steps):
        starts = torch.randint(len(data) - CONTEXT - 1, (arguments.batch, 1), generator=generator)
        sequences = data[starts + torch.arange(CONTEXT + 1)]
        loss = nn.functional.cross_entropy(model(sequences[:, :-1]), sequences[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == arguments.steps - 1:
            shown = loss.detach().clone()
            dist.all_reduce(shown, op=dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step}: loss {shown.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
