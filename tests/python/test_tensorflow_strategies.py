"""The programs of examples/tensorflow that stand beside the strategies of tf.distribute: on two ranks, and started by
TF_CONFIG. They end with an error where ranks have come apart, which is tried, too."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import secrets
import subprocess
import sys

import pytest

from launching import ROOT
from ports import free_ports

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")

EXAMPLES = ROOT / "examples" / "tensorflow"

# A program, and the least accuracy that it comes to.
PROGRAMS = {"mirrored": 90, "multi_worker_mirrored": 90, "parameter_server": 85, "central_storage": 90}


def run_program(name, monkeypatch, *arguments):
    if name == "mirrored":
        pytest.importorskip("hvd.keras.callbacks")
    program = str(EXAMPLES / f"instead_of_{name}.py")
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    runpy.run_path(program, run_name="__main__")


def accuracy_in(written):
    found = re.search(r"test accuracy ([\d.]+)%, 2 ranks", written)
    assert found, written
    return float(found[1])


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "mirrored" else pytest.mark.long) for name in PROGRAMS]
)
def test_it_learns(name, monkeypatch, capsys):
    import hvd.tensorflow as hvd

    run_program(name, monkeypatch)
    written = capsys.readouterr().out
    if hvd.rank() == 0:
        assert accuracy_in(written) >= PROGRAMS[name]
    else:
        assert written == ""


@pytest.mark.long
@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_fails_where_gradients_are_not_shared(name, monkeypatch):
    import hvd.tensorflow as hvd
    from hvd.tensorflow.gradients import GradientReducer

    monkeypatch.setattr(GradientReducer, "reduces", False)
    monkeypatch.setattr(hvd, "grouped_allreduce", lambda tensors: tensors)
    with pytest.raises(AssertionError, match="come apart"):
        run_program(name, monkeypatch, "--epochs", "1")


@pytest.mark.ranks(2)
def test_it_goes_on_from_a_checkpoint(monkeypatch, capsys, tmp_path):
    import hvd.tensorflow as hvd

    for epochs in ("1", "3"):
        run_program("multi_worker_mirrored", monkeypatch, "--epochs", epochs, "--checkpoints", str(tmp_path))
    assert any(tmp_path.iterdir()) is (hvd.rank() == 0)
    if hvd.rank() == 0:
        assert re.findall(r"epochs (\d) to (\d)", capsys.readouterr().out) == [("1", "1"), ("2", "3")]


@pytest.mark.ranks(2)
def test_a_divided_table_is_a_table():
    """Its vectors, and the gradients that its parts get, are those of one table for the mean of the ranks' losses."""
    import tensorflow as tf

    import hvd.tensorflow as hvd

    program = runpy.run_path(str(EXAMPLES / "instead_of_parameter_server.py"))
    whole = tf.Variable(tf.reshape(tf.range(22.0), [11, 2]))
    divided = program["DividedEmbedding"](11, 2)
    divided.table.assign(whole[hvd.rank() :: hvd.size()])
    numbers = tf.constant([[3, 10, 3], [0, 7, 4]] if hvd.rank() == 0 else [[10, 10, 1]])

    def gradient_of(lookup, table, divides):
        with tf.GradientTape() as tape:
            rows = lookup(numbers)
            loss = tf.reduce_sum(rows**2)
        tape = hvd.DistributedGradientTape(tape)
        if divides:
            tape.register_local_source(table)
        return rows, tf.convert_to_tensor(tape.gradient(loss, table))

    rows, gradient = gradient_of(divided, divided.table, divides=True)
    wanted_rows, wanted_gradient = gradient_of(lambda numbers: tf.gather(whole, numbers), whole, divides=False)
    assert rows.numpy().tolist() == wanted_rows.numpy().tolist()
    assert gradient.numpy().tolist() == wanted_gradient.numpy()[hvd.rank() :: hvd.size()].tolist()
    assert gradient.numpy().any()


# Where TF_CONFIG starts a job is tested without TensorFlow, and the program as a job of hvdrun.
@pytest.mark.long
def test_the_environment_of_multi_worker_mirrored():
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    key = secrets.token_hex(32)
    program = str(EXAMPLES / "instead_of_multi_worker_mirrored.py")
    processes = []
    for index in range(2):
        cluster = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
        environment = {**os.environ, "TF_CONFIG": cluster, "HVD_JOB_KEY": key, "TF_CPP_MIN_LOG_LEVEL": "2"}
        command = [sys.executable, program, "--epochs", "4"]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    try:
        ends = [process.communicate(timeout=360) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], ends
    assert accuracy_in(ends[0][0]) >= 80 and ends[1][0] == "", ends
