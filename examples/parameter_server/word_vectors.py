"""Word vectors of the text that Python's help() shows, in tables that are larger than a server's memory may be.

    HVD_SERVER_MEMORY=2000000 hvdrun -np 2 --servers 2 python examples/parameter_server/word_vectors.py

Skip-gram with negative sampling (Mikolov et al., 2013, arXiv:1310.4546) in NumPy. The key of a word is a hash of it,
so that workers need not agree on numbers: a row comes into being when it is first pushed to. Workers read different
parts of the text, and wait for nobody.

Every tenth sentence is kept for the test: how often a word's real neighbour fits it better than a word drawn at random,
which is half the time before training. With --servers 1 and that memory, the server refuses the rows that it has no
room for, and the program ends.
"""

import argparse
import hashlib
import re
from pydoc_data.topics import topics

import numpy as np

import hvd

WIDTH = 96
WINDOW = 2  # words on either side
NEGATIVE = 5  # drawn at random for each real neighbour
BATCH = 512  # pairs


def key_of(word, use):
    """`use`: a word has a vector for itself, and another one as others' neighbour."""
    return int.from_bytes(hashlib.blake2b(f"{use} {word}".encode(), digest_size=8).digest(), "little")


def read_sentences():
    """Each an array of numbers of words; and the words."""
    numbers = {}
    sentences = []
    for text in topics.values():
        for sentence in re.split(r"[.:;]\s", text):
            words = re.findall(r"[a-z]{2,}", sentence.lower())
            if len(words) > 2:
                sentences.append(np.array([numbers.setdefault(word, len(numbers)) for word in words]))
    return sentences, list(numbers)


def pairs_of(sentences):
    """Words and their neighbours, as two arrays."""
    words, neighbours = [], []
    for sentence in sentences:
        for distance in range(1, WINDOW + 1):
            words += [sentence[:-distance], sentence[distance:]]
            neighbours += [sentence[distance:], sentence[:-distance]]
    return np.concatenate(words), np.concatenate(neighbours)


def gradients_of(vectors, others, labels):
    """Of the loss of each pair of a vector and another one, by these two. vectors: (n, width), others: (n, k, width)"""
    scores = np.einsum("nw,nkw->nk", vectors, others)
    errors = 1 / (1 + np.exp(-scores)) - labels
    return np.einsum("nk,nkw->nw", errors, others), errors[:, :, None] * vectors[:, None, :]


def train(table, servers, words, neighbours, keys, random):
    own_keys, other_keys = keys
    labels = np.zeros((BATCH, 1 + NEGATIVE), dtype=np.float32)
    labels[:, 0] = 1
    for start in range(0, len(words) - BATCH + 1, BATCH):
        own = own_keys[words[start : start + BATCH]]
        # Those of the text itself are as frequent as they should be.
        drawn = random.choice(neighbours, (BATCH, NEGATIVE))
        others = other_keys[np.concatenate([neighbours[start : start + BATCH, None], drawn], axis=1)]
        wanted = np.concatenate([own, others.reshape(-1)])
        unique, places = np.unique(wanted, return_inverse=True)
        rows = table.pull(unique)[places]
        own_gradients, other_gradients = gradients_of(
            rows[:BATCH], rows[BATCH:].reshape(BATCH, 1 + NEGATIVE, WIDTH), labels
        )
        # The servers add up what belongs to one row.
        table.push(wanted, np.concatenate([own_gradients, other_gradients.reshape(-1, WIDTH)]), wait=False)
        servers.clock()
    servers.flush()  # raises what has gone wrong with a push


def test(table, words, neighbours, keys, random):
    own_keys, other_keys = keys
    vectors = table.pull(own_keys[words])
    real = np.sum(vectors * table.pull(other_keys[neighbours]), axis=1)
    drawn = np.sum(vectors * table.pull(other_keys[random.permutation(neighbours)]), axis=1)
    return np.mean(real > drawn) + np.mean(real == drawn) / 2


def main():
    parser = argparse.ArgumentParser(description="Learns word vectors on parameter servers.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--like", default="string,class,integer", help="words whose neighbours are shown")
    options = parser.parse_args()

    hvd.init()  # a server stays here until the workers are done
    random = np.random.default_rng(hvd.rank())
    sentences, names = read_sentences()
    keys = [np.array([key_of(name, use) for name in names], dtype=np.uint64) for use in ("word", "neighbour")]
    training = [sentence for number, sentence in enumerate(sentences) if number % 10]
    held_out = pairs_of(sentences[::10])
    with hvd.ps.connect() as servers:
        table = servers.table(
            "vectors", WIDTH, hvd.ps.Adagrad(0.1, row_wise=True), hvd.ps.Uniform(-0.5 / WIDTH, 0.5 / WIDTH, seed=1)
        )
        before = test(table, *held_out, keys, random)
        hvd.barrier()
        words, neighbours = pairs_of(training[hvd.rank() :: hvd.size()])
        for _ in range(options.epochs):
            order = random.permutation(len(words))
            train(table, servers, words[order], neighbours[order], keys, random)
        hvd.barrier()
        if hvd.rank() == 0:
            after = test(table, *held_out, keys, random)
            print(f"neighbours told from others: {before:.1%} before training, {after:.1%} after")
            for number, tables in enumerate(servers.stats()):
                print(f"server {number}: {tables['vectors']['rows']} rows, {tables['-']['bytes'] / 2**20:.1f} MiB")
            vectors = table.pull(keys[0])
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            for word in filter(names.__contains__, options.like.split(",")):
                nearest = np.argsort(-(vectors @ vectors[names.index(word)]))[1:6]
                print(f"like {word}: {', '.join(names[i] for i in nearest)}")


if __name__ == "__main__":
    main()
