"""The collectives of hvd.mxnet on two ranks; mxnet_checks.py runs the checks."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import re

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import hvd as plain_hvd
import hvd.mxnet as hvd
from hvd.mxnet import library

RANKS = 2
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # as MXNet has it
DTYPES = ["float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool", BFLOAT16]
MEANINGS = {
    hvd.Sum: lambda stacked: stacked.sum(0),
    hvd.Average: lambda stacked: stacked.mean(0),
    hvd.Min: lambda stacked: stacked.min(0),
    hvd.Max: lambda stacked: stacked.max(0),
    hvd.Product: lambda stacked: stacked.prod(0),
}


@contextlib.contextmanager
def raises(kind, text):
    try:
        yield
    except kind as error:
        assert re.search(text, str(error)), f"{error!r} does not match {text!r}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def numbers(rank, shape=(4, 3)):
    """Small ones, of which float16 and int8 have the products exactly."""
    return (np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1).astype(np.float32)


def of_all(shape=(4, 3)):
    return np.stack([numbers(rank, shape) for rank in range(RANKS)])


def array_of(values, dtype):
    if dtype == "bool":
        return mx.np.array(values % 2 == 0)
    if dtype == BFLOAT16:
        return mx.nd.amp_cast(mx.nd.array(values), dtype=dtype)
    return mx.nd.array(values, dtype=dtype)


def values_of(array):
    if array.dtype == BFLOAT16:
        return mx.nd.amp_cast(array, dtype="float32").asnumpy()
    return array.asnumpy().astype(np.float32)


def equal(array, expected):
    np.testing.assert_array_equal(values_of(array) if isinstance(array, mx.nd.NDArray) else array, expected)


def check_allreduce_of_all_dtypes_and_operations():
    for dtype, op in itertools.product(DTYPES, MEANINGS):
        array = array_of(numbers(hvd.rank()), dtype)
        stacked = np.stack([values_of(array_of(each, dtype)) for each in of_all()])
        if dtype == "bool" and op not in (hvd.Min, hvd.Max):
            with raises(ValueError, "allreduce with op=.* is not supported for bool: it has Min and Max$"):
                hvd.allreduce(array, op=op)
            continue
        expected = MEANINGS[op](stacked)
        if np.dtype(dtype).kind in "iu":
            expected = np.trunc(expected)
        before = values_of(array)
        result = hvd.allreduce(array, op=op)
        assert result.dtype == array.dtype and type(result) is type(array)
        equal(result, expected)
        equal(array, before)
        assert hvd.allreduce_(array, op=op) is array
        equal(array, expected)
        parts = hvd.reducescatter(array_of(numbers(hvd.rank()), dtype), op=op)
        equal(parts, expected[2 * hvd.rank() : 2 * hvd.rank() + 2])


def check_collectives_that_move_all_dtypes():
    rank = hvd.rank()
    for dtype in DTYPES:
        array, shaped = array_of(numbers(rank), dtype), array_of(numbers(rank, (rank + 1, 3)), dtype)
        everything = [values_of(array_of(each, dtype)) for each in of_all()]
        equal(hvd.broadcast(array, 1), everything[1])
        assert hvd.broadcast_(array, root_rank=0) is array
        equal(array, everything[0])
        gathered = hvd.allgather(shaped)
        assert gathered.dtype == array.dtype and type(gathered) is type(array)
        equal(gathered, np.concatenate([values_of(array_of(numbers(r, (r + 1, 3)), dtype)) for r in range(RANKS)]))
        exchanged = hvd.alltoall(array_of(numbers(rank), dtype))
        equal(exchanged, np.concatenate([each[2 * rank : 2 * rank + 2] for each in everything]))


def check_average_and_scale_factors():
    array = mx.nd.ones(3) * (hvd.rank() + 1)
    equal(hvd.allreduce(array), [1.5] * 3)
    equal(hvd.allreduce(array, average=False), [3.0] * 3)
    equal(hvd.allreduce(array, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25), [1.5] * 3)
    equal(hvd.allreduce(mx.nd.array([1, 2]), op=hvd.Adasum), [1.0, 2.0])
    with raises(ValueError, "op and average"):
        hvd.allreduce(array, average=True, op=hvd.Sum)
    with raises(
        ValueError, "allreduce with op=Adasum is not supported for int32: it has Average, Sum, Min, Max and Product$"
    ):
        hvd.allreduce(array.astype("int32"), op=hvd.Adasum)


def check_splits():
    rank = hvd.rank()
    received, splits = hvd.alltoall(mx.nd.array(numbers(rank)), splits=mx.nd.array([3, 1], dtype="int32"))
    rows = slice(0, 3) if rank == 0 else slice(3, 4)
    equal(received, np.concatenate([each[rows] for each in of_all()]))
    equal(splits, [3, 3] if rank == 0 else [1, 1])
    received, splits = hvd.alltoall(mx.nd.ones((2, 3)), splits=[0, 2])  # nothing for rank 0
    assert received.shape == (4 * rank, 3) and splits.asnumpy().tolist() == [2 * rank] * 2


def check_groups_and_views():
    rank = hvd.rank()
    arrays = [mx.nd.ones(3) * rank, mx.np.ones((2, 2)), mx.nd.ones(1, dtype="float64") * 2]
    before = hvd.metrics()
    totals = hvd.grouped_allreduce(arrays, op=hvd.Sum, name="group", priority=3)
    for total, expected in zip(totals, [[1.0] * 3, np.full((2, 2), 2.0), [4.0]]):
        equal(total, expected)
    assert hvd.metrics(before)["operations"] == 1
    whole = mx.nd.ones((4, 2)) * (rank + 1)
    hvd.grouped_allreduce_([whole[0:1], whole[2:4]], op=hvd.Sum)  # one variable of MXNet's engine
    equal(whole, np.array([3.0, rank + 1, 3.0, 3.0]).repeat(2).reshape(4, 2))
    with raises(ValueError, "twice"):
        hvd.grouped_allreduce_([whole, whole])
    with raises(ValueError, "share memory"):
        hvd.grouped_allreduce_([whole, whole[1:3]], name="overlapping")
        whole.wait_to_read()
    assert hvd.grouped_allreduce([]) == []
    first, second = hvd.grouped_allgather([mx.nd.ones((rank + 1, 2)), mx.np.ones(1)])
    assert first.shape == (3, 2) and second.shape == (2,)
    first, second = hvd.grouped_reducescatter([mx.nd.ones(2), mx.nd.ones((4, 1))], op=hvd.Sum)
    for grouped in (hvd.grouped_allgather, hvd.grouped_reducescatter):
        assert [len(each) for each in grouped(mx.nd.ones(rows) for rows in (2, 4))] == (
            [4, 8] if grouped is hvd.grouped_allgather else [1, 2]
        )
    equal(first, [2.0])
    equal(second, [[2.0], [2.0]])


def check_the_engine_orders_operations():
    """What is computed before, between and after, without a wait of the script."""
    rank = hvd.rank()
    array = mx.nd.ones((256, 256)) * (rank + 1)
    for number in range(3):
        array = mx.nd.dot(array, mx.nd.eye(256)) + 1
        hvd.allreduce_(array, op=hvd.Average, name="in order")
        array *= 2
        hvd.broadcast(array, 0, name=f"in between {number}")  # which nobody waits for
    equal(array, np.full((256, 256), ((1.5 + 1) * 2 + 1) * 4 + 2))


def check_names_in_opposite_orders_and_priorities():
    """Neither rank's engine has a thread that waits: with one worker it could not go on."""
    arrays = {f"tensor {i}": mx.nd.ones(100) * i for i in range(40)}
    order = list(arrays) if hvd.rank() == 0 else list(reversed(arrays))
    for position, name in enumerate(order):
        hvd.allreduce_(arrays[name], op=hvd.Sum, name=name, priority=-position)
    mx.nd.waitall()
    for number, array in enumerate(arrays.values()):
        equal(array, [2.0 * number] * 100)


