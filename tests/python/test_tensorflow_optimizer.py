"""DistributedOptimizer over the optimizers of tf.compat.v1.train, and local aggregation."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

import hvd.tensorflow as hvd

pytestmark = pytest.mark.ranks
V1 = tf.compat.v1
WAYS = pytest.mark.parametrize("way", ["eager", "function", "session"])


def train(way, steps, make_optimizer, sparse=False):
    """The values of a variable that is moved by the gradients rank + step + 1, with a rate of 1."""
    rows = [0, 1]

    def loss_of(variable, factor):
        part = tf.gather(variable, rows) if sparse else variable
        return tf.reduce_sum(part) * factor

    factors = [hvd.rank() + step + 1.0 for step in range(steps)]
    if way == "session":
        with tf.Graph().as_default(), V1.Session() as session:
            variable, factor = V1.get_variable("v", initializer=tf.zeros([2])), V1.placeholder(tf.float32, [])
            count = V1.train.create_global_step()
            operation = make_optimizer().minimize(loss_of(variable, factor), global_step=count)
            session.run([V1.global_variables_initializer(), V1.local_variables_initializer()])
            values = []
            for each in factors:
                session.run(operation, {factor: each})
                values.append(session.run(variable).tolist())
            return values
    variable, optimizer = tf.Variable(tf.zeros([2])), make_optimizer()

    def step(factor):
        optimizer.minimize(lambda: loss_of(variable, factor), var_list=[variable])

    called = tf.function(step) if way == "function" else step
    values = []
    for each in factors:
        called(tf.constant(each))
        values.append(variable.numpy().tolist())
    return values


def mean_factor(step):
    return sum(rank + step + 1.0 for rank in range(hvd.size())) / hvd.size()


@WAYS
@pytest.mark.parametrize("sparse", [False, True])
def test_each_step_is_that_of_the_average(way, sparse):
    values = train(way, 3, lambda: hvd.DistributedOptimizer(V1.train.GradientDescentOptimizer(1.0)), sparse)
    np.testing.assert_allclose(values, [[-sum(mean_factor(s) for s in range(n + 1))] * 2 for n in range(3)], rtol=1e-6)


@WAYS
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("passes", [2, 3])
def test_several_backward_passes_make_a_step(way, average, passes, caplog):
    def make():
        return hvd.DistributedOptimizer(
            V1.train.GradientDescentOptimizer(1.0),
            backward_passes_per_step=passes,
            average_aggregated_gradients=average,
        )

    with caplog.at_level(logging.WARNING):
        values = train(way, 2 * passes, make)
    assert "AutoGraph" not in caplog.text
    moved = [sum(mean_factor(step) for step in range(first, first + passes)) for first in (0, passes)]
    moved = [each / passes if average else each for each in moved]
    expected = [0.0] * (passes - 1) + [-moved[0]] * passes + [-moved[0] - moved[1]]
    np.testing.assert_allclose(values, [[each] * 2 for each in expected], rtol=1e-5)


@pytest.mark.parametrize("way", ["eager", "session"])
def test_aggregation_reduces_once_a_step(way):
    def make():
        return hvd.DistributedOptimizer(V1.train.GradientDescentOptimizer(1.0), op=hvd.Sum, backward_passes_per_step=4)

    before = hvd.metrics()
    train(way, 8, make)
    assert hvd.metrics(since=before)["operations"] == (2 if hvd.size() > 1 else 0)


@WAYS
def test_options(way):
    for options in (
        {"compression": hvd.Compression.fp16},
        {"gradient_predivide_factor": 2.0},
        {"num_groups": 1},
        {"sparse_as_dense": True},
        {"name": "mine", "use_locking": True},
    ):
        values = train(
            way, 1, lambda options=options: hvd.DistributedOptimizer(V1.train.GradientDescentOptimizer(1.0), **options)
        )
        np.testing.assert_allclose(values, [[-mean_factor(0)] * 2], rtol=1e-3)


def test_it_is_an_optimizer_with_slots():
    with tf.Graph().as_default(), V1.Session() as session:
        variable = V1.get_variable("v", initializer=tf.ones([2]))
        own = V1.get_variable("own", initializer=tf.ones([1]))
        optimizer = hvd.DistributedOptimizer(V1.train.AdamOptimizer(0.1))
        assert isinstance(optimizer, V1.train.Optimizer) and optimizer.get_name() == "DistributedAdamOptimizer"
        optimizer.register_local_var(own)
        factor = hvd.rank() + 1.0
        pairs = optimizer.compute_gradients(
            factor * (tf.reduce_sum(variable**2) + tf.reduce_sum(own**2)), [variable, own]
        )
        operation = optimizer.apply_gradients(pairs)
        session.run(V1.global_variables_initializer())
        gradients = session.run([gradient for gradient, _ in pairs])
        assert gradients[0].tolist() == [2 * mean_factor(0)] * 2
        np.testing.assert_allclose(gradients[1], [2 * factor / hvd.size()])
        session.run(operation)
        assert optimizer.get_slot_names() == ["m", "v"]
        np.testing.assert_allclose(
            session.run(optimizer.get_slot(variable, "m")), [0.2 * mean_factor(0)] * 2, rtol=1e-5
        )
        assert len(optimizer.variables()) == 6


def test_wrong_arguments():
    optimizer = hvd.DistributedOptimizer(V1.train.GradientDescentOptimizer(1.0))
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="backward_passes_per_step must be at least 1"):
        hvd.DistributedOptimizer(V1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=0)


def test_helper_by_itself():
    reduced = []

    def reduce(gradients, variables):
        reduced.append([None if each is None else each.numpy().tolist() for each in gradients])
        return [None if each is None else each * 10 for each in gradients]

    helper = hvd.LocalGradientAggregationHelper(2, reduce, sparse_as_dense=True, average_aggregated_gradients=True)
    variables = [tf.Variable([0.0, 0.0]), tf.Variable(0.0), tf.Variable(0.0)]
    sparse = tf.IndexedSlices(tf.constant([4.0]), tf.constant([1]), tf.constant([2]))
    acted = []
    for _ in range(4):
        gradients = helper.compute_gradients([sparse, None, tf.constant(3.0)], variables)
        assert gradients[1] is None
        helper.apply_gradients(lambda got=gradients: acted.append([got[0].numpy().tolist(), float(got[2])]), None)
    assert reduced == [[[0, 4], None, 3]] * 2 and acted == [[[0, 40], 30]] * 2
    with pytest.raises(ValueError, match=r"gradients of variables \[1\] were None in the first backward pass"):
        helper.compute_gradients([sparse, tf.constant(1.0), tf.constant(3.0)], variables)


def test_optimizers_of_process_sets_are_numbered_by_themselves():
    if hvd.size() == 1:
        pytest.skip("needs two sets")
    alone = hvd.add_process_set([0])
    if hvd.rank() == 0:
        hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), process_set=alone)
    variable = tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
    optimizer.apply_gradients(optimizer.compute_gradients(lambda: variable * (1.0 + hvd.rank())))
    assert variable.numpy().tolist() == [1.0 - (hvd.size() + 1) / 2]
    hvd.remove_process_set(alone)
