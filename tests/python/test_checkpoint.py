"""Checkpoints: whole or not there, whatever interrupts them."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn

import hvd.torch as hvd
from hvd import checkpoint, elastic
from hvd.exceptions import HostsUpdatedInterrupt
from hvd.torch.elastic import ElasticSampler, TorchState
from launching import PROGRAMS, run_job
from programs.loses_a_part import Parts
from programs.sharded_state import content, sharded_state, train_step, whole


def object_state(**values) -> elastic.ObjectState:
    return elastic.ObjectState(bcast_object=lambda given: given, get_rank=lambda: 0, **values)


def kept(folder, newest: int = 3, **values):
    state = object_state(**values)
    return state, checkpoint.keep(state, folder, seconds=0, newest=newest)


def commit(state, checkpoints) -> None:
    state.commit()
    checkpoints.wait()


def test_a_state_goes_on_with_the_newest_checkpoint(tmp_path):
    state, checkpoints = kept(tmp_path / "deep" / "folder", step=0, seen=[])
    for step in range(1, 6):
        state.step = step
        state.seen.append(step)
        commit(state, checkpoints)
    assert checkpoints.numbers() == [3, 4, 5]
    assert sorted(path.name for path in checkpoints.folder(5).iterdir()) == ["manifest.json", "state.pkl"]
    state, checkpoints = kept(tmp_path / "deep" / "folder", step=0, seen=[])
    assert (state.step, state.seen) == (5, [1, 2, 3, 4, 5])
    state.step = 6
    state.restore()
    assert state.step == 5
    commit(state, checkpoints)
    assert checkpoints.numbers() == [4, 5, 6]


@pytest.mark.parametrize("leave", ["commit", "finish_step", "check_host_updates"])
def test_a_job_that_ends_early_writes_its_last_step(tmp_path, monkeypatch, leave):
    state = object_state(step=0)
    checkpoints = checkpoint.keep(state, tmp_path, seconds=1000)
    state.commit()
    assert checkpoints.numbers() == []  # none is due
    seen_when_leaving: list[int] = []
    monkeypatch.setattr(state, "_decide", lambda changes: elastic._JOB_ENDS)
    monkeypatch.setattr(elastic._native, "report_leaving", lambda: seen_when_leaving.extend(checkpoints.numbers()))
    state.step = 1
    with pytest.raises(HostsUpdatedInterrupt):
        getattr(state, leave)()
    assert seen_when_leaving == [2]
    assert kept(tmp_path, step=0)[0].step == 1


def test_what_changes_after_the_commit_is_not_in_it(tmp_path, monkeypatch):
    state, checkpoints = kept(tmp_path, seen=[])
    write = state.write

    def late(saved, folder, rank):
        state.seen.append("later")
        return write(saved, folder, rank)

    monkeypatch.setattr(state, "write", late)
    commit(state, checkpoints)
    assert kept(tmp_path, seen=None)[0].seen == []


@pytest.mark.parametrize("damage", ["truncated", "changed", "no manifest", "torn manifest", "no file"])
def test_a_checkpoint_that_is_not_whole_is_passed_over(tmp_path, damage):
    state, checkpoints = kept(tmp_path, step=1)
    commit(state, checkpoints)
    state.step = 2
    commit(state, checkpoints)
    file, manifest = (checkpoints.folder(2) / name for name in ("state.pkl", "manifest.json"))
    content = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(content[:-1])
    elif damage == "changed":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "torn manifest":
        manifest.write_text(manifest.read_text()[:20])
    else:
        file.unlink()
    state, checkpoints = kept(tmp_path, step=0)
    assert state.step == 1
    commit(state, checkpoints)  # number 2, in place of the one that is not whole
    assert kept(tmp_path, step=0)[0].step == 1 and checkpoints.numbers() == [1, 2]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, caplog):
    state, checkpoints = kept(tmp_path, newest=1, step=1)
    commit(state, checkpoints)

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        state.step = 2
        commit(state, checkpoints)
    assert "checkpoint 2 is not written: [Errno 28] No space left on device" in caplog.text
    assert isinstance(checkpoints.last_error, OSError)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]
    assert kept(tmp_path, step=0)[0].step == 1
    state.step = 3
    commit(state, checkpoints)
    assert checkpoints.last_error is None and kept(tmp_path, step=0)[0].step == 3


KILLED = """
import os, pathlib, signal, sys
from hvd import checkpoint, elastic
state = elastic.ObjectState(lambda given: given, lambda: 0, step=0, bulk=bytes(1 << 20))
at, fsyncs, fsync = int(sys.argv[2]), 0, os.fsync
def count(descriptor):
    global fsyncs
    fsync(descriptor)
    fsyncs += 1
    if fsyncs == at:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = count
checkpoints = checkpoint.keep(state, sys.argv[1], seconds=0)
for state.step in (1, 2):
    state.commit()
    checkpoints.wait()
