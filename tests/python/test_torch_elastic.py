"""PyTorch's own parallelism in elastic jobs, and PyTorch's own elastic launcher."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from timeouts import wait_until

PROGRAMS = pathlib.Path(__file__).parent / "programs"
TIMEOUT = 600


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT)


@pytest.mark.long
def test_ddp_is_wrapped_anew_in_each_epoch():
    options = ("-np", 3, "--min-np", 2, "--cooldown-range", "60,60")
    done = run("hvdrun", *options, sys.executable, PROGRAMS / "elastic_ddp.py")
    assert done.returncode == 0, done.stderr
    assert "epoch 2 with 2 ranks" in done.stderr, done.stderr
    assert done.stdout.count(" has finished 40 steps with 2 ranks\n") == 2, done.stdout


@pytest.mark.long
def test_fsdp2_divides_the_model_anew_in_each_epoch(tmp_path):
    options = ("-np", 3, "--min-np", 2, "--cooldown-range", "0,0")
    done = run("hvdrun", *options, sys.executable, PROGRAMS / "elastic_fsdp2.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" has finished with the weights of one process, sizes (3, 2, 3)") == 3, done.stdout


def test_a_finished_step_is_kept_without_a_commit():
    options = ("-np", 4, "--min-np", 2, "--cooldown-range", "60,60")
    done = run("hvdrun", *options, sys.executable, PROGRAMS / "elastic_steps.py")
    assert done.returncode == 0, done.stderr
    # Lost at the 26th step, and at the 48th, from which the others have gone back to the 40th.
    assert done.stdout.count(": 25 steps of 4 ranks, 15 of 3, 20 of 2\n") == 2, (done.stdout, done.stderr)


def test_torchrun_starts_the_ranks_again():
    options = ("--nproc-per-node", 2, "--max-restarts", 1, "--monitor-interval", 0.1)
    done = run(sys.executable, "-m", "torch.distributed.run", *options, PROGRAMS / "torchrun_restart.py")
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"attempt \d: rank \d has finished", done.stdout)) == [
        "attempt 1: rank 0 has finished",
        "attempt 1: rank 1 has finished",
    ]


RANK_OF_TORCHRUN = "import hvd; hvd.init(); print(f'rank {hvd.rank()} of {hvd.size()}')"


def start_as_torchrun(port, rank, restarts, timeout_s):
    variables = {
        **{"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        **{"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_USE_AGENT_STORE": "True"},
        **{"TORCHELASTIC_RESTART_COUNT": str(restarts), "HVD_START_TIMEOUT": str(timeout_s)},
    }
    command = [sys.executable, "-c", RANK_OF_TORCHRUN]
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env={**os.environ, **variables}, **outputs)


def test_torchruns_nodes_count_only_the_restarts_for_which_they_were_to_blame():
    """Two nodes with a rank each. Their agents' store lives on, with what ranks of an earlier start have left there."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for rank in range(2):  # alone
        output = start_as_torchrun(store.port, rank, restarts=0, timeout_s=5).communicate(timeout=TIMEOUT)[0]
        told = "rank 1 did not start" if rank == 0 else r"rank 0 has not come to hvd.init\(\) within 5 s"
        assert re.search(f"InitError: {told}", output), output
    ranks = [start_as_torchrun(store.port, rank, restarts=rank, timeout_s=30) for rank in range(2)]
    outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
    assert outputs == ["rank 0 of 2\n", "rank 1 of 2\n"]


def test_torchruns_store_is_lost_while_a_rank_waits_for_rank_0():
    from torch.distributed import TCPStore

    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)]
    rank = start_as_torchrun(stores[0].port, 1, restarts=0, timeout_s=TIMEOUT)
    wait_until(lambda: stores[0].add("hvd/0", 0) == 1)
    stores.clear()
    output = rank.communicate(timeout=TIMEOUT)[0]
    assert "InitError: rank 0 has not come to hvd.init(): rank 1 has waited for it" in output, output
    assert "torchrun's store, which is lost" in output, output
