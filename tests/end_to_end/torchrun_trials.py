"""Many jobs under torchrun's agent, in one process: importing PyTorch takes longer than a job.

    python torchrun_trials.py RANKS RANK... -- PROGRAM ARGUMENT...

For each RANK it starts the program with these arguments and RANK, and says then which rank torchrun blames, with which
exit code.
"""

import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def blamed(size: int, command: list[str]) -> str:
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=size,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,  # torchrun's own
    )
    try:
        elastic_launch(config, command[0])(*command[1:])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        return f"torchrun blames rank {rank}: exit code {failure.exitcode}"
    return "torchrun blames nobody"


if __name__ == "__main__":
    split = sys.argv.index("--")
    for failing in sys.argv[2:split]:
        print(blamed(int(sys.argv[1]), [*sys.argv[split + 1 :], failing]), flush=True)
