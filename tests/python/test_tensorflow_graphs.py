"""What TensorFlow does to operations in graphs: infers, folds, merges, prunes, reorders, repeats, traces and saves."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

import hvd.tensorflow as hvd

pytestmark = pytest.mark.ranks
V1 = tf.compat.v1


def operations(function, *arguments) -> int:
    before = hvd.metrics()
    function(*arguments)
    return hvd.metrics(since=before)["operations"]


def test_shapes_are_inferred():
    with tf.Graph().as_default():
        known, open_rows = V1.placeholder(tf.float32, [4, 3]), V1.placeholder(tf.float32, [None, 3])
        unknown = V1.placeholder(tf.bfloat16)
        for tensor in (known, open_rows, unknown):
            same = [hvd.allreduce(tensor), hvd.broadcast(tensor, 0), hvd.grouped_allreduce([tensor])[0]]
            assert [each.shape.as_list() if each.shape.rank else None for each in same] == [
                tensor.shape.as_list() if tensor.shape.rank else None
            ] * 3
            rows = [
                hvd.allgather(tensor),
                hvd.reducescatter(tensor),
                hvd.alltoall(tensor),
                hvd.grouped_allgather([tensor])[0],
                hvd.grouped_reducescatter([tensor])[0],
            ]
            for each in rows:
                assert each.dtype == tensor.dtype
                assert (each.shape.as_list() == [None, 3]) if tensor is not unknown else each.shape.rank is None
        assert hvd.size_op().shape == hvd.rank_op().shape == hvd.join().shape == []


def test_inputs_that_are_constant_equal_or_without_use():
    """Each call is performed, each time: ranks must agree on that, whatever else is in their graphs."""

    @tf.function(autograph=False)
    def constants():
        hvd.allreduce(tf.constant([1.0]))
        hvd.allgather(tf.constant([1.0]))
        hvd.broadcast(tf.constant([1.0]), 0)
        hvd.alltoall(tf.ones([hvd.size()]))
        hvd.reducescatter(tf.ones([hvd.size()]))
        hvd.barrier()
        return hvd.allreduce(tf.constant([1.0]), op=hvd.Sum)

    @tf.function(autograph=False)
    def equal(tensor):
        return [hvd.allreduce(tensor, op=hvd.Sum) for _ in range(3)]

    for _ in range(3):
        assert operations(constants) == 7
        assert operations(equal, tf.ones(2)) == 3
    assert constants().numpy() == hvd.size() and [each.numpy()[0] for each in equal(tf.ones(2))] == [hvd.size()] * 3


def test_loops_with_ordered_operations():
    rounds = 20
    inputs = tf.reshape(tf.range(rounds * 3.0), [rounds, 3]) + float(hvd.rank())

    @tf.function(autograph=False)
    def loop(inputs):
        def body(i, results):
            return i + 1, results.write(i, hvd.allreduce(inputs[i], op=hvd.Sum))

        state = 0, tf.TensorArray(tf.float32, rounds)
        return tf.while_loop(lambda i, _: i < rounds, body, state, parallel_iterations=10)[1].stack()

    expected = np.arange(rounds * 3.0).reshape(rounds, 3) * hvd.size() + sum(range(hvd.size()))
    for _ in range(3):
        np.testing.assert_array_equal(loop(inputs), expected)
    assert operations(loop, inputs) == rounds


@pytest.mark.parametrize("nested", [False, True])
def test_loops_with_unordered_operations(nested):
    """Iterations that run at the same time call their gradients the same: no iteration may meet another."""
    rounds, variable = 20, tf.Variable(tf.ones([50]))

    def gradient(factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * variable) * factor
        return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, variable)

    step = tf.function(gradient, autograph=False) if nested else gradient

    @tf.function(autograph=False)
    def loop(factors):
        return tf.map_fn(step, factors, parallel_iterations=10)

    factors = tf.range(float(rounds)) + hvd.rank()
    expected = 2 * (np.arange(rounds) * hvd.size() + sum(range(hvd.size())))
    for _ in range(5):
        np.testing.assert_array_equal(loop(factors)[:, 0], expected)


def test_branches():
    @tf.function(autograph=False)
    def branch(tensor, flag):
        return tf.cond(flag, lambda: hvd.allreduce(tensor, op=hvd.Sum), lambda: hvd.allreduce(-tensor, op=hvd.Sum))

    for flag in (True, False, True):
        result = branch(tf.ones(2), tf.constant(flag))
        assert result.numpy().tolist() == [hvd.size() if flag else -hvd.size()] * 2


def test_functions_with_autograph():
    @tf.function
    def total(tensor, rounds):
        result = tf.zeros_like(tensor)
        for _ in tf.range(rounds):
            if tf.reduce_sum(tensor) > 0:
                result += hvd.allreduce(tensor, op=hvd.Sum)
        return result

    assert total(tf.ones(2), tf.constant(3)).numpy().tolist() == [3 * hvd.size()] * 2


def test_a_rank_that_retraces_more_often():
    @tf.function(autograph=False, reduce_retracing=False)
    def reduce(tensor, key):
        doubled = hvd.allreduce(tensor, op=hvd.Sum) * 2
        return hvd.allgather(doubled), hvd.grouped_allreduce([doubled, tensor])[0]

    ones = tf.ones(2)
    for i in range(6):
        key = i if hvd.rank() == 0 else 0  # a Python number: another value, another trace
        with tf.GradientTape() as tape:
            tape.watch(ones)
            gathered, averaged = reduce(ones, key)
        assert tape.gradient(averaged, ones).numpy().tolist() == [2 * hvd.size()] * 2
        assert gathered.numpy().tolist() == [2 * hvd.size()] * 2 * hvd.size()
        assert averaged.numpy().tolist() == [2 * hvd.size()] * 2


def test_threads_with_functions_of_their_own():
    results = {}

    def work(name, factor):
        @tf.function(autograph=False)
        def reduce(tensor):
            return hvd.allreduce(tensor, op=hvd.Sum, name=f"{name}_one") + hvd.allreduce(
                tensor, op=hvd.Max, name=f"{name}_two"
            )

        results[name] = [reduce(tf.fill([10], factor * i)).numpy()[0] for i in range(30)]

    threads = [threading.Thread(target=work, args=(f"thread{i}", i + 1.0)) for i in range(2)]
    for thread in threads if hvd.rank() % 2 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for i in range(2):
        assert results[f"thread{i}"] == [(i + 1.0) * step * (hvd.size() + 1) for step in range(30)]


def test_names_of_scopes():
    with tf.Graph().as_default(), V1.Session() as session:
        with tf.name_scope("here" if hvd.rank() == 0 else "there"):
            result = hvd.allreduce(tf.ones(2), op=hvd.Sum, name="x y:0", ignore_name_scope=True)
            gathered = hvd.grouped_allgather([tf.ones(1)], name="x y:0", ignore_name_scope=True)[0]
        assert session.run(result).tolist() == [hvd.size()] * 2
        assert session.run(gathered).tolist() == [1] * hvd.size()


def test_saved_models(tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, tensor):
            return hvd.allreduce(tensor, op=hvd.Sum), hvd.size_op(), hvd.rank_op()

    tf.saved_model.save(Module(), str(tmp_path))
    total, size, rank = tf.saved_model.load(str(tmp_path))(tf.ones(3))
    assert total.numpy().tolist() == [hvd.size()] * 3 and (int(size), int(rank)) == (hvd.size(), hvd.rank())


def test_datasets_and_eager_functions():
    tf.config.run_functions_eagerly(True)
    try:
        result = tf.function(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum))(tf.ones(2))
    finally:
        tf.config.run_functions_eagerly(False)
    assert result.numpy().tolist() == [hvd.size()] * 2
    dataset = tf.data.Dataset.range(5).map(lambda i: hvd.allreduce(i + hvd.rank(), op=hvd.Sum))
    assert [int(each) for each in dataset] == [i * hvd.size() + sum(range(hvd.size())) for i in range(5)]


def test_gradients_of_loops():
    if hvd.rank() == 0:
        tf.function(lambda: tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0]))()  # TensorFlow numbers what it traces

    @tf.function(autograph=False)
    def power(tensor):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            (_, result) = tf.while_loop(
                lambda i, _: i < 3, lambda i, each: (i + 1, hvd.allreduce(each) * each), (0, tensor)
            )
        return result, tape.gradient(result, tensor)

    result, gradient = power(tf.constant([2.0]))
    assert result.numpy() == 2**8 and gradient.numpy() == 8 * 2**7


def test_a_function_survives_the_runtime():
    @tf.function(autograph=False)
    def step(tensor):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            loss = tf.reduce_sum(tensor * tensor)
        return hvd.allreduce(tensor, op=hvd.Sum), hvd.DistributedGradientTape(tape).gradient(loss, tensor)

    for _ in range(3):
        total, gradient = step(tf.fill([2], float(hvd.rank() + 1)))
        assert total.numpy()[0] == gradient.numpy()[0] * hvd.size() / 2 == sum(range(hvd.size() + 1))
        hvd.barrier()
        hvd.shutdown()
        hvd.init()


def gradient_of_squares(factors, variable):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable * factors)
    return hvd.DistributedGradientTape(tape).gradient(loss, variable)


@pytest.mark.parametrize("traced_before", [False, True])
def test_two_calls_of_a_function_in_another_one(traced_before):
    variable = tf.Variable([1.0, 1.0])
    inner = tf.function(lambda factors: gradient_of_squares(factors, variable))
    if traced_before:
        inner(tf.ones([2]))
    outer = tf.function(lambda a, b: (inner(a), inner(b)))
    for _ in range(20):
        first, second = outer(tf.fill([2], 1.0 + hvd.rank()), tf.fill([2], 10.0))
        assert first.numpy().tolist() == [hvd.size() + 1.0] * 2
        assert second.numpy().tolist() == [20.0] * 2


def test_constant_gradients_are_reduced_in_every_step():
    """Else a rank that traces once more would wait for the others while it optimises its graph."""
    bias = tf.Variable([0.0])

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(inputs + bias)
        return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, bias)

    for rows in (4, 4, 3 if hvd.rank() == 0 else 4):
        gradients = []
        reductions = operations(lambda rows=rows, to=gradients: to.append(step(tf.ones([rows, 1]))))
        assert gradients[0].numpy().tolist() == [hvd.size()]
        assert reductions == (1 if hvd.size() > 1 else 0)