def check_arrays_that_are_gone_before_the_engine_begins():
    results = []
    for _ in range(20):
        slow = mx.nd.dot(mx.nd.ones((300, 300)), mx.nd.ones((300, 300)))
        results.append(hvd.allreduce(slow[0:1], op=hvd.Sum))
        hvd.allreduce(slow)  # whose result nobody has
        del slow
    for result in results:
        equal(result, np.full((1, 300), 600.0))


def check_arrays_that_onednn_has_laid_out():
    layer = gluon.nn.Conv2D(16, 3, in_channels=16)
    layer.initialize(mx.init.Constant(0.5))
    images = mx.nd.random.uniform(shape=(2, 16, 8, 8)) + hvd.rank()
    outputs = layer(images)
    everything = hvd.allgather(outputs).asnumpy().reshape(2, *outputs.shape)
    np.testing.assert_allclose(hvd.allreduce(outputs).asnumpy(), everything.mean(0), rtol=1e-5)
    outputs = layer(images)
    with raises(ValueError, "oneDNN"):
        hvd.allreduce_(outputs).wait_to_read()
    layer.weight.set_data(layer.weight.data() * (hvd.rank() + 1))
    layer(images).wait_to_read()
    hvd.broadcast_parameters(layer.collect_params(), root_rank=1)
    equal(layer.weight.data(), np.ones((16, 16, 3, 3)))


