"""Gradients through collectives, in eager mode, within tf.function and in sessions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import hvd.tensorflow as hvd
from tensorflow_modes import MODES, run

pytestmark = [pytest.mark.ranks, pytest.mark.parametrize("mode", MODES)]


def leaf(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape) + hvd.rank()


def gradients(mode, function, *inputs):
    """The gradients of the sum of all that the function returns."""

    def derive(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.add_n([tf.cast(tf.reduce_sum(each), tf.float64) for each in tf.nest.flatten(function(*tensors))])
        return tape.gradient(loss, list(tensors))

    return run(mode, derive, *inputs)


def test_allreduce(mode):
    own, total = hvd.rank() + 1.0, sum(rank + 1.0 for rank in range(hvd.size()))

    def weighted(*tensors):
        return [
            own * hvd.allreduce(tensor, op=op, prescale_factor=0.5)
            for tensor, op in zip(tensors, (hvd.Sum, hvd.Average))
        ]

    of_sum, of_average = gradients(mode, weighted, leaf(4), leaf(4))
    np.testing.assert_allclose(of_sum, np.full(4, 0.5 * total))
    np.testing.assert_allclose(of_average, np.full(4, 0.5 * total / hvd.size()))


def test_minima_have_no_gradient(mode):
    for collective in (hvd.allreduce, hvd.reducescatter):
        with pytest.raises(LookupError, match="hvd: only averages and sums"):
            gradients(mode, lambda tensor, collective=collective: collective(tensor, op=hvd.Min), leaf(2))


def test_grouped_allreduce(mode):
    def weighted(first, second, unused):
        results = hvd.grouped_allreduce([first, second, unused, tf.constant([1, 2])], op=hvd.Sum)
        return results[0], 2 * results[1]

    first, second, unused = gradients(mode, weighted, leaf(2), leaf(3, 1).astype(np.float32), leaf(2))
    assert first.tolist() == [hvd.size()] * 2
    assert second.tolist() == [[2 * hvd.size()]] * 3 and second.dtype == np.float32
    assert unused.tolist() == [0, 0]


def test_allgather_gradient_is_this_ranks_slice_of_the_average(mode):
    rows = sum(rank + 1 for rank in range(hvd.size()))
    # Row i of the gathered tensor gets the gradient i on every rank: the average is i again.
    weights = np.arange(rows, dtype=np.float64)[:, np.newaxis]

    def weighted(one, other, third):
        gathered = hvd.grouped_allgather([other, third, tf.constant([1])])
        return [weights * hvd.allgather(one), weights * gathered[0], 2 * weights * gathered[1]]

    results = gradients(mode, weighted, *[leaf(hvd.rank() + 1, columns) for columns in (2, 3, 1)])
    first = sum(rank + 1 for rank in range(hvd.rank()))
    expected = weights[first : first + hvd.rank() + 1]
    for result, columns, factor in zip(results, (2, 3, 1), (1, 1, 2)):
        np.testing.assert_allclose(result, factor * expected.repeat(columns, axis=1))


def test_broadcast_gradient_goes_to_the_root(mode):
    root, own = hvd.size() - 1, hvd.rank() + 1.0
    (result,) = gradients(mode, lambda tensor: own * hvd.broadcast(tensor, root), leaf(3))
    average = sum(rank + 1.0 for rank in range(hvd.size())) / hvd.size()
    assert result.tolist() == [average if hvd.rank() == root else 0.0] * 3


def test_alltoall_gradient_goes_back(mode):
    size, own = hvd.size(), hvd.rank() + 10.0
    splits = [to + 1 for to in range(size)]

    def weighted(ragged, equal, longer):
        return [
            own * hvd.alltoall(ragged, splits=splits)[0],
            hvd.alltoall(equal),
            hvd.alltoall(longer, splits=[1] * size)[0],
        ]

    ragged, equal, longer = gradients(mode, weighted, leaf(sum(splits), 2), leaf(size), leaf(2 * size))
    assert ragged.tolist() == [[to + 10.0] * 2 for to, rows in enumerate(splits) for _ in range(rows)]
    assert equal.tolist() == [1.0] * size
    assert longer.tolist() == [1.0] * size + [0.0] * size  # the rest goes nowhere


def test_reducescatter_gradient_is_gathered(mode):
    size, own = hvd.size(), hvd.rank() + 1.0

    def weighted(averaged, summed, grouped):
        return [
            own * hvd.reducescatter(averaged),
            own * hvd.reducescatter(summed, op=hvd.Sum, prescale_factor=0.5),
            own * hvd.grouped_reducescatter([grouped, tf.constant([1, 2])])[0],
        ]

    averaged, summed, grouped = gradients(mode, weighted, *[leaf(2 * size + 1, 3) for _ in range(3)])
    expected = np.concatenate([np.full((2 + (rank == 0), 3), rank + 1.0) for rank in range(size)])
    np.testing.assert_allclose(averaged, expected)
    np.testing.assert_allclose(summed, expected * size * 0.5)
    np.testing.assert_allclose(grouped, expected)


def test_gradients_within_a_process_set(mode):
    if hvd.size() == 1:
        pytest.skip("one rank has no other sets")
    odd = hvd.add_process_set(range(1, hvd.size(), 2))
    if odd.included():
        own, root = hvd.rank() + 1.0, odd.ranks[-1]

        def weighted(reduced, gathered, received, scattered):
            whole = own * hvd.allgather(gathered, process_set=odd)
            return [
                own * hvd.allreduce(reduced, op=hvd.Sum, process_set=odd),
                whole,
                own * hvd.broadcast(received, root, process_set=odd),
                own * hvd.reducescatter(scattered, process_set=odd),
            ]

        results = gradients(mode, weighted, *[leaf(2) for _ in range(4)])
        weights = [member + 1.0 for member in odd.ranks]
        average = sum(weights) / len(weights)
        assert results[0].tolist() == [sum(weights)] * 2
        assert results[1].tolist() == [average] * 2
        assert results[2].tolist() == [average if hvd.rank() == root else 0.0] * 2
        assert results[3].tolist() == [weight for weight in weights for _ in range(2 // len(weights))]
    hvd.remove_process_set(odd)


def test_compression_is_differentiable(mode):
    (result,) = gradients(mode, lambda t: hvd.allreduce(t, compression=hvd.Compression.bf16), np.ones(3, np.float32))
    assert result.dtype == np.float32 and result.tolist() == [1.0] * 3


def test_second_derivatives(mode):
    def second(collective, tensor):
        with tf.GradientTape() as outer:
            outer.watch(tensor)
            with tf.GradientTape() as inner:
                inner.watch(tensor)
                cube = tf.reduce_sum(collective(tensor) ** 3)
            first = tf.reduce_sum(inner.gradient(cube, tensor))
        return outer.gradient(first, tensor)

    collectives = [
        hvd.allreduce,
        lambda tensor: hvd.grouped_allreduce([tensor])[0],
        hvd.allgather,
        lambda tensor: hvd.broadcast(tensor, 0),
        lambda tensor: hvd.alltoall(tensor),
        hvd.reducescatter,
    ]
    tensor = leaf(hvd.size() * 2)
    results = run(mode, lambda t: [second(collective, t) for collective in collectives], tensor)
    mean = np.mean([tensor - hvd.rank() + rank for rank in range(hvd.size())], axis=0)
    np.testing.assert_allclose(results[0], 6 * mean)
    np.testing.assert_allclose(results[1], 6 * mean)
    # The averages over ranks that Horovod's conventions ask for are taken twice.
    own = 6 * tensor / hvd.size()
    np.testing.assert_allclose(results[2], own)
    np.testing.assert_allclose(results[3], own if hvd.rank() == 0 else np.zeros_like(own))
    np.testing.assert_allclose(results[4], 6 * tensor)
    np.testing.assert_allclose(results[5], 6 * mean)


def test_gradients_of_graphs_as_tf_gradients_makes_them(mode):
    if mode == "eager":
        pytest.skip("has no graph")

    def derive(tensor):
        reduced = hvd.grouped_allreduce([tensor, tf.constant([1, 2]), tensor * 2], op=hvd.Sum)
        return tf.gradients(reduced[0], tensor)

    assert run(mode, derive, leaf(2))[0].tolist() == [hvd.size()] * 2
