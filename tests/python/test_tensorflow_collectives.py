"""Collectives on tensors of TensorFlow, in eager mode, within tf.function and in sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

import hvd.tensorflow as hvd
from tensorflow_modes import MODES, run

pytestmark = [pytest.mark.ranks, pytest.mark.parametrize("mode", MODES)]

NUMBERS = (
    tf.uint8,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
)


def as_doubles(results: list) -> list:
    return [np.asarray(result).astype(np.float64).tolist() for result in results]


def ranks() -> range:
    return range(hvd.size())


def test_allreduce_of_all_types(mode):
    size, base = hvd.size(), np.array([[1, 0], [1, 1]])
    inputs = [tf.cast(base * (hvd.rank() + 1), dtype) for dtype in NUMBERS]
    total = size * (size + 1) // 2
    expected = {
        hvd.Sum: base * total,
        hvd.Min: base,
        hvd.Max: base * size,
        hvd.Product: np.where(base, math.factorial(size), 0),
    }

    def reduce(*tensors):
        return {op: [hvd.allreduce(tensor, op=op) for tensor in tensors] for op in (*expected, hvd.Average)}

    results = run(mode, reduce, *inputs)
    for op, value in expected.items():
        assert as_doubles(results[op]) == [value.tolist()] * len(NUMBERS), op
    for dtype, result in zip(NUMBERS, results[hvd.Average]):
        assert result.dtype == dtype.as_numpy_dtype
        mean = base * total / size
        assert result.astype(np.float64).tolist() == (np.trunc(mean) if dtype.is_integer else mean).tolist(), dtype


@pytest.mark.parametrize("dtype", [tf.uint16, tf.uint32, tf.uint64], ids=lambda dtype: dtype.name)
def test_wide_unsigned_integers_only_move(mode, dtype):
    size = hvd.size()
    own = np.array([[dtype.max, hvd.rank()]] * size, dtype.as_numpy_dtype)

    def move(tensor):
        return [hvd.allgather(tensor), hvd.broadcast(tensor, size - 1), hvd.alltoall(tensor)]

    gathered, received, exchanged = run(mode, move, tf.constant(own))
    assert gathered.tolist() == [[dtype.max, rank] for rank in ranks() for _ in ranks()]
    assert received.tolist() == [[dtype.max, size - 1]] * size
    assert exchanged.tolist() == [[dtype.max, rank] for rank in ranks()]
    assert {result.dtype for result in (gathered, received, exchanged)} == {own.dtype}
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError), match=r"(?i)uint8, (DT_)?int8, "):
        run(mode, lambda tensor: hvd.allreduce(tensor, op=hvd.Sum), tf.constant(own))


def test_allreduce_of_bools(mode):
    tensor = tf.constant([True, False, hvd.rank() == 0])
    lowest, highest = run(mode, lambda t: [hvd.allreduce(t, op=op) for op in (hvd.Min, hvd.Max)], tensor)
    assert lowest.tolist() == [True, False, hvd.size() == 1]
    assert highest.tolist() == [True, False, True]


def test_adasum_of_equal_tensors_is_the_tensor(mode):
    result = run(mode, lambda t: hvd.allreduce(t, op=hvd.Adasum), tf.constant([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(result, [1, 2, 3], rtol=1e-6)


def test_scale_factors(mode):
    def reduce(whole, real, half):
        return [
            hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
            hvd.allreduce(real, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=3.0),
            hvd.allreduce(half, average=False, postscale_factor=0.1),
            *hvd.grouped_allreduce([real, real * 2], op=hvd.Average, prescale_factor=0.25),
        ]

    inputs = tf.constant([5, 6]), tf.constant([1.0, 2.0], tf.float64), tf.constant([10.0], tf.float16)
    whole, real, half, quarter, double_quarter = run(mode, reduce, *inputs)
    assert whole.tolist() == [int(2 * hvd.size() * 3), 9 * hvd.size()]
    # A factor of 32 bits would be off in the eighth digit.
    np.testing.assert_allclose(real, [hvd.size(), 2.0 * hvd.size()], rtol=1e-15)
    np.testing.assert_allclose(half, [hvd.size()], rtol=1e-3)
    assert quarter.tolist() == [0.25, 0.5] and double_quarter.tolist() == [0.5, 1.0]


def test_tensors_without_dimensions_and_without_elements(mode):
    def collect(scalar, empty, hollow):
        return {
            "scalar": hvd.allreduce(scalar, op=hvd.Sum),
            "empty": hvd.allreduce(empty, op=hvd.Sum),
            "group": hvd.grouped_allreduce([scalar, empty, hollow], op=hvd.Sum),
            "broadcast": [hvd.broadcast(scalar, hvd.size() - 1), hvd.broadcast(empty, 0), hvd.broadcast(hollow, 0)],
            "gather": [hvd.allgather(empty), hvd.allgather(hollow)],
            "alltoall": [hvd.alltoall(empty), hvd.alltoall(empty, splits=[0] * hvd.size())[0]],
            "scatter": [hvd.reducescatter(empty), hvd.reducescatter(hollow)],
        }

    inputs = tf.constant(hvd.rank() + 1.0), tf.zeros([0]), tf.zeros([3, 0, 2], tf.int64)
    results = run(mode, collect, *inputs)
    total = sum(rank + 1.0 for rank in ranks())
    assert results["scalar"].shape == () and results["scalar"] == total
    assert results["empty"].shape == (0,)
    assert [each.shape for each in results["group"]] == [(), (0,), (3, 0, 2)] and results["group"][0] == total
    assert [each.shape for each in results["broadcast"]] == [(), (0,), (3, 0, 2)]
    assert results["broadcast"][0] == hvd.size()
    assert [each.shape for each in results["gather"]] == [(0,), (3 * hvd.size(), 0, 2)]
    assert [each.shape for each in results["alltoall"]] == [(0,), (0,)]
    rows = 3 // hvd.size() + (hvd.rank() < 3 % hvd.size())
    assert [each.shape for each in results["scatter"]] == [(0,), (rows, 0, 2)]


def test_inputs_are_left_alone(mode):
    array = np.full((300, 300), hvd.rank() + 1.0, np.float32)

    def reduce(tensor):
        doubled = tensor + tensor
        results = hvd.allreduce(tensor, op=hvd.Sum), hvd.allreduce(doubled, op=hvd.Sum), hvd.broadcast(doubled, 0)
        with tf.control_dependencies(results) if mode != "eager" else tf.name_scope("after"):
            return [tf.identity(tensor), tf.identity(doubled), *results]

    tensor, doubled, *_ = run(mode, reduce, array)
    assert (tensor == hvd.rank() + 1).all() and (doubled == 2 * (hvd.rank() + 1)).all()
    assert (array == hvd.rank() + 1).all()


def test_ragged_allgather_of_all_types(mode):
    types = (*NUMBERS, tf.bool)
    inputs = [tf.cast(tf.fill([hvd.rank(), 3], hvd.rank()), dtype) for dtype in types]

    def gather(*tensors):
        return [[hvd.allgather(tensor) for tensor in tensors], hvd.grouped_allgather(tensors)]

    expected = np.concatenate([np.full((rank, 3), rank) for rank in ranks()])
    for gathered in run(mode, gather, *inputs):
        for dtype, each in zip(types, gathered):
            assert each.dtype == dtype.as_numpy_dtype
            assert each.tolist() == expected.astype(dtype.as_numpy_dtype).tolist()


def test_broadcast_of_all_types(mode):
    types = (*NUMBERS, tf.bool)
    inputs = [tf.cast(tf.fill([2, 3], hvd.rank()), dtype) for dtype in types]
    for root in {0, hvd.size() - 1}:
        results = run(mode, lambda *tensors, root=root: [hvd.broadcast(each, root) for each in tensors], *inputs)
        for dtype, result in zip(types, results):
            assert result.dtype == dtype.as_numpy_dtype
            assert result.tolist() == np.full((2, 3), root).astype(dtype.as_numpy_dtype).tolist()


def test_alltoall_of_all_types(mode):
    types = (*NUMBERS, tf.bool)
    size, rank = hvd.size(), hvd.rank()
    inputs = [tf.cast(tf.fill([2 * size, 2], rank), dtype) for dtype in types]
    results = run(mode, lambda *tensors: [hvd.alltoall(tensor) for tensor in tensors], *inputs)
    expected = np.repeat(np.arange(size), 2)[:, np.newaxis].repeat(2, axis=1)
    for dtype, result in zip(types, results):
        assert result.tolist() == expected.astype(dtype.as_numpy_dtype).tolist()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64], ids=lambda dtype: dtype.name)
def test_alltoall_with_splits(mode, dtype):
    size, rank = hvd.size(), hvd.rank()
    splits = tf.range(size, dtype=dtype) + rank  # rank r gives rank q r + q rows
    tensor = tf.fill([int(tf.reduce_sum(splits)), 2], float(rank))
    result, received = run(mode, lambda t, s: hvd.alltoall(t, splits=s), tensor, splits)
    assert received.dtype == np.int32 and received.tolist() == [rank + source for source in ranks()]
    expected = np.concatenate([np.full((rank + source, 2), float(source)) for source in ranks()])
    assert result.tolist() == expected.tolist()


@pytest.mark.parametrize("rows", [0, 1, 3, 8])
def test_reducescatter_of_rows_that_do_not_divide_evenly(mode, rows):
    size, rank = hvd.size(), hvd.rank()
    tensor = tf.reshape(tf.range(rows * 2), [rows, 2]) * (rank + 1)
    ops = (hvd.Sum, hvd.Average, hvd.Min, hvd.Max)

    def scatter(whole):
        real = tf.cast(whole, tf.bfloat16)
        single = [hvd.reducescatter(each, op=op) for op in ops for each in (whole, real)]
        group = hvd.grouped_reducescatter([whole, real], op=hvd.Sum, postscale_factor=2.0)
        return single, [hvd.reducescatter(whole), hvd.reducescatter(real, prescale_factor=0.5)], group

    each, more = divmod(rows, size)
    first = each * rank + min(rank, more)
    own = np.arange(rows * 2).reshape(rows, 2)[first : first + each + (rank < more)]
    total = size * (size + 1) // 2
    single, defaults, group = run(mode, scatter, tensor)
    expected = {hvd.Sum: own * total, hvd.Average: own * total / size, hvd.Min: own, hvd.Max: own * size}
    for op, (whole, real) in zip(ops, zip(single[::2], single[1::2])):
        assert whole.tolist() == np.trunc(expected[op]).tolist()
        np.testing.assert_allclose(real.astype(float), expected[op], rtol=1 / 128)
    assert defaults[0].tolist() == np.trunc(expected[hvd.Average]).tolist()
    np.testing.assert_allclose(defaults[1].astype(float), expected[hvd.Average] / 2, rtol=1 / 128)
    assert group[0].tolist() == (own * total * 2).tolist()


def test_groups_of_mixed_types(mode):
    size, rank = hvd.size(), hvd.rank()
    types = (tf.float32, tf.int64, tf.bfloat16, tf.float64, tf.int8)
    inputs = [tf.cast(tf.fill([3, 2], rank + 1), dtype) for dtype in types]

    def collect(*tensors):
        return {
            "sum": hvd.grouped_allreduce(tensors, op=hvd.Sum),
            "max": hvd.grouped_allreduce(list(tensors), op=hvd.Max, name="named"),
            "gather": hvd.grouped_allgather(tensors, name="named"),
            "scatter": hvd.grouped_reducescatter(tensors, op=hvd.Sum),
        }

    results = run(mode, collect, *inputs)
    total = size * (size + 1) / 2
    assert as_doubles(results["sum"]) == [[[total] * 2] * 3] * len(types)
    assert as_doubles(results["max"]) == [[[float(size)] * 2] * 3] * len(types)
    assert as_doubles(results["gather"]) == [[[source + 1.0] * 2 for source in ranks() for _ in range(3)]] * len(types)
    rows = 3 // size + (rank < 3 % size)
    assert as_doubles(results["scatter"]) == [[[total] * 2] * rows] * len(types)
    for result in results.values():
        assert [each.dtype for each in result] == [dtype.as_numpy_dtype for dtype in types]


def test_groups_of_nothing(mode):
    assert hvd.grouped_allreduce([]) == hvd.grouped_allgather([]) == hvd.grouped_reducescatter([]) == []
    assert hvd.broadcast_([], 0) == []


@pytest.mark.parametrize("compression", ["fp16", "bf16", "none"])
def test_compression(mode, compression):
    compressor = getattr(hvd.Compression, compression)
    kinds = (tf.float32, tf.float64, tf.float16, tf.int32)
    inputs = [tf.cast([1, 2, 3], dtype) for dtype in kinds]

    def reduce(*tensors):
        return [
            *[hvd.allreduce(tensor, compression=compressor, op=hvd.Sum) for tensor in tensors],
            *hvd.grouped_allreduce(tensors, compression=compressor, op=hvd.Sum),
            hvd.reducescatter(tf.tile(tensors[0], [hvd.size()]), compression=compressor, op=hvd.Sum),
        ]

    for dtype, result in zip((*kinds, *kinds, tf.float32), run(mode, reduce, *inputs)):
        assert result.dtype == dtype.as_numpy_dtype
        assert result.tolist() == [hvd.size(), 2 * hvd.size(), 3 * hvd.size()]


def test_compression_loses_what_it_says(mode):
    fine = tf.constant([1 + 2.0**-20, 70000.0])
    half, brain = run(
        mode,
        lambda t: [hvd.allreduce(t, compression=each) for each in (hvd.Compression.fp16, hvd.Compression.bf16)],
        fine,
    )
    assert half[0] == 1 and np.isinf(half[1])
    assert brain[0] == 1 and abs(brain[1] - 70000) < 70000 / 128


def test_indexed_slices(mode):
    size, rank = hvd.size(), hvd.rank()
    kinds = (tf.float32, tf.float16, tf.bfloat16, tf.float64, tf.int32)

    def reduce(indices, *tensors):
        slices = [tf.IndexedSlices(each, indices, tf.constant([10, 2])) for each in tensors]
        sums = [hvd.allreduce(each, op=hvd.Sum) for each in slices]
        averages = hvd.grouped_allreduce(slices)
        return [[each.values, each.indices, each.dense_shape] for each in (*sums, *averages)]

    inputs = [tf.cast(tf.fill([rank + 1, 2], 3 + rank), dtype) for dtype in kinds]
    results = run(mode, reduce, tf.range(rank + 1), *inputs)
    rows = np.concatenate([np.full((source + 1, 2), 3.0 + source) for source in ranks()])
    for i, (values, indices, shape) in enumerate(results):
        kind, is_average = kinds[i % len(kinds)], i >= len(kinds)
        # Of integers, too: an index may come several times, and what is added up must not have been truncated.
        assert values.dtype == (np.float64 if kind.is_integer and is_average else kind.as_numpy_dtype)
        expected = rows / size if is_average else rows
        np.testing.assert_allclose(values.astype(np.float64), expected, rtol=1 / 256)
        assert indices.tolist() == [index for source in ranks() for index in range(source + 1)]
        assert shape.tolist() == [10, 2]


def test_groups_of_tensors_and_indexed_slices(mode):
    rank = hvd.rank()

    def reduce(dense, values, indices):
        slices = tf.IndexedSlices(values, indices, tf.constant([4, 1]))
        first, second, third = hvd.grouped_allreduce([dense, slices, 2 * dense], op=hvd.Sum, name="mixed")
        return [first, second.values, second.indices, third]

    first, values, indices, third = run(mode, reduce, tf.ones([3]), tf.fill([rank + 1, 1], 5.0), tf.range(rank + 1))
    assert first.tolist() == [hvd.size()] * 3 and third.tolist() == [2 * hvd.size()] * 3
    assert indices.tolist() == [index for source in ranks() for index in range(source + 1)]
    assert values.tolist() == [[5.0]] * len(indices)


def test_indexed_slices_of_ranks_that_have_none(mode):
    count = 2 if hvd.rank() == 0 else 0

    def reduce(values, indices):
        result = hvd.allreduce(tf.IndexedSlices(values, indices), op=hvd.Sum)
        return [result.values, result.indices]

    values, indices = run(mode, reduce, tf.ones([count, 3]), tf.range(count, dtype=tf.int64))
    assert values.tolist() == [[1.0] * 3] * 2 and indices.tolist() == [0, 1]


def test_variables_arrays_and_numbers_are_taken_for_tensors(mode):
    def reduce():
        variable = tf.Variable([1.0, 2.0]) if mode == "eager" else tf.constant([1.0, 2.0])
        return [
            hvd.allreduce(variable, op=hvd.Sum),
            hvd.allreduce(np.array([1.0, 2.0]), op=hvd.Sum),
            hvd.allreduce([1, 2], op=hvd.Sum),
            hvd.allreduce(7.0, op=hvd.Sum),
            hvd.broadcast(np.arange(3), 0),
        ]

    results = run(mode, reduce)
    size = hvd.size()
    assert [each.tolist() for each in results] == [[size, 2 * size]] * 3 + [7 * size, [0, 1, 2]]
    assert [each.dtype.name for each in results[:4]] == ["float32", "float64", "int32", "float32"]


def test_broadcast_in_place(mode):
    def variables():
        return [tf.Variable([hvd.rank() + 1.0, 2.0]), tf.Variable(hvd.rank(), dtype=tf.int64)]

    before = variables() if mode == "function" else None  # which may not make any

    def assign():
        made = before or variables()
        assigned = hvd.broadcast_(made, hvd.size() - 1, name="in_place")
        with tf.control_dependencies([] if mode == "eager" else assigned):
            return [tf.identity(variable) for variable in made]

    first, second = run(mode, assign)
    assert first.tolist() == [hvd.size(), 2.0] and second == hvd.size() - 1


def test_process_sets(mode):
    if hvd.size() == 1:
        pytest.skip("one rank has no other sets")
    even, rest = hvd.add_process_set(range(0, hvd.size(), 2)), hvd.add_process_set(range(1, hvd.size(), 2))
    own = even if even.included() else rest
    number, members = own.process_set_id, own.ranks

    def collect(t):
        return {
            "sum": hvd.allreduce(t, op=hvd.Sum, process_set=own),
            "group": hvd.grouped_allreduce([t], process_set=own)[0],
            "gather": hvd.allgather(t, process_set=own),
            "broadcast": hvd.broadcast(t, members[-1], process_set=own),
            "alltoall": hvd.alltoall(tf.tile(t, [len(members)]), process_set=own),
            "scatter": hvd.reducescatter(tf.tile(t, [len(members)]), op=hvd.Sum, process_set=own),
            "slices": hvd.allreduce(tf.IndexedSlices(t, tf.constant([0])), process_set=own).values,
            "places": [hvd.size_op(number), hvd.process_set_included_op(number), hvd.size_op(), hvd.rank_op()],
            "foreign": hvd.process_set_included_op((rest if own is even else even).process_set_id),
        }

    results = run(mode, collect, tf.constant([float(hvd.rank())]))
    assert results["sum"].tolist() == results["scatter"].tolist() == [sum(members)]
    assert results["group"].tolist() == [sum(members) / len(members)]
    assert results["gather"].tolist() == results["alltoall"].tolist() == members
    assert results["broadcast"].tolist() == [members[-1]]
    assert results["slices"].tolist() == [member / len(members) for member in members]
    assert [int(place) for place in results["places"]] == [len(members), 1, hvd.size(), hvd.rank()]
    assert results["foreign"] == 0
    assert hvd.remove_process_set(rest) and hvd.remove_process_set(even)


def test_places(mode):
    def places():
        return [
            hvd.rank_op(),
            hvd.size_op(),
            hvd.local_rank_op(name="mine"),
            hvd.local_size_op(),
            hvd.process_set_included_op(),
        ]

    results = run(mode, places)
    assert [int(each) for each in results] == [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), 1]
    assert all(each.dtype == np.int32 and each.shape == () for each in results)


def test_barrier(mode):
    def wait(tensor):
        waited = hvd.barrier()
        with tf.control_dependencies([] if mode == "eager" else [waited]):
            return tf.identity(tensor)

    before = hvd.metrics()
    assert run(mode, wait, tf.ones(1)).tolist() == [1]
    assert hvd.metrics(since=before)["operations"] == 1


def test_join(mode):
    size, rank = hvd.size(), hvd.rank()
    steps = rank + 1
    sums = [run(mode, lambda t: hvd.allreduce(t, op=hvd.Sum, name="uneven"), tf.ones(2)) for _ in range(steps)]
    assert [each.tolist() for each in sums] == [[float(size - step)] * 2 for step in range(steps)]
    last = run(mode, hvd.join)
    assert last.dtype == np.int32 and last == size - 1
    assert run(mode, lambda: hvd.allreduce(tf.ones(2), op=hvd.Sum)).tolist() == [size] * 2