"""


@pytest.mark.parametrize("fsyncs", range(1, 9))
def test_a_process_that_dies_while_it_writes(tmp_path, fsyncs):
    died = subprocess.run([sys.executable, "-c", KILLED, tmp_path, str(fsyncs)])
    assert died.returncode == -signal.SIGKILL
    state, checkpoints = kept(tmp_path, step=0, bulk=b"")
    assert state.step == fsyncs // 4  # each takes four, and its name is there before the last
    commit(state, checkpoints)
    assert not list(tmp_path.glob(".writing-*"))


def test_older_checkpoints_than_those_that_are_not_whole_are_kept(tmp_path):
    state, checkpoints = kept(tmp_path, newest=1, step=1)
    commit(state, checkpoints)
    checkpoints.folder(500).mkdir()
    (checkpoints.folder(500) / "manifest.json").write_bytes(b"\xff")
    state, checkpoints = kept(tmp_path, newest=1, step=0)
    assert state.step == 1
    commit(state, checkpoints)
    assert checkpoints.numbers() == [2, 500]


def test_checkpoints_of_other_states_and_formats(tmp_path):
    state, checkpoints = kept(tmp_path, step=1)
    commit(state, checkpoints)
    with pytest.raises(
        ValueError, match=r"checkpoint-1 cannot be read into this state: the checkpoint has \['step'\], but"
    ):
        kept(tmp_path, epoch=1)
    manifest = checkpoints.folder(1) / "manifest.json"
    content = json.loads(manifest.read_text())
    (file,) = content.pop("files")
    first_format = {"format": 1, "number": 1, "file": file["name"], "bytes": file["bytes"], "sha256": file["sha256"]}
    manifest.write_text(json.dumps(first_format))
    assert kept(tmp_path, step=0)[0].step == 1
    manifest.write_text(json.dumps(content | {"format": 3}))
    with pytest.raises(ValueError, match="is of format 3, which this hvd cannot read"):
        kept(tmp_path, step=1)
    with pytest.raises(ValueError, match="newest must be at least 1"):
        kept(tmp_path / "other", newest=0, step=1)


def test_the_interval_and_no_directory(tmp_path, monkeypatch):
    state = object_state(step=1)
    checkpoints = checkpoint.keep(state, tmp_path, seconds=1000)
    commit(state, checkpoints)
    assert checkpoints.numbers() == []
    monkeypatch.delenv("HVD_RESUME", raising=False)
    assert checkpoint.keep(state) is None
    monkeypatch.setenv("HVD_RESUME", str(tmp_path / "resumed"))
    assert checkpoint.keep(state).directory == tmp_path / "resumed"


def torch_state(**values) -> TorchState:
    torch.manual_seed(values["seed"])
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TorchState(model, optimizer, sampler=ElasticSampler(range(8)), **values)


@pytest.mark.ranks(2)
def test_a_torch_state_is_restored_on_all_ranks(tmp_path):
    folder = hvd.broadcast_object(str(tmp_path))
    state = torch_state(seed=hvd.rank(), step=0)
    checkpoints = hvd.checkpoint.keep(state, folder, seconds=0)

    @hvd.elastic.run
    def train(state):
        for _ in range(2):
            state.optimizer.zero_grad()
            state.model(torch.ones(1, 3)).sum().backward()
            state.optimizer.step()
            state.step += 1
            commit(state, checkpoints)

    train(state)
    hvd.barrier()
    restored = torch_state(seed=5 + hvd.rank(), step=0)
    checkpoints = hvd.checkpoint.keep(restored, folder, seconds=0)
    hvd.elastic.run(lambda state: None)(restored)
    assert restored.step == 2 and restored.seed == 0
    assert torch.equal(restored.model.weight, state.model.weight)
    assert repr(restored.optimizer.state_dict()) == repr(state.optimizer.state_dict())
    assert checkpoints.numbers() == [1, 2]


def kept_parts(folder, **values):
    state = Parts(lambda given: given, hvd.rank, **values)
    return state, checkpoint.keep(state, folder, seconds=0)


def commit_on_all(state, checkpoints) -> None:
    commit(state, checkpoints)
    hvd.barrier()


@pytest.mark.ranks(2)
def test_parts_of_all_ranks_make_a_checkpoint(tmp_path):
    folder = hvd.broadcast_object(tmp_path)
    state, checkpoints = kept_parts(folder, step=0, own=hvd.rank())
    for state.step in range(1, 3):
        commit_on_all(state, checkpoints)
    names = ["manifest.json", "part-0", "part-1", "ranks"]
    assert checkpoints.numbers() == [1, 2]
    assert sorted(path.name for path in checkpoints.folder(2).iterdir()) == names
    state, checkpoints = kept_parts(folder, step=0, own=None)
    assert (state.step, state.own) == (2, hvd.rank())
    hvd.barrier()
    if hvd.rank() == 0:
        (checkpoints.folder(2) / "part-1").write_text("torn")
    hvd.barrier()
    state, checkpoints = kept_parts(folder, step=0, own=None)
    assert (state.step, state.own) == (1, hvd.rank())
    hvd.barrier()


@pytest.mark.ranks(2)
def test_parts_of_a_job_that_ends_early(tmp_path, monkeypatch):
    folder = hvd.broadcast_object(tmp_path)
    state = Parts(lambda given: given, hvd.rank, step=7, own=hvd.rank())
    checkpoint.keep(state, folder, seconds=1000)
    monkeypatch.setattr(state, "_decide", lambda changes: elastic._JOB_ENDS)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    hvd.barrier()
    state, checkpoints = kept_parts(folder, step=0, own=None)
    assert (state.step, state.own, checkpoints.numbers()) == (7, hvd.rank(), [1])
    hvd.barrier()


@pytest.mark.ranks(2)
def test_a_part_that_is_not_written(tmp_path, monkeypatch):
    folder = hvd.broadcast_object(tmp_path)
    state, checkpoints = kept_parts(folder, step=1)
    commit_on_all(state, checkpoints)

    def fail(saved, folder, rank):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def error() -> str:
        assert [path.name for path in folder.iterdir()] == ["checkpoint-1"]
        hvd.barrier()
        return f"{checkpoints.last_error}"

    if hvd.rank() == 1:
        monkeypatch.setattr(state, "write", fail)
    commit_on_all(state, checkpoints)
    assert error() == ["rank 1: ", ""][hvd.rank()] + "[Errno 28] No space left on device"

    # As if rank 1 was gone.
    monkeypatch.setattr(checkpoint, "_SILENCE_S", 0.1)
    monkeypatch.setattr(checkpoints, "_write_part", lambda *_: None)
    commit_on_all(state, checkpoints)
    assert error() == ["nothing has come of rank 1's part for 0.1 s", "None"][hvd.rank()]
    monkeypatch.setattr(checkpoint, "_SILENCE_S", 1000)
    state.commit()
    state.on_reset()
    checkpoints.wait()
    hvd.barrier()
    assert error() == ["the ranks have changed before rank 1 has written its part", "None"][hvd.rank()]

    monkeypatch.undo()
    commit_on_all(state, checkpoints)
    assert checkpoints.last_error is None and checkpoints.numbers() == [1, 5]


def test_a_rank_that_dies_while_it_writes_its_part(tmp_path):
    job = run_job(2, [str(PROGRAMS / "loses_a_part.py"), str(tmp_path)])
    assert "rank 1 failed" in job.output and "SIGKILL" in job.output, job.output
    state = Parts(lambda given: given, lambda: 0, step=0)
    checkpoints = checkpoint.keep(state, tmp_path, seconds=0)
    assert state.step == 1
    commit(state, checkpoints)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "checkpoint-2"]


@pytest.fixture
def default_group():
    if "TEST_REPORTS" in os.environ:  # within a job
        dist.init_process_group("hvd")
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.ranks(2)
def test_a_sharded_state_is_a_checkpoint_of_torch(default_group, tmp_path):
    folder = hvd.broadcast_object(tmp_path)
    state = sharded_state(seed=0)
    checkpoints = hvd.checkpoint.keep(state, folder, seconds=0)
    hvd.elastic.run(train_step)(state)
    state.commit()
    committed = content(state)
    train_step(state)  # meanwhile
    checkpoints.wait()
    hvd.barrier()
    assert checkpoints.last_error is None
    names = [".metadata", "__0_0.distcp", "__1_0.distcp", "manifest.json", "state.pt"]
    assert sorted(path.name for path in checkpoints.folder(1).iterdir()) == names

    state.finish_step()
    state.restore()
    assert content(state) == committed
    for other in (sharded_state(seed=1), sharded_state(seed=2, shard=lambda model: None)):  # the latter on one rank
        hvd.checkpoint.keep(other, folder)
        assert content(other) == committed
        hvd.barrier()
    if hvd.rank() == 0:
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        dcp_to_torch_save(checkpoints.folder(1), folder / "whole.pt")
        converted = torch.load(folder / "whole.pt")
        assert whole(converted["model"]) == committed[0]
        assert converted["optimizer"]["param_groups"][0]["lr"] == committed[1]["param_groups"][0]["lr"]
    hvd.barrier()
    with pytest.raises(RuntimeError, match="model and optimizer: tensors"):
        state.on_reset()


@pytest.mark.long
def test_three_ranks_go_on_with_the_checkpoint_of_two(tmp_path):
    program = [str(PROGRAMS / "sharded_state.py"), str(tmp_path)]
    jobs = [run_job(ranks, program) for ranks in (2, 3)]
    lines = [[line for line in job.output.splitlines() if line.startswith("content")] for job in jobs]
    assert lines[0] and lines[0] == lines[1], jobs[0].output + jobs[1].output
