"""A character model, trained by several processes on text that every Python brings: its licence and documentation.

    hvdrun -np 2 python examples/torch/character_model.py --steps 400

A recurrent network learns to guess the next character. Each rank reads at places of its own, so that a step sees as
many sequences as all ranks take together. In the end rank 0 writes some text, which looks a little like the original.
"""

import argparse
import os
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import nn

import hvd.torch as hvd

LENGTH = 32  # characters of a sequence
BATCH = 16  # sequences per rank and step


class CharacterModel(nn.Module):
    def __init__(self, characters, width=96):
        super().__init__()
        self.embedding = nn.Embedding(characters, width // 2)
        self.memory = nn.GRU(width // 2, width, batch_first=True)
        self.output = nn.Linear(width, characters)

    def forward(self, text, state=None):
        hidden, state = self.memory(self.embedding(text), state)
        return self.output(hidden), state


def python_text():
    licence = Path(os.__file__).with_name("LICENSE.txt")  # not all distributions of Python have it there
    return (licence.read_text(encoding="utf-8") if licence.exists() else "") + "\n".join(topics.values())


def loss_at(model, text, starts):
    sequences = text[starts.unsqueeze(1) + torch.arange(LENGTH + 1)]
    guesses, _ = model(sequences[:, :-1])
    return nn.functional.cross_entropy(guesses.flatten(0, 1), sequences[:, 1:].flatten())


@torch.no_grad()
def write(model, character, length):
    written, state = [], None
    for _ in range(length):
        guess, state = model(character.view(1, 1), state)
        character = torch.multinomial(guess.flatten().softmax(0), 1)
        written.append(character.item())
    return written


def main():
    parser = argparse.ArgumentParser(description="Trains a character model on Python's licence and documentation.")
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())  # also decides where in the text this rank reads
    text = python_text()
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    text = torch.tensor([numbers[character] for character in text])
    train, held_out = text.tensor_split([len(text) * 9 // 10])

    model = CharacterModel(len(characters))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for _ in range(options.steps):
        optimizer.zero_grad()
        loss_at(model, train, torch.randint(len(train) - LENGTH, (BATCH,))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # of the averaged gradients
        optimizer.step()

    with torch.no_grad():  # each rank looks at its part of the text that was held out
        starts = torch.arange(hvd.rank() * LENGTH, len(held_out) - LENGTH, 8 * hvd.size() * LENGTH)
        bits = hvd.allreduce(loss_at(model, held_out, starts)) / torch.log(torch.tensor(2.0))
    parameters = nn.utils.parameters_to_vector(model.parameters()).detach()
    same = torch.equal(hvd.allreduce(parameters, op=hvd.Min), hvd.allreduce(parameters, op=hvd.Max))
    assert same, "the ranks' models have come apart"
    if hvd.rank() == 0:
        print("".join(characters[number] for number in write(model, text[0], 200)))
        print(f"{bits:.2f} bits per character of text not seen before, {hvd.size()} ranks", flush=True)


if __name__ == "__main__":
    main()
