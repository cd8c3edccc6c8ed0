"""Training with hvd.mxnet on two ranks, and how it ends; mxnet_checks.py runs the checks."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import subprocess
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet_collectives import RANKS, equal, raises

import horovod.mxnet as horovod
import hvd.mxnet as hvd


def made_network(deferred=False):
    """Of all kinds of parameters: convolutions, batch normalisation, dense layers."""
    network = gluon.nn.HybridSequential(prefix="")
    in_of = (lambda size: {}) if deferred else (lambda size: size)
    network.add(
        gluon.nn.Conv2D(4, 3, activation="relu", **in_of({"in_channels": 1})),
        gluon.nn.BatchNorm(use_global_stats=True, **in_of({"in_channels": 4})),
        gluon.nn.Dense(8, activation="tanh", **in_of({"in_units": 144})),
        gluon.nn.Dense(3, **in_of({"in_units": 8})),
    )
    mx.random.seed(hvd.rank() + 17 * deferred)
    network.initialize(mx.init.Xavier())
    return network


def parameters_of(network):
    return [each.data().asnumpy() for each in network.collect_params().values()]


def check_parameters_with_known_and_deferred_shapes():
    for deferred in (False, True):
        network = made_network(deferred)
        hvd.broadcast_parameters(network.collect_params(), prefix=f"{deferred}.")
        network(mx.nd.ones((1, 1, 8, 8))).wait_to_read()
        own = parameters_of(network)
        for mine, first in zip(own, hvd.broadcast_object(own)):
            np.testing.assert_array_equal(mine, first)
    arrays = {"a": mx.nd.ones(2) * hvd.rank(), "b": mx.nd.ones(1) * hvd.rank()}
    hvd.broadcast_parameters(arrays, root_rank=1)
    equal(arrays["a"], [1.0, 1.0])


def batches(steps=4, batch=8):
    random = np.random.RandomState(1)
    for _ in range(steps):
        yield random.normal(size=(batch, 1, 8, 8)).astype(np.float32), random.randint(0, 3, size=batch)


def train(network, trainer, rank, ranks):
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for images, labels in batches():
        mine = slice(rank * len(images) // ranks, (rank + 1) * len(images) // ranks)
        with autograd.record():
            loss = loss_of(network(mx.nd.array(images[mine])), mx.nd.array(labels[mine]))
        loss.backward()
        trainer.step(len(loss))
    return parameters_of(network)


def reference(start):
    network = made_network()
    restore(network, start)
    settings = {"learning_rate": 0.1, "momentum": 0.9}
    return train(network, gluon.Trainer(network.collect_params(), "sgd", settings, kvstore=None), 0, 1)


def restore(network, values):
    for parameter, value in zip(network.collect_params().values(), values):
        parameter.set_data(mx.nd.array(value))


def check_trainers_make_the_steps_of_one_process():
    network = made_network()
    network.hybridize()
    hvd.broadcast_parameters(network.collect_params())
    start = parameters_of(network)
    expected = reference(start)
    sgd = {"learning_rate": 0.1, "momentum": 0.9}
    for options, tolerance in [
        ({}, 1e-5),
        ({"num_groups": 2, "gradient_predivide_factor": 2.0, "prefix": "second."}, 1e-5),
        ({"compression": hvd.Compression.fp16}, 5e-3),
        (None, 1e-5),
    ]:
        restore(network, start)
        if options is None:
            optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(**sgd), num_groups=3)
            trainer = gluon.Trainer(network.collect_params(), optimizer, kvstore=None)
        else:
            trainer = hvd.DistributedTrainer(network.collect_params(), "sgd", sgd, **options)
        own = train(network, trainer, hvd.rank(), RANKS)
        for mine, first, wanted in zip(own, hvd.broadcast_object(own), expected):
            np.testing.assert_array_equal(mine, first)
            np.testing.assert_allclose(mine, wanted, atol=tolerance)


def check_trainers_of_process_sets_and_wrong_ones():
    sets = [hvd.add_process_set([rank]) for rank in range(RANKS)]
    parameter = gluon.Parameter("weight", shape=(1,))
    parameter.initialize(mx.init.One())
    for process_set, factor, expected in [
        (sets[0], 1.0, -hvd.rank()),
        (sets[hvd.rank()], 4.0, -hvd.rank()),  # of one rank
        (hvd.global_process_set, 1.0, -0.5),
    ]:
        parameter.set_data(mx.nd.zeros(1))
        sgd = {"learning_rate": 1.0}
        trainer = hvd.DistributedTrainer(
            [parameter], "sgd", sgd, gradient_predivide_factor=factor, process_set=process_set
        )
        with autograd.record():
            loss = parameter.data() * hvd.rank()
        loss.backward()
        trainer.step(1)
        equal(parameter.data(), [float(expected)])
    parameter.grad_req = "null"
    hvd.DistributedTrainer([parameter], "sgd", num_groups=2).step(1)  # which has nothing to do
    for options, text in [
        ({"gradient_predivide_factor": 0.0}, "must be positive"),
        ({"num_groups": -1}, "num_groups must not be negative"),
    ]:
        with raises(ValueError, text):
            hvd.DistributedTrainer([parameter], "sgd", **options)
    for each in sets:
        hvd.remove_process_set(each)


def check_an_optimizer_of_the_module_api():
    data, label = mx.sym.Variable("data"), mx.sym.Variable("label")
    output = mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(data, num_hidden=1, name="layer"), label)
    module = mx.mod.Module(output, label_names=["label"])
    module.bind([("data", (2, 3))], [("label", (2, 1))])
    module.init_params(mx.init.Constant(hvd.rank()))
    weights, _ = module.get_params()
    hvd.broadcast_parameters(weights, root_rank=1)
    module.set_params(weights, {})
    given = mx.optimizer.SGD(learning_rate=0.5, rescale_grad=1.0)
    optimizer = hvd.DistributedOptimizer(hvd.DistributedOptimizer(given))  # averages of averages
    assert given.rescale_grad == 1.0 and optimizer.rescale_grad == 1.0
    assert optimizer.learning_rate == 0.5 and isinstance(optimizer, mx.optimizer.Optimizer)
    module.init_optimizer(kvstore=None, optimizer=optimizer)
    inputs = np.ones((2, 3)) * (hvd.rank() + 1)
    batch = mx.io.DataBatch([mx.nd.array(inputs)], [mx.nd.zeros((2, 1))])
    module.forward_backward(batch)
    module.update()
    weights, _ = module.get_params()
    # Inputs of 1 and 2, outputs of 3 and 6: gradients of 2 * 3 and 2 * 12.
    equal(weights["layer_weight"], [[1 - 0.5 * (6 + 24) / 2] * 3])
    restored = pickle.loads(pickle.dumps(optimizer))
    assert isinstance(restored, hvd.DistributedOptimizer) and restored.learning_rate == 0.5


SAVING_ALONE = """
import pickle, sys
import mxnet as mx
import hvd.mxnet as hvd
hvd.init()
sys.stdout.buffer.write(pickle.dumps(hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))))
"""


def check_an_optimizer_that_a_job_of_one_has_saved():
    """As Trainer.save_states() does: it averages here."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HVD_", "HOROVOD_"))}
    command = [sys.executable, "-c", SAVING_ALONE]
    saved = subprocess.run(command, env={**own, "HVD_SIZE": "1"}, stdout=subprocess.PIPE, check=True)
    optimizer = pickle.loads(saved.stdout)
    weight = mx.nd.zeros(1)
    optimizer.update(0, weight, mx.nd.array([hvd.rank()]), optimizer.create_state(0, weight))
    equal(weight, [-0.5])


