"""Scripts written for Horovod, started as their users start them; and horovod.run."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys

import pytest

import horovod
from launching import PROGRAMS, hvdrun, run_command

LAUNCHERS = {
    "horovodrun": [sys.executable, "-m", "horovod.runner.launch"],
    "horovodrun --mpi": [sys.executable, "-m", "horovod.runner.launch", "--mpi"],
    "hvdrun": [hvdrun()],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe"],
}


# Which launcher starts the processes is tested with quicker programs.
@pytest.mark.parametrize(
    "launcher",
    ["horovodrun", *(pytest.param(other, marks=pytest.mark.long) for other in LAUNCHERS if other != "horovodrun")],
)
def test_a_training_script_runs_unchanged(launcher):
    if "mpi" in launcher and shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    command = [*LAUNCHERS[launcher], "-np", "2", sys.executable, str(PROGRAMS / "horovod_training.py")]
    job = run_command([*command, "--fp16-allreduce"])
    assert job.returncode == 0, job.output
    # mpirun may put two ranks' words on one line.
    assert sorted(re.findall(r"rank \d of 2 is fine", job.output)) == ["rank 0 of 2 is fine", "rank 1 of 2 is fine"]


def place(offset: int) -> tuple[int, int, str]:
    import hvd

    hvd.init()
    return hvd.rank() + offset, hvd.size(), os.environ.get("HVD_START_TIMEOUT", "")


def test_run():
    assert horovod.run(place, (10,), num_proc=2, start_timeout=9) == [(10, 2, "9"), (11, 2, "9")]
    assert horovod.run(place, kwargs={"offset": 0}) == [(0, 1, "")]


def test_run_takes_what_horovods_takes():
    wanted = (
        "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile "
        "host_discovery_script start_timeout ssh_port ssh_identity_file disable_cache output_filename verbose use_gloo "
        "use_mpi mpi_args network_interface network_interfaces executable np min_np max_np "
        "elastic_timeout"  # hvd's own
    )
    parameters = inspect.signature(horovod.run).parameters
    assert [*parameters] == wanted.split()
    assert parameters["num_proc"].default == 1 and parameters["args"].default == ()


def test_run_with_options(tmp_path):
    with pytest.warns(UserWarning, match="--disable-cache has no effect"):
        results = horovod.run(
            place,
            (0,),
            num_proc=1,
            hosts="localhost:2",
            use_gloo=True,
            output_filename=str(tmp_path),
            ssh_port=22,
            disable_cache=True,
        )
    assert results == [(0, 1, "")]
    assert (tmp_path / "rank.0" / "stdout").exists()


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"num_proc": 0}, "num_proc must be at least 1, not 0"),
        ({"num_proc": -2}, "num_proc must be at least 1, not -2"),
        ({"hosts": "localhost:1", "hostfile": "hosts"}, "hosts and hostfile exclude each other"),
        ({"use_gloo": True, "use_mpi": True}, "use_gloo and use_mpi exclude each other"),
    ],
)
def test_run_refuses_arguments_that_make_no_sense(arguments, text):
    with pytest.raises(ValueError, match=text):
        horovod.run(place, (0,), **arguments)


def lose_process(lost: str) -> tuple[int, int]:
    """Rank and size at the end."""
    import hvd
    from hvd import elastic, objects

    def train(state: elastic.ObjectState) -> tuple[int, int]:
        while state.step < 5:
            objects.allgather_object(None)
            state.step += 1
            if os.environ["HVD_PROCESS"] == lost and state.step == 2:
                raise LookupError("nothing there")
            state.commit()
        return hvd.rank(), hvd.size()

    hvd.init()
    state = elastic.ObjectState(objects.broadcast_object, hvd.rank, step=0)
    return elastic.run_fn(train, elastic.join_anew)(state)


def test_elastic_run():
    settings = {"reset_limit": 1, "cooldown_range": (60, 60), "elastic_timeout": 300}
    results = horovod.run(lose_process, ("0",), num_proc=3, min_num_proc=1, max_num_proc=3, **settings)
    assert results == [(0, 2), (1, 2)]


def test_an_elastic_run_that_cannot_go_on():
    with pytest.raises(RuntimeError, match=r"process 1 failed:[^$]*nothing there") as raised:
        horovod.run(lose_process, ("1",), num_proc=2, min_num_proc=1, reset_limit=0, cooldown_range=(60, 60))
    assert isinstance(raised.value.__cause__, LookupError)


def test_run_with_older_names():
    with pytest.warns(DeprecationWarning, match="num_proc"):
        assert len(horovod.run(place, (0,), np=2)) == 2


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_run_with_mpi():
    assert [rank for rank, *_ in horovod.run(place, (0,), num_proc=2, use_mpi=True)] == [0, 1]


def test_run_raises_what_the_function_raises():
    def fail():
        raise LookupError("nothing there")

    with pytest.raises(RuntimeError, match=r"rank [01] of 2 failed:[^$]*nothing there") as raised:
        horovod.run(fail, num_proc=2)
    assert isinstance(raised.value.__cause__, LookupError)


def test_run_on_the_hosts_that_a_script_names():
    results = horovod.run(place, (0,), num_proc=2, min_num_proc=1, host_discovery_script="echo localhost:2")
    assert [result[:2] for result in results] == [(0, 2), (1, 2)], results
