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
from torch import nn

import hvd.torch as hvd
from hvd import checkpoint, elastic
from hvd.torch.elastic import ElasticSampler, TorchState


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


def test_what_changes_after_the_commit_is_not_in_it(tmp_path, monkeypatch):
    state, checkpoints = kept(tmp_path, seen=[])
    write = state.write

    def late(saved, file):
        state.seen.append("later")
        write(saved, file)

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
    with pytest.raises(ValueError, match=r"state\.pkl cannot be read into this state: it has \['step'\], and this"):
        kept(tmp_path, epoch=1)
    manifest = checkpoints.folder(1) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 2}))
    with pytest.raises(ValueError, match="is of format 2, which this hvd cannot read"):
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