SIGNATURES = {
    "allreduce": "tensor average name priority prescale_factor postscale_factor process_set op",
    "allreduce_": "tensor average name priority prescale_factor postscale_factor process_set op",
    "grouped_allreduce": "tensors average name priority prescale_factor postscale_factor process_set op",
    "grouped_allreduce_": "tensors average name priority prescale_factor postscale_factor process_set op",
    "allgather": "tensor name priority process_set",
    "grouped_allgather": "tensors name priority process_set",
    "broadcast": "tensor root_rank name priority process_set",
    "broadcast_": "tensor root_rank name priority process_set",
    "alltoall": "tensor splits name priority process_set",
    "reducescatter": "tensor op name priority process_set prescale_factor postscale_factor",
    "grouped_reducescatter": "tensors op name priority process_set prescale_factor postscale_factor",
    "broadcast_parameters": "params root_rank prefix",
    "broadcast_object": "obj root_rank name",
    "allgather_object": "obj name",
    "DistributedOptimizer": "optimizer gradient_predivide_factor num_groups process_set",
    "DistributedTrainer": "params optimizer optimizer_params compression gradient_predivide_factor prefix num_groups "
    "process_set",
}


def check_horovods_names():
    for name, expected in SIGNATURES.items():
        given = list(inspect.signature(getattr(horovod, name)).parameters)
        assert given[: len(expected.split())] == expected.split(), (name, given)
    assert horovod.Compression.fp16 is hvd.Compression.fp16 and horovod.allreduce is hvd.allreduce
    for name in ("compression", "functions", "mpi_ops"):  # which scripts use after `import horovod.mxnet as hvd` alone
        assert getattr(horovod, name) is importlib.import_module(f"horovod.mxnet.{name}")
    with raises(hvd.HorovodInternalError, "Average and Sum here"):
        horovod.reducescatter(mx.nd.ones(2), op=horovod.Max)
    for kind in (ValueError, mx.base.MXNetError):
        with raises(kind, "do not fit a first dimension of 1"):
            horovod.alltoall(mx.nd.ones(1), [1, 1])
    with raises(hvd.HorovodInternalError, "a scalar has no rows"):
        horovod.alltoall(mx.np.array(1.0))
    from horovod.common import util
    from horovod.runner.launch import build_report

    assert util.extension_available("mxnet") and not util.gpu_available("mxnet")
    assert "[X] MXNet" in build_report()


def check_shutdown_waits_for_the_engine():
    slow = mx.nd.dot(mx.nd.ones((600, 600)), mx.nd.ones((600, 600)))
    results = [hvd.allreduce(slow * (hvd.rank() + 1)) for _ in range(5)]
    hvd.shutdown()
    for result in results:
        equal(result[0, 0:1], [900.0])
    with raises(ValueError, "not initialised"):
        hvd.allreduce(slow)
    hvd.init()
    equal(hvd.allreduce(slow[0, 0:1]), [600.0])


def check_a_lost_rank():
    if hvd.rank() == 1:
        os._exit(3)
    arrays = [hvd.allreduce(mx.nd.ones(3)), hvd.broadcast(mx.nd.ones(4), 0) * 2]
    for array in arrays:
        with raises(hvd.HorovodInternalError, "rank 1 on .* is lost"):
            array.wait_to_read()
    with raises(hvd.HorovodInternalError, "rank 1 on .* is lost"):
        hvd.allgather(mx.nd.ones(3))
