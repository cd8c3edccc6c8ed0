"""Parameter servers for TensorFlow and Keras. On two ranks that serve as well; then a program as the tutorials have it,
with two workers and two servers, started by hvdrun and by TF_CONFIG."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import runpy
import secrets
import subprocess
import sys

import numpy as np
import pytest

from launching import PROGRAMS, ROOT, hvdrun, run_command
from ports import free_ports

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")


is_rank = "TEST_REPORTS" in os.environ  # of the job that runs the tests marked `ranks`


@pytest.fixture
def servers():
    if not is_rank:
        yield None
        return
    import hvd.tensorflow as hvd

    with hvd.ps.connect() as connected:
        yield connected


@pytest.fixture
def keras():
    return pytest.importorskip("keras", minversion="3") if is_rank else None


def both_ways(function):
    """In eager mode, and within a tf.function."""
    import tensorflow as tf

    return {"eager": function, "graph": tf.function(function)}


@pytest.mark.ranks(2)
def test_an_embedding_has_the_rows_and_gradients_of_a_table(servers, keras):
    import tensorflow as tf

    import hvd.tensorflow as hvd

    table = servers.table("rows", width=3, optimizer=hvd.ps.SGD(1.0), initializer=hvd.ps.Normal(seed=1))
    embedding = hvd.ps.Embedding(table)
    dense = tf.Variable(tf.ones([3, 2]))
    first = 100 * hvd.rank()  # each rank has rows of its own
    numbers = tf.constant([[7, -3, 7], [2**40, 7, 1]]) + tf.constant(first, tf.int64)
    different = np.unique(numbers)
    embedding(numbers)  # makes its weight

    def step(look_up, sources):
        with tf.GradientTape() as tape:
            rows = look_up(numbers)
            loss = tf.reduce_sum((rows @ dense) ** 2)
        return rows, tape.gradient(loss, sources)

    for name, run in both_ways(lambda: step(embedding, [*embedding.trainable_variables, dense])).items():
        whole = tf.Variable(table.pull(different))
        places = np.searchsorted(different, numbers)
        wanted_rows, (of_whole, of_dense) = step(lambda _, w=whole, p=places: tf.gather(w, p), [whole, dense])
        rows, (of_anchor, gradient) = run()
        servers.flush()
        assert rows.shape == (2, 3, 3) and np.array_equal(rows, wanted_rows), name
        assert of_anchor.numpy() == 0 and np.allclose(gradient, of_dense), name
        assert np.allclose(table.pull(different), whole - tf.convert_to_tensor(of_whole), atol=1e-5), name
    assert tf.function(embedding).get_concrete_function(tf.TensorSpec([None, 4], tf.int32)).output_shapes == (
        tf.TensorShape([None, 4, 3])
    )


@pytest.mark.ranks(2)
def test_rows_that_were_prefetched_are_taken_once(servers, keras):
    import tensorflow as tf

    import hvd.tensorflow as hvd

    table = servers.table("ahead", width=1, optimizer=hvd.ps.Add())
    embedding = hvd.ps.Embedding(table)
    key = hvd.rank()

    def rows():
        return embedding(tf.constant([key])).numpy().item()

    assert embedding.prefetch(tf.constant([key])).numpy().tolist() == [key]
    table.push([key], np.ones((1, 1), np.float32))
    assert [rows(), rows()] == [0, 1]

    data = tf.data.Dataset.from_tensors(tf.constant([key])).repeat(3).map(embedding.prefetch)
    pulls = sum(server["ahead"]["pulls"] for server in servers.stats())
    assert [batch.numpy().tolist() for batch in data] == [[key]] * 3
    hvd.barrier()
    assert sum(server["ahead"]["pulls"] for server in servers.stats()) >= pulls + 3
    for number in range(40):
        embedding.prefetch(tf.constant([number]))
    assert len(embedding._begun) == 32


@pytest.mark.ranks(2)
def test_variables_have_the_values_of_rank_0_and_everybodys_gradients(servers):
    import tensorflow as tf

    import hvd.tensorflow as hvd

    mine = [
        tf.Variable(tf.fill([3, 2], 1.0 + 8 * hvd.rank())),
        tf.Variable(2.0),
        tf.Variable([4.0, 5.0], dtype="float64"),
    ]
    variables = hvd.ps.Variables(servers, "asynchronous", mine, hvd.ps.SGD(0.5))
    assert [variable.numpy().tolist() for variable in mine] == [[[1, 1]] * 3, 2, [4, 5]]
    hvd.barrier()  # here both have seen what nobody has pushed to

    rows = tf.IndexedSlices(tf.fill([2, 2], 2.0), tf.constant([1, 1]), tf.constant([3, 2]))
    ways = both_ways(lambda: variables.step([rows, tf.constant(1.0 + hvd.rank()), None]))
    for run in ways.values():
        run()
    assert mine[1].numpy() <= 2 - 0.5 * 2 * (1 + hvd.rank())  # its own gradients, at least
    hvd.barrier()
    variables.pull()
    assert [variable.numpy().tolist() for variable in mine] == [[[1, 1], [-7, -7], [1, 1]], -1, [4, 5]]
    hvd.barrier()  # before the next push

    variables.push([tf.zeros([3, 2]), None, tf.constant([2.0, 0.0])])
    assert mine[2].numpy().tolist() == [4, 5]
    hvd.barrier()
    tf.function(variables.pull)()
    assert mine[2].numpy().tolist() == [2, 5]
    hvd.barrier()

    late = tf.Variable([1.0])
    compensated = hvd.ps.Variables(servers, "compensated", [late], hvd.ps.SGD(0.5), compensation=0.25)
    hvd.barrier()  # both have pulled 1
    for rank in (1, 0):
        if hvd.rank() == rank:
            compensated.push([tf.constant([2.0])])
        hvd.barrier()
    compensated.pull()
    assert late.numpy().tolist() == [0 - 0.5 * (2 + 0.25 * 2 * 2 * (0 - 1))]
    with pytest.raises(ValueError, match="3 variables, and 1 gradients"):
        variables.step([None])


@pytest.mark.ranks(2)
def test_synchronous_variables_are_those_of_averaged_gradients(servers):
    import tensorflow as tf

    import hvd.tensorflow as hvd

    alone, served = tf.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    variables = hvd.ps.Variables(servers, "synchronous", [served], hvd.ps.SGD(0.25), consistency="synchronous")

    def step(rate):
        gradient = served * (1.0 + 2.0 * hvd.rank())
        variables.step([gradient], rate)
        alone.assign_sub(rate * hvd.allreduce(gradient))

    for run in both_ways(step).values():
        for rate in (0.25, 0.125):
            run(tf.constant(rate))
            assert served.numpy().tolist() == alone.numpy().tolist() and served[0] > 0


@pytest.mark.ranks(2)
def test_gradients_are_compensated_for_what_another_worker_has_changed(servers, keras):
    import tensorflow as tf

    import hvd.tensorflow as hvd

    def of_keras(served):
        optimizer = hvd.ps.DenseOptimizer(servers, hvd.ps.SGD(0.5), "compensated of Keras", compensation=2.0)
        optimizer.build([served])
        return lambda gradient: optimizer.apply([gradient], [served])

    def of_variables(served):
        variables = hvd.ps.Variables(servers, "compensated", [served], hvd.ps.SGD(0.5), compensation=2.0)
        return lambda gradient: variables.step([gradient])

    for made in (of_variables, of_keras):
        served = tf.Variable([1.0])
        step = made(served)
        hvd.barrier()  # both have pulled 1 here
        for rank in (1, 0):
            if hvd.rank() == rank:
                step(tf.constant([1.0]))
            hvd.barrier()
        # The other's step made it 0.5, so that rank 0's gradient became 1 + 2 (0.5 - 1) = 0.
        assert served.numpy().tolist() == [0.5]


@pytest.mark.ranks(2)
def test_fit_trains_what_is_on_servers(servers, keras, tmp_path, monkeypatch):
    import tensorflow as tf

    import hvd.keras as hvd

    tensorflow_package = importlib.import_module("hvd.tensorflow")
    assert hvd.ps is tensorflow_package.ps is importlib.import_module("hvd.tensorflow.keras").ps
    random = np.random.default_rng(hvd.rank())
    labels = random.integers(0, 3, 512)
    words = labels[:, None] * 10 + random.integers(0, 10, (512, 6))
    settings = {"consistency": "synchronous"}
    embedding = hvd.ps.Embedding(
        servers.table("fit", 8, hvd.ps.Adagrad(0.3), hvd.ps.Normal(0, 0.1, seed=1), **settings)
    )
    model = keras.Sequential(
        [keras.Input([6], dtype="int64"), embedding, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)]
    )
    compensating = hvd.ps.DenseOptimizer(servers, name="never opened", compensation=1.0, **settings)
    with pytest.raises(ValueError, match="delay compensation is for dense tables that are not synchronous"):
        compensating.build(model.trainable_variables)
    optimizer = hvd.ps.DenseOptimizer(servers, hvd.ps.SGD(0.5), "of fit", clipnorm=1.0, **settings)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    still = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.0 if epoch == 2 else rate)
    kernels = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: kernels.append(model.layers[-1].kernel.numpy()))
    data = tf.data.Dataset.from_tensor_slices((words, labels)).batch(64)
    history = model.fit(data, epochs=3, callbacks=[still, note], verbose=0)
    assert history.history["accuracy"][-1] > 0.9
    assert not np.array_equal(kernels[0], kernels[1]) and np.array_equal(kernels[1], kernels[2])
    assert np.array_equal(*hvd.allgather(kernels[2][None]))

    path = tmp_path / "model.keras"
    model.save(path)
    with pytest.raises(ValueError, match="load the model with compile=False"):
        keras.models.load_model(path)
    loaded = keras.models.load_model(path, compile=False)  # looks for the table by its name
    assert np.array_equal(loaded(words[:5]), model(words[:5])) and loaded.layers[0].table is embedding.table
    monkeypatch.setattr(servers, "_tables", {})
    with pytest.raises(ValueError, match="no table 'fit' is open"):
        keras.models.load_model(path, compile=False)

    unbuilt = keras.Sequential([keras.layers.Dense(3)])
    unbuilt.compile(optimizer=hvd.ps.DenseOptimizer(servers, name="never opened"), loss=loss)
    with pytest.raises(ValueError, match="have no values yet: build the model"):
        unbuilt.fit(np.ones((8, 2)), np.ones(8), verbose=0)


@pytest.mark.ranks(2)
def test_the_example_learns(monkeypatch, capsys, keras):
    import hvd.tensorflow as hvd

    monkeypatch.setattr(sys, "argv", ["parameter_server.py", "--epochs", "4"])
    runpy.run_path(str(ROOT / "examples" / "tensorflow" / "parameter_server.py"), run_name="__main__")
    written = capsys.readouterr().out
    if hvd.rank() != 0:
        assert written == ""
        return
    found = re.search(r"rows on the servers: \[(\d+), (\d+)\], test accuracy ([\d.]+)%, 2 workers", written)
    assert found, written
    first, second, accuracy = (float(number) for number in found.groups())
    assert accuracy >= 85 and min(first, second) > 400, written


@pytest.mark.ranks(2)
def test_the_program_of_the_page_learns(monkeypatch, capsys, tmp_path):
    import hvd.tensorflow as hvd

    page = (ROOT / "docs" / "tf-distribute.md").read_text().split("### ParameterServerStrategy")[1]
    (tmp_path / "train.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.chdir(tmp_path)
    runpy.run_path("train.py")
    written = capsys.readouterr().out
    if hvd.rank() == 0:
        assert float(re.search(r"the loss is ([\d.]+)", written)[1]) < 0.01
        assert len(list((tmp_path / "snapshot").iterdir())) == 2


@pytest.mark.ranks(2)
def test_what_breaks_the_job_is_known_by_its_text():
    import tensorflow as tf

    from hvd import HorovodInternalError
    from hvd.tensorflow import errors
    from hvd.tensorflow.ps import on_host

    def lost():
        raise HorovodInternalError("parameter server 1 cannot be reached")

    with pytest.raises(HorovodInternalError, match="cannot be reached"):
        on_host(lost, [], tf.float32)
    with pytest.raises(tf.errors.UnknownError, match="cannot be reached") as raised:
        tf.function(lambda: on_host(lost, [], tf.float32))()
    assert errors.is_ours(raised.value)
    with pytest.raises(ValueError, match="jit_compile=True"):
        tf.function(lambda: on_host(lost, [], tf.float32), jit_compile=True)()


def steps_in(written):
    """By worker: its own steps, and those of all."""
    found = re.findall(r"worker (\d) has made (\d+) steps of (\d+)", written)
    return {int(worker): (int(own), int(counted)) for worker, own, counted in found}


def tf_configs():
    """Of two servers, a worker and a chief on this host, in this order."""
    first, second, worker, chief = (f"127.0.0.1:{port}" for port in free_ports(4))
    cluster = {"ps": [first, second], "worker": [worker], "chief": [chief]}
    tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("chief", 0)]
    return [json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}) for kind, index in tasks]


def run_by_hand(command, environment, limit_s):
    """Starts the four tasks as processes that nobody watches; returns their exit codes and what they wrote."""
    key = secrets.token_hex(32)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [
        subprocess.Popen(command, env={**environment, "HVD_JOB_KEY": key, "TF_CONFIG": config}, **pipes)
        for config in tf_configs()
    ]
    try:
        written = [process.communicate(timeout=limit_s)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], written


@pytest.mark.long
def test_between_graph_replication(tmp_path):
    """Asynchronous workers, as a job of hvdrun in which a server is killed; then, from their checkpoint, synchronous
    ones, as processes that are started by hand."""
    program = [sys.executable, str(PROGRAMS / "between_graph.py"), str(tmp_path)]
    environment = {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "HVD_SERVER_SNAPSHOT": str(tmp_path / "snapshots"),
        "HVD_SERVER_SNAPSHOT_SECONDS": "0",
        "HVD_STALL_SHUTDOWN_TIME_SECONDS": "60",
    }
    job = run_command([hvdrun(), "-np", "2", "--servers", "2", *program, "asynchronous"], environment)
    assert job.returncode == 0, job.output
    assert "was killed by SIGKILL; it is started again" in job.output, job.output
    steps = steps_in(job.output)
    assert sorted(steps) == [0, 1] and sum(own for own, _ in steps.values()) == 300, job.output
    counted = steps[0][1]

    codes, written = run_by_hand([*program, "synchronous"], {**os.environ, **environment}, limit_s=600)
    assert codes == [0, 0, 0, 0], written
    assert steps_in("".join(written)) == {0: (300, counted + 600), 1: (300, counted + 600)}, written