def check_that_reasons_of_mxnet_are_told():
    """Why it does not give the memory of an array; here because a stand-in says so."""
    reason = ctypes.create_string_buffer(b"MXNetError: Check failed: is_ready\nStack trace:")
    failing = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: -1)
    last_error = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(reason))
    library.connect({"MXNDArrayToDLPack": failing, "MXGetLastError": last_error})
    try:
        with raises(ValueError, "does not give hvd the memory of an array: MXNetError: Check failed: is_ready$"):
            hvd.allreduce(mx.nd.ones(2)).wait_to_read()
    finally:
        library.connect()
    equal(hvd.allreduce(mx.nd.ones(2)), [1.0, 1.0])


def check_scalars_of_numpy_and_results_without_gradients():
    with mx.util.np_shape(True):
        scalar = hvd.allreduce(mx.np.array(hvd.rank() + 1.0), op=hvd.Sum)
        assert scalar.shape == () and scalar == 3
        with raises(ValueError, "a scalar has no rows"):
            hvd.allgather(scalar)
    weight = mx.nd.ones(3)
    weight.attach_grad()
    with autograd.record():
        loss = (weight * 2).sum() + hvd.allreduce(weight).sum()
    loss.backward()
    equal(weight.grad, [2.0] * 3)


def check_import_hvd_alone():
    array = mx.nd.ones(3) * (hvd.rank() + 1)
    result = plain_hvd.allreduce(array, op=hvd.Sum)
    assert isinstance(result, mx.nd.NDArray)
    equal(result, [3.0] * 3)
    assert plain_hvd.allreduce(array, op=hvd.Sum, out=array) is array
    equal(array, [3.0] * 3)


def check_process_sets():
    sets = [hvd.add_process_set([rank]) for rank in range(RANKS)]
    own, other = sets[hvd.rank()], sets[1 - hvd.rank()]
    array = mx.nd.ones(2) * (hvd.rank() + 1)
    equal(hvd.allreduce(array, op=hvd.Sum, process_set=own), [hvd.rank() + 1.0] * 2)
    equal(hvd.broadcast(array, hvd.rank(), process_set=own), [hvd.rank() + 1.0] * 2)
    assert hvd.allgather(array, process_set=own).shape == (2,)
    for wrong, text in [
        (lambda: hvd.allreduce(array, process_set=other), "is not in ProcessSet"),
        (lambda: hvd.broadcast(array, 1 - hvd.rank(), process_set=own), "root_rank is .* not in ProcessSet"),
    ]:
        with raises(ValueError, text):
            wrong()
    for each in sets:
        hvd.remove_process_set(each)
    with raises(ValueError, "not registered"):
        hvd.allreduce(array, process_set=own)


def check_wrong_arguments():
    array = mx.nd.ones(3)
    for wrong, kind, text in [
        (lambda: hvd.allreduce([1.0]), TypeError, "an array of MXNet is needed, not list"),
        (lambda: hvd.allreduce(np.ones(3)), TypeError, "an array of MXNet is needed, not ndarray"),
        (lambda: hvd.allreduce(mx.nd.sparse.zeros("row_sparse", (3, 2))), ValueError, "sparse arrays .row_sparse."),
        (lambda: hvd.allreduce(array, op=17), ValueError, "op is 17"),
        (lambda: hvd.allreduce(array, name="a\0b"), ValueError, "NUL character"),
        (lambda: hvd.broadcast(array, 2), ValueError, "root_rank is 2, which is not in"),
        (lambda: hvd.broadcast(array, 0.5), TypeError, "root_rank is 0.5"),
        (lambda: hvd.alltoall(mx.nd.ones(3)), ValueError, "a multiple of the 2 ranks, not 3"),
        (lambda: hvd.alltoall(array, mx.nd.array([2, 1])), ValueError, "int32 or int64; not float32, .2,.$"),
        (lambda: hvd.alltoall(array, mx.nd.zeros((1, 2), dtype="int32")), ValueError, "one-dimensional"),
        (lambda: hvd.alltoall(array, [1.5, 1.5]), TypeError, "expected a number of rows for each rank"),
        (lambda: hvd.broadcast_parameters([array]), ValueError, "params is a list"),
        (lambda: hvd.DistributedOptimizer("sgd"), TypeError, "optimizer is a str"),
    ]:
        with raises(kind, text):
            wrong()


def check_ranks_that_disagree():
    odd = hvd.allreduce(mx.nd.ones(2 + hvd.rank()), name="odd")
    with raises(hvd.HorovodInternalError, r"^allreduce 'allreduce.odd': the ranks disagree"):
        (odd * 2).wait_to_read()
    with raises(hvd.HorovodInternalError, "the ranks disagree"):
        hvd.allgather(mx.nd.ones((2, 2 + hvd.rank())), name="odd rows")
    equal(hvd.allreduce(mx.nd.ones(2), name="odd"), [1.0, 1.0])  # and the job goes on


def check_objects():
    assert hvd.broadcast_object({"lr": hvd.rank()}, root_rank=1) == {"lr": 1}
    assert hvd.allgather_object(hvd.rank()) == [0, 1]
