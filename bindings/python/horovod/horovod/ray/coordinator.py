"""`Coordinator`, with which Ray's HorovodTrainer turns its workers into the ranks of a job."""

from __future__ import annotations

import secrets
import socket
from collections import defaultdict
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_PORT_TIMEOUT_S = 100  # for a process to start on the first rank's node


class Coordinator:
    """Makes the environment variables by which processes that the caller has placed find each other.

    Args:
        settings: its `timeout_s` is how many seconds ranks wait for each other in `hvd.init()`.
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self._ranks: dict[str, list[int]] = defaultdict(list)  # by node
        self._hosts: dict[str, str] = {}  # names, by node

    @property
    def world_size(self) -> int:
        return sum(len(ranks) for ranks in self._ranks.values())

    @property
    def hostnames(self) -> set[str]:
        return set(self._hosts.values())

    @property
    def node_id_string(self) -> str:
        """The nodes, with the number of ranks on each: "node:2,other:2"."""
        return ",".join(f"{node}:{len(ranks)}" for node, ranks in self._ranks.items())

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        """Adds a process: its host's name, Ray's id of its node, and its rank."""
        self._hosts[node_id] = hostname
        self._ranks[node_id].append(world_rank)

    def finalize_registration(self) -> dict[int, dict[str, int]]:
        """By rank, the variables of its environment that differ from rank to rank."""
        nodes = list(self._ranks.values())
        found = {}
        for ranks in nodes:
            for local_rank, rank in enumerate(ranks):
                across = [others[local_rank] for others in nodes if len(others) > local_rank]
                found[rank] = {
                    **{"HVD_RANK": rank, "HVD_SIZE": self.world_size},
                    **{"HOROVOD_LOCAL_RANK": local_rank, "HOROVOD_LOCAL_SIZE": len(ranks)},
                    **{"HOROVOD_CROSS_RANK": across.index(rank), "HOROVOD_CROSS_SIZE": len(across)},
                }
        return found

    def establish_rendezvous(self) -> dict[str, str]:
        """Variables for the environment of all ranks, the job key among them.

        Raises:
            ValueError: rank 0 was not registered on a node of this cluster.
            GetTimeoutError: that node does not start a process, which is needed to find a free port, in time.
        """
        node = next((node for node, ranks in self._ranks.items() if 0 in ranks), None)
        addresses = {each["NodeID"]: each["NodeManagerAddress"] for each in ray.nodes() if each["alive"]}
        if node is None or node not in addresses:
            raise ValueError(f"rank 0 is to be on node {node}, which is none of: {', '.join(addresses)}")
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        port = ray.get(
            ray.remote(_free_port).options(num_cpus=0, scheduling_strategy=there).remote(), timeout=_PORT_TIMEOUT_S
        )
        return {
            "HVD_RENDEZVOUS": f"{addresses[node]}:{port}",
            "HVD_JOB_KEY": secrets.token_hex(32),
            "HVD_START_TIMEOUT": str(self.settings.timeout_s),
        }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        port: int = found.getsockname()[1]
        return port
