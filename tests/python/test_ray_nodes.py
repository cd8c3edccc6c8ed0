"""hvd.ray on a cluster of two nodes, both of this machine."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import pytest
import ray
import ray.cloudpickle

import hvd
from hvd import elastic
from hvd.ray import RayExecutor
from timeouts import wait_until

for pickling in (cloudpickle, ray.cloudpickle):  # hvdrun's ranks, and actors
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    os.makedirs("/tmp/ray", exist_ok=True)  # where it writes its address
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    found.second = found.add_node(num_cpus=2)
    ray.init(address=found.address, log_to_driver=False, logging_level="warning")
    yield found
    ray.shutdown()
    found.shutdown()


def node() -> tuple[int, str]:
    hvd.init()
    return hvd.rank(), ray.get_runtime_context().get_node_id()


@pytest.mark.parametrize("arguments", [{"num_hosts": 2, "num_workers_per_host": 2}, {"num_workers": 4}])
def test_ranks_are_numbered_node_by_node(cluster, arguments):
    executor = RayExecutor(**arguments)
    executor.start()
    ranks, nodes = zip(*executor.run(node))
    executor.shutdown()
    assert ranks == (0, 1, 2, 3) and nodes[0] == nodes[1] != nodes[2] == nodes[3]


def count(folder: Path) -> list[int]:
    """Until there are four ranks again, after there were fewer."""
    hvd.init()
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, sizes=[])

    def loop(state: elastic.ObjectState) -> list[int]:
        while [size for size in state.sizes if size in (2, 4)][-3:] != [4, 2, 4] or hvd.size() < 4:
            if state.sizes[-1:] != [hvd.size()]:
                state.sizes = [*state.sizes, hvd.size()]
            (folder / f"size.{hvd.size()}").touch()
            state.commit()
            time.sleep(0.02)
        return state.sizes

    return elastic.run_fn(loop, elastic.join_anew)(state)


def test_a_node_is_lost_and_another_one_comes(cluster, tmp_path):
    executor = RayExecutor(min_workers=2, max_workers=4)
    executor.start()
    found: list[list[int]] = []
    running = threading.Thread(target=lambda: found.extend(executor.run(count, [tmp_path])), daemon=True)
    running.start()
    wait_until((tmp_path / "size.4").exists)
    (tmp_path / "size.2").unlink(missing_ok=True)
    cluster.remove_node(cluster.second)
    wait_until((tmp_path / "size.2").exists)
    cluster.add_node(num_cpus=2)
    running.join(120)
    executor.shutdown()
    assert len(found) == 4 and all(sizes == found[0] for sizes in found)
