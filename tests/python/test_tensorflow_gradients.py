"""Tapes that reduce gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import hvd.tensorflow as hvd

pytestmark = pytest.mark.ranks
WAYS = pytest.mark.parametrize("way", ["eager", "function", "eagerly"])
OPTIONS = {
    "plain": {},
    "sum": {"op": hvd.Sum},
    "predivide": {"gradient_predivide_factor": 2.0},
    "fp16": {"compression": hvd.Compression.fp16},
    "bf16": {"compression": hvd.Compression.bf16},
    "two groups": {"num_groups": 2},
    "number of groups": {"groups": 3},
    "more groups than gradients": {"num_groups": 100},
}


def called(way, function, *arguments):
    if way == "eager":
        return function(*arguments)
    tf.config.run_functions_eagerly(way == "eagerly")
    try:
        traced = tf.function(function, autograph=False)
        first, second = traced(*arguments), traced(*arguments)
    finally:
        tf.config.run_functions_eagerly(False)
    tf.nest.map_structure(lambda one, other: np.testing.assert_array_equal(one, other), first, second)
    return second


def mean(of) -> float:
    return sum(of(rank) for rank in range(hvd.size())) / hvd.size()


@WAYS
@pytest.mark.parametrize("options", OPTIONS)
def test_dense_gradients(way, options):
    arguments = dict(OPTIONS[options])
    types = (tf.float32, tf.float64, tf.float32, tf.float16, tf.bfloat16)
    variables = [tf.Variable(tf.ones([i + 1, 2], dtype)) for i, dtype in enumerate(types)]

    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.cast(each * each, tf.float64)) / 2 for each in variables]) * (
                hvd.rank() + 1.0
            )
        return hvd.DistributedGradientTape(tape, **arguments).gradient(loss, variables)

    expected = mean(lambda rank: rank + 1.0) * (hvd.size() if "op" in arguments else 1)
    for variable, gradient in zip(variables, called(way, step)):
        assert gradient.dtype == variable.dtype and gradient.shape == variable.shape
        np.testing.assert_allclose(tf.cast(gradient, tf.float64), np.full(variable.shape, expected), rtol=1 / 128)


@WAYS
@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients(way, as_dense):
    table, weight = tf.Variable(tf.ones([8, 2])), tf.Variable(tf.ones([2, 1]))
    rows = tf.range(hvd.rank() + 1)

    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, rows) @ weight)
        gradients = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense).gradient(loss, [table, weight])
        assert isinstance(gradients[0], tf.IndexedSlices) != as_dense or hvd.size() == 1
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    of_table, of_weight = called(way, step, rows)
    expected = [[mean(lambda rank, row=row: float(row <= rank))] * 2 for row in range(8)]
    np.testing.assert_allclose(of_table, expected)
    np.testing.assert_allclose(of_weight, [[mean(lambda rank: rank + 1)]] * 2)


@WAYS
def test_local_sources(way):
    shared, own, sparse = tf.Variable([1.0, 2.0]), tf.Variable([1.0]), tf.Variable(tf.ones([4, 1]))
    factor = hvd.rank() + 1.0
    for scale in (True, False):

        def step(scale=scale):
            with tf.GradientTape(persistent=True) as tape:
                loss = factor * (tf.reduce_sum(shared) + tf.reduce_sum(own * 3) + tf.reduce_sum(tf.gather(sparse, [1])))
            tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
            for variable in (own, sparse):
                tape.register_local_source(variable)
            local, reduced = tape.get_local_and_global_gradients(loss, [own, shared, sparse])
            assert [source is own or source is sparse for _, source in local] == [True, True]
            assert len(reduced) == 1 and reduced[0][1] is shared
            apart = [gradient for gradient, _ in reduced + local]
            together = tape.gradient(loss, [shared, own, sparse])
            return [[tf.convert_to_tensor(each) for each in gradients] for gradients in (apart, together)]

        divisor = hvd.size() if scale else 1
        for gradients in called(way, step):
            assert gradients[0].numpy().tolist() == [mean(lambda rank: rank + 1.0)] * 2
            np.testing.assert_allclose(gradients[1], [factor * 3 / divisor])
            np.testing.assert_allclose(gradients[2], [[0.0], [factor / divisor], [0.0], [0.0]])


def test_local_gradients_are_divided_by_the_ranks_of_the_job_in_which_a_function_runs():
    variable = tf.Variable([1.0])

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * 3)
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(variable)
        return tape.gradient(loss, variable)

    if hvd.size() > 1:
        operations = step.get_concrete_function().graph.get_operations()
        assert "HvdSize" in [operation.type for operation in operations]
    assert step().numpy().tolist() == [pytest.approx(3 / hvd.size())]


@WAYS
def test_structures_of_sources_and_missing_gradients(way):
    first, second, unused = tf.Variable(1.0), tf.Variable([2.0]), tf.Variable(3.0)
    factor = hvd.rank() + 1.0

    def step():
        with tf.GradientTape(persistent=True) as tape:
            loss = factor * (first + tf.reduce_sum(second))
        tape = hvd.DistributedGradientTape(tape)
        nested = tape.gradient(loss, {"b": [first, (unused,)], "a": second})
        assert nested["b"][1][0] is None
        zeros = tape.gradient(loss, (unused, first), unconnected_gradients=tf.UnconnectedGradients.ZERO)
        weighted = tape.gradient(loss, first, output_gradients=tf.constant(2.0))
        assert tape.gradient(loss, [unused]) == [None] and tape.gradient(loss, []) == []
        return nested["b"][0], nested["a"], zeros, weighted, tape.gradient(loss, first, use_generic_names=True)

    first_gradient, second_gradient, zeros, weighted, single = called(way, step)
    assert first_gradient == single == second_gradient[0] == mean(lambda rank: rank + 1.0)
    assert zeros[0] == 0 and zeros[1] == single and weighted == 2 * single


def test_jacobians():
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        squares = (hvd.rank() + 1.0) * variable * variable
    expected = mean(lambda rank: rank + 1.0) * np.diag([2.0, 4.0])
    jacobian = hvd.DistributedGradientTape(tape).jacobian(squares, [variable])[0]
    np.testing.assert_allclose(jacobian, expected)

    batch = tf.constant([[1.0], [2.0]])  # each rank's own
    with tf.GradientTape() as tape:
        tape.watch(batch)
        squares = (hvd.rank() + 1.0) * batch * batch
    of_examples = hvd.DistributedGradientTape(tape).batch_jacobian(squares, batch)
    np.testing.assert_allclose(of_examples, (hvd.rank() + 1.0) * np.array([[[2.0]], [[4.0]]]))


@WAYS
def test_tapes_wrapped_before_while_and_after_they_record(way):
    variable, factor = tf.Variable(2.0), hvd.rank() + 1.0

    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as before:
            squared = factor * variable * variable
        yields = [before.gradient(squared, variable)]
        with tf.GradientTape() as tape:
            squared = factor * variable * variable
            while_recording = hvd.DistributedGradientTape(tape)
        yields.append(while_recording.gradient(squared, variable))
        with tf.GradientTape() as tape:
            tape = hvd.DistributedGradientTape(tape)
            squared = factor * variable * variable
            yields.append(tape.gradient(squared, variable))
        with tf.GradientTape() as tape:
            squared = factor * variable * variable
        after = hvd.DistributedGradientTape(tape)
        assert [each is variable for each in after.watched_variables()] == [True]
        yields.append(after.gradient(squared, variable))
        constant = tf.constant(3.0)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape = hvd.DistributedGradientTape(tape)
            tape.watch(constant)
            squared = factor * constant * constant + variable
        yields.append(tape.gradient(squared, constant) * 2 / 3)
        return yields

    for gradient in called(way, step):
        np.testing.assert_allclose(gradient, 4 * mean(lambda rank: rank + 1.0), rtol=1e-6)


def test_a_tape_gives_gradients_once_unless_it_is_persistent():
    variable = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        squared = variable * variable
    tape = hvd.DistributedGradientTape(tape)
    assert isinstance(tape, tf.GradientTape)
    assert tape.gradient(squared, variable) == 4
    with pytest.raises(RuntimeError, match="non-persistent"):
        tape.gradient(squared, variable)


@WAYS
def test_groups_of_variables(way):
    variables = [tf.Variable(tf.fill([i + 1], 1.0)) for i in range(5)]
    groups = [[variables[3], variables[0]], [variables[1], variables[4]]]

    def step():
        with tf.GradientTape() as tape:
            loss = (hvd.rank() + 1.0) * tf.add_n([tf.reduce_sum(each * each) / 2 for each in variables])
        return hvd.DistributedGradientTape(tape, groups=groups).gradient(loss, variables)

    before = hvd.metrics()
    gradients = called(way, step)
    calls = 1 if way == "eager" else 2
    # Two groups, and what is in none of them.
    assert hvd.metrics(since=before)["operations"] == (3 * calls if hvd.size() > 1 else 0)
    for gradient in gradients:
        np.testing.assert_allclose(gradient, np.full(gradient.shape, mean(lambda rank: rank + 1.0)))


def test_wrong_arguments():
    variable, tape = tf.Variable(1.0), tf.GradientTape()
    for arguments, text in (
        ({"op": 17}, "op is 17"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "needs op=Average"),
        ({"gradient_predivide_factor": 0.0}, "must be positive"),
        ({"num_groups": -1}, "must not be negative"),
        ({"groups": -1}, "must not be negative"),
        ({"groups": [[variable]], "num_groups": 1}, "exclude each other"),
        ({"groups": [variable]}, "list of lists"),
        ({"groups": [[variable], [variable]]}, "one group only"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedGradientTape(tape, **arguments)
    with pytest.raises(ValueError, match="local_layers must be Keras layers, not int"):
        hvd.PartialDistributedGradientTape(tape, local_layers=[1])
    layer = tf.keras.layers.Dense(1)
    for layers in (layer, [layer], (layer,), {layer}, {"first": layer}, iter([layer])):
        hvd.PartialDistributedGradientTape(tape, local_layers=layers)


@WAYS
def test_partial_tape(way):
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    shared, own = keras.layers.Dense(1, use_bias=False), keras.layers.Dense(2)
    for layer in (shared, own):
        layer.build((None, 2))
    inputs, factor = tf.ones([1, 2]), hvd.rank() + 1.0

    def step():
        with tf.GradientTape() as tape:
            loss = factor * (tf.reduce_sum(shared(inputs)) + tf.reduce_sum(own(inputs)))
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=[own])
        return tape.gradient(loss, [*shared.trainable_variables, *own.trainable_variables])

    of_shared, *of_own = called(way, step)
    np.testing.assert_allclose(of_shared, np.full((2, 1), mean(lambda rank: rank + 1.0)))
    for gradient in of_own:
        np.testing.assert_allclose(gradient, np.full(gradient.shape, factor / hvd.size()))


@WAYS
def test_tapes_of_one_program_do_not_meet_each_other(way):
    """As in adversarial training: equal shapes, several tapes in one step."""
    one, other = tf.Variable([1.0]), tf.Variable([1.0])

    def step():
        with tf.GradientTape() as first, tf.GradientTape() as second:
            losses = one * (hvd.rank() + 1.0), other * (hvd.rank() + 5.0)
        first, second = hvd.DistributedGradientTape(first), hvd.DistributedGradientTape(second)
        # The backward passes have no order among them.
        return first.gradient(losses[0], one), second.gradient(losses[1], other)

    first, second = called(way, step)
    assert first.numpy() == mean(lambda rank: rank + 1.0) and second.numpy() == mean(lambda rank: rank + 5.0)
