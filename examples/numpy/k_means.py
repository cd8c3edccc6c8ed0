"""K-means with NumPy alone: every rank has a share of the points, and all ranks find the same centres.

    hvdrun -np 4 python examples/numpy/k_means.py [--points 100000] [--clusters 8]

Lloyd's algorithm: each point goes to its nearest centre, and each centre to the mean of its points. The sums over the
points are those of all ranks: one allreduce of a small array in each iteration. At the end rank 0 does the same alone,
with all points, and compares.
"""

from __future__ import annotations

import argparse

import numpy as np

import hvd


def make_points(number: int, clusters: int, seed: int = 0) -> np.ndarray:
    """Points around some centres, the same for all ranks and in no order."""
    generator = np.random.default_rng(seed)
    centres = generator.uniform(-10, 10, (clusters, 2))
    return centres[generator.integers(clusters, size=number)] + generator.normal(0, 0.5, (number, 2))


def sums_by_centre(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """For each centre: the sums of the coordinates of its points, and their number."""
    distances = ((points[:, None, :] - centres) ** 2).sum(-1)
    nearest = distances.argmin(1)
    sums = np.zeros((len(centres), 3))
    np.add.at(sums, nearest, np.column_stack([points, np.ones(len(points))]))
    return sums


def k_means(points: np.ndarray, centres: np.ndarray, iterations: int, *, alone: bool = False) -> np.ndarray:
    for _ in range(iterations):
        sums = sums_by_centre(points, centres)
        if not alone:
            hvd.allreduce(sums, op=hvd.Sum, name="sums", out=sums)
        totals, numbers = sums[:, :2], sums[:, 2:]
        centres = np.where(numbers > 0, totals / np.maximum(numbers, 1), centres)
    return centres


def main() -> None:
    parser = argparse.ArgumentParser(description="k-means on several processes")
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--clusters", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=20)
    options = parser.parse_args()

    hvd.init()
    points = make_points(options.points, options.clusters)
    own = points[hvd.rank() :: hvd.size()]
    start = hvd.broadcast(own[: options.clusters], root_rank=0)  # the first points of rank 0
    centres = k_means(own, start, options.iterations)

    everyone = hvd.allgather(centres[None])
    assert (everyone == centres).all(), "the ranks' centres have come apart"
    if hvd.rank() == 0:
        difference = np.abs(centres - k_means(points, start, options.iterations, alone=True)).max()
        assert difference < 1e-9, f"one process finds centres that are {difference} away"
        print(f"{hvd.size()} ranks, {options.clusters} centres, {difference:.1e} away from those of one process")


if __name__ == "__main__":
    main()
