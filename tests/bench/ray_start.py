#!/usr/bin/env python3
"""What hvd adds to the start of actors in Ray: the time from RayExecutor's start to the end of a first allreduce, less
the time that as many bare actors in a placement group take to answer. Alternately, in a Ray instance that it starts.

    tests/bench/ray_start.py [--actors 4] [--repetitions 7]

Prints the median times in seconds, and exits with 1 if they differ by more than LIMIT_S.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time

import ray
from ray.util import remove_placement_group
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hvd.ray import RayExecutor

LIMIT_S = 0.5
SETTLED_S = 2.0  # Ray replaces the processes of actors that have ended meanwhile


class Bare:
    def answer(self) -> float:
        import numpy as np

        return float(np.ones(1)[0])


def start_bare(actors: int) -> None:
    group = placement_group([{"CPU": 1}] * actors)
    assert group.wait(60)
    strategies = [PlacementGroupSchedulingStrategy(group, bundle, False) for bundle in range(actors)]
    started = [ray.remote(Bare).options(num_cpus=1, scheduling_strategy=each).remote() for each in strategies]
    ray.get([actor.answer.remote() for actor in started], timeout=60)
    for actor in started:
        ray.kill(actor)
    remove_placement_group(group)


def allreduce() -> float:
    import numpy as np

    import hvd

    hvd.init()
    return float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0])


def start_ranks(actors: int) -> None:
    executor = RayExecutor(num_workers=actors)
    executor.start()
    assert executor.run(allreduce) == [actors] * actors
    executor.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"bare": [], "hvd": []}
    with tempfile.TemporaryDirectory(prefix="ray-start-", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=options.actors, _temp_dir=folder, include_dashboard=False, logging_level="warning")
        for _ in range(options.repetitions + 1):
            for name, start in (("bare", start_bare), ("hvd", start_ranks)):
                time.sleep(SETTLED_S)
                begin = time.perf_counter()
                start(options.actors)
                times[name].append(time.perf_counter() - begin)
        ray.shutdown()
    medians = {name: statistics.median(each[1:]) for name, each in times.items()}  # the first ones warm caches
    added = medians["hvd"] - medians["bare"]
    print(f"{options.actors} actors: bare {medians['bare']:.2f} s, hvd {medians['hvd']:.2f} s, added {added:.2f} s")
    return 1 if added > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
