"""The parameters of a ResNet-50: K. He, X. Zhang, S. Ren, J. Sun, Deep Residual Learning for Image Recognition, 2016,
table 1."""

from __future__ import annotations


def shapes() -> list[tuple[int, ...]]:
    """Of its 161 parameters, 102 MB of float32, from the input to the output."""
    found: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolutions = [(width, channels, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            convolutions += [(4 * width, channels, 1, 1)] if block == 0 else []
            for shape in convolutions:
                found += [shape, shape[:1], shape[:1]]
            channels = 4 * width
    return [*found, (1000, 2048), (1000,)]
