"""The collectives of `import hvd`, on arrays of NumPy and the buffer protocol, against results of NumPy."""

from __future__ import annotations

import array
import ctypes
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import hvd

pytestmark = pytest.mark.ranks

INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", ml_dtypes.bfloat16, "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
REDUCIBLE = [np.dtype(name) for name in (*INTEGERS, *FLOATS)]
LINEAR = [*REDUCIBLE, *map(np.dtype, COMPLEX)]
ONLY_MOVED = [
    *map(np.dtype, ["uint16", "uint32", "uint64", "longdouble", "clongdouble", "S5", "U3", "M8[ns]", "m8[D]", "V3"]),
    *(np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e4m3fn", "float8_e5m2", "int4")),
]
MOVED = [*LINEAR, np.dtype("bool"), *ONLY_MOVED]
SHAPES = [(), (0,), (1,), (7, 0, 2), (5, 200), (100_001,)]
REDUCTIONS = {hvd.Sum: "sum", hvd.Average: "average", hvd.Min: "min", hvd.Max: "max", hvd.Product: "product"}

# The same elements in memory of another form.
LAYOUTS = {
    "contiguous": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.ascontiguousarray(np.flip(a)).__getitem__((slice(None, None, -1),) * a.ndim),
    "swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "unaligned": lambda a: unaligned(a),
}


def unaligned(given: np.ndarray) -> np.ndarray:
    memory = np.empty(given.nbytes + 1, np.uint8)[1:]
    result = np.ndarray(given.shape, given.dtype, memory.data)
    result[...] = given
    return result


def values(rank: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Small whole numbers, so that every result is exact in every dtype."""
    numbers = np.asarray((np.arange(np.prod(shape, dtype=int)) * 7 + rank * 5).reshape(shape) % 3 + 1)
    if dtype.kind == "b":
        return np.asarray(numbers == 1)
    if dtype.kind == "c":
        return np.asarray(numbers + 1j * (numbers % 2)).astype(dtype)
    if dtype == np.dtype("V3"):
        return np.frombuffer(bytes(numbers.astype("u1").repeat(3)), dtype).reshape(shape)
    return numbers.astype("i8").astype(dtype)


def reduced(arrays: list[np.ndarray], op: int) -> np.ndarray:
    wide = np.stack([one.astype("c16" if one.dtype.kind == "c" else "f8") for one in arrays])
    if op in (hvd.Sum, hvd.Average):
        result = wide.sum(0) / (len(arrays) if op == hvd.Average else 1)
        result = np.trunc(result) if arrays[0].dtype.kind in "iu" else result
    else:
        result = {hvd.Min: wide.min, hvd.Max: wide.max, hvd.Product: wide.prod}[op](axis=0)
    return np.asarray(result).astype(arrays[0].dtype)


def same(result: object, expected: np.ndarray) -> bool:
    """Whether it is an array of NumPy with the same bits."""
    assert type(result) is np.ndarray and result.dtype == expected.dtype and result.shape == expected.shape
    if expected.dtype.char in "gG":  # of whose bytes some mean nothing
        return np.array_equal(result, expected)
    return result.tobytes() == expected.tobytes()


def by_rank(shape: tuple[int, ...], dtype: np.dtype) -> list[np.ndarray]:
    return [values(rank, shape, dtype) for rank in range(hvd.size())]


@pytest.mark.parametrize("op", REDUCTIONS, ids=REDUCTIONS.get)
@pytest.mark.parametrize("dtype", LINEAR, ids=str)
def test_allreduce(dtype, op):
    if dtype.kind == "c" and op not in (hvd.Sum, hvd.Average):
        with pytest.raises(ValueError, match=f"allreduce with op=.* is not supported for {dtype}: it has Average and"):
            hvd.allreduce(np.ones(3, dtype), op=op)
        return
    for shape in SHAPES:
        expected = reduced(by_rank(shape, dtype), op)
        given = values(hvd.rank(), shape, dtype)
        given.flags.writeable = False
        assert same(hvd.allreduce(given, op=op), expected)
        assert same(hvd.allreduce(given, op=op, name="named"), expected)
        assert same(hvd.synchronize(hvd.allreduce_async(given, op=op)), expected)
        for start in (hvd.allreduce, lambda *a, **k: hvd.synchronize(hvd.allreduce_async(*a, **k))):
            apart, in_place = np.empty_like(given), given.copy()
            assert start(given, op=op, out=apart) is apart and same(apart, expected)
            assert start(in_place, op=op, name="placed", out=in_place) is in_place and same(in_place, expected)
        assert same(given, values(hvd.rank(), shape, dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*LINEAR, np.dtype("U3")], ids=str)
def test_memory_of_any_form(dtype, layout):
    for shape in [(), (4,), (2, 3), (3, 0), (3, 2, 5)]:
        given = LAYOUTS[layout](values(hvd.rank(), shape, dtype))
        others = [LAYOUTS[layout](one) for one in by_rank(shape, dtype)]
        assert same(hvd.broadcast(given, hvd.size() - 1), others[-1])
        out = LAYOUTS[layout](np.zeros(shape, dtype))
        assert hvd.broadcast(given, 0, out=out) is out and same(out, others[0])
        if shape:
            assert same(hvd.allgather(given), np.concatenate(others).astype(given.dtype))
        if dtype.kind != "U":
            native = [one.astype(dtype) for one in others]
            expected = reduced(native, hvd.Sum).astype(given.dtype)
            assert same(hvd.allreduce(given, op=hvd.Sum), expected)
            assert hvd.allreduce(given, op=hvd.Sum, out=given) is given and same(given, expected)


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_any_dtype_moves(dtype):
    size, me = hvd.size(), hvd.rank()
    for shape in [(0, 2), (3 * size, 2), (5000 * size,)]:
        all_ranks = by_rank(shape, dtype)
        given = all_ranks[me]
        gathered = np.concatenate(all_ranks)
        assert same(hvd.allgather(given), gathered)
        out = np.zeros(gathered.shape, dtype)
        assert hvd.allgather(given, out=out) is out and same(out, gathered)
        for root in range(size):
            assert same(hvd.broadcast(given, root), all_ranks[root])
        exchanged = np.concatenate([np.split(one, size)[me] for one in all_ranks])
        assert same(hvd.alltoall(given), exchanged)
        assert same(hvd.alltoall(given, out=np.empty_like(given)), exchanged)
    scalar = hvd.broadcast(values(me, (), dtype), size - 1)
    assert same(scalar, values(size - 1, (), dtype))


@pytest.mark.parametrize("dtype", ONLY_MOVED, ids=str)
def test_what_only_moves_is_not_reduced(dtype):
    for reduction in (hvd.allreduce, hvd.reducescatter):
        with pytest.raises(
            ValueError, match=rf"not supported for {re.escape(dtype.name)}:|{dtype.name} .* not reduced"
        ):
            reduction(np.zeros(8, dtype), op=hvd.Sum)


def test_bool_has_minima_and_no_sums():
    given = by_rank((100,), np.dtype("bool"))
    assert same(hvd.allreduce(given[hvd.rank()], op=hvd.Min), np.logical_and.reduce(given))
    assert same(hvd.allreduce(given[hvd.rank()], op=hvd.Max), np.logical_or.reduce(given))
    with pytest.raises((ValueError, hvd.HorovodInternalError), match="bool"):
        hvd.allreduce(np.ones(3, bool), op=hvd.Sum)


def test_allgather_of_different_first_dimensions():
    lengths = [3, 0, 7, 1][: hvd.size()]
    expected = np.concatenate([values(rank, (length, 2), np.dtype("f4")) for rank, length in enumerate(lengths)])
    assert same(hvd.allgather(values(hvd.rank(), (lengths[hvd.rank()], 2), np.dtype("f4"))), expected)


@pytest.mark.parametrize("dtype", LINEAR, ids=str)
def test_reducescatter(dtype):
    for number in (0, 1, 7, 9001):
        total = reduced(by_rank((number, 3), dtype), hvd.Sum)
        given = values(hvd.rank(), (number, 3), dtype)
        mine = np.array_split(total, hvd.size())[hvd.rank()]
        assert same(hvd.reducescatter(given, op=hvd.Sum), mine)
        assert same(hvd.reducescatter(given, op=hvd.Sum, out=np.zeros_like(mine)), mine)
        average = reduced(by_rank((number, 3), dtype), hvd.Average)
        assert same(hvd.reducescatter(given), np.array_split(average, hvd.size())[hvd.rank()])


def test_alltoall_with_splits():
    size, me = hvd.size(), hvd.rank()
    splits = [[(rank + 2 * to) % 4 for to in range(size)] for rank in range(size)]
    sent = [values(rank, (sum(splits[rank]), 2), np.dtype("f8")) for rank in range(size)]
    expected = np.concatenate([np.split(sent[rank], np.cumsum(splits[rank])[:-1])[me] for rank in range(size)])
    for given in (splits[me], tuple(splits[me]), np.array(splits[me]), array.array("i", splits[me])):
        output, received = hvd.alltoall(sent[me], given, name="split")
        assert same(output, expected) and same(received, np.array([s[me] for s in splits], np.int32))
    output, received = hvd.synchronize(hvd.alltoall_async(np.arange(2 * size)))
    assert output.tolist() == [2 * me, 2 * me + 1] * size and received.tolist() == [2] * size


def test_scales():
    given = np.full(5, 3.0, np.float32)
    result = hvd.allreduce(given, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert result.tolist() == [6.0 * hvd.size()] * 5
    result = hvd.allreduce(given.astype("c8") * (1 + 2j), average=True, postscale_factor=2.0)
    assert result.tolist() == [6 + 12j] * 5
    with pytest.raises(TypeError, match="prescale_factor"):
        hvd.allreduce(given.astype("c8"), prescale_factor=1j)


def test_groups():
    dtypes = [np.dtype(name) for name in ("f4", "i8", "c8")]
    given = [values(hvd.rank(), (4, 2), dtype) for dtype in dtypes]
    sums = [reduced(by_rank((4, 2), dtype), hvd.Sum) for dtype in dtypes]
    for result, expected in zip(hvd.grouped_allreduce(given, op=hvd.Sum), sums):
        assert same(result, expected)
    for result, expected in zip(hvd.grouped_allgather(given), (np.concatenate(by_rank((4, 2), d)) for d in dtypes)):
        assert same(result, expected)
    for result, expected in zip(hvd.grouped_reducescatter(given, op=hvd.Sum), sums):
        assert same(result, np.array_split(expected, hvd.size())[hvd.rank()])
    outs = [np.empty((4, 2), dtypes[0]), given[1], np.empty((2, 4), dtypes[2]).T]
    results = hvd.grouped_allreduce(given, op=hvd.Sum, out=outs)
    assert all(result is out for result, out in zip(results, outs))
    assert all(same(out, expected) for out, expected in zip(outs, sums))
    mixed = hvd.grouped_allreduce([np.ones(2), array.array("f", [1])], op=hvd.Sum, name="mixed")
    assert [type(one) for one in mixed] == [np.ndarray, array.array]
    assert [list(one) for one in mixed] == [[hvd.size()] * 2, [hvd.size()]]
    with pytest.raises(ValueError, match="at least one"):
        hvd.grouped_allreduce([])
    with pytest.raises(ValueError, match="out has 1 arrays, but the group 3"):
        hvd.grouped_allreduce(given, out=outs[:1])
    with pytest.raises(ValueError, match="outputs of a group share memory"):
        hvd.grouped_allreduce([np.ones(2), np.ones(2)], out=[place := np.ones(2), place])


def test_scalars_of_numpy():
    for dtype in LINEAR:
        result = hvd.allreduce(dtype.type(3), op=hvd.Sum)
        assert type(result) is dtype.type and result == dtype.type(3 * hvd.size())
    assert type(hvd.broadcast(np.datetime64("2020-01-01"), 0)) is np.datetime64


def ctypes_array(numbers: list[int]) -> object:
    return (ctypes.c_int * len(numbers))(*numbers)


BUFFERS = {
    **{f"array.array {code}": (lambda n, code=code: array.array(code, n)) for code in "bBhilqfd"},
    "memoryview": lambda n: memoryview(array.array("i", n)),
    "read-only memoryview": lambda n: memoryview(bytes(n)),
    "strided memoryview": lambda n: memoryview(array.array("h", [x for y in n for x in (y, 0)]))[::2],
    "bytes": bytes,
    "bytearray": bytearray,
    "ctypes": ctypes_array,
}


@pytest.mark.parametrize("made", BUFFERS.values(), ids=BUFFERS)
def test_the_buffer_protocol(made):
    size, me = hvd.size(), hvd.rank()
    given = made(list(range(me, me + size)))
    kind = memoryview if type(given).__module__ == "test_arrays" or isinstance(given, ctypes.Array) else type(given)
    total = [sum(rank + i for rank in range(size)) for i in range(size)]
    result = hvd.allreduce(given, op=hvd.Sum)
    assert type(result) is kind and list(result) == total
    assert list(hvd.synchronize(hvd.allreduce_async(given, op=hvd.Sum, name="b"))) == total
    assert list(hvd.allgather(given)) == [rank + i for rank in range(size) for i in range(size)]
    assert list(hvd.broadcast(given, size - 1)) == list(range(size - 1, 2 * size - 1))
    output, splits = hvd.alltoall(given, [1] * size)
    assert list(output) == [rank + me for rank in range(size)] and splits.tolist() == [1] * size
    assert list(hvd.reducescatter(given, op=hvd.Sum)) == [total[me]]
    view = memoryview(given)
    assert memoryview(result).format == view.format.lstrip("<") and memoryview(result).shape == view.shape
    if view.readonly or not view.contiguous:
        with pytest.raises(ValueError, match="cannot hold a result"):
            hvd.allreduce(given, op=hvd.Sum, out=given)
    else:
        assert hvd.allreduce(given, op=hvd.Sum, out=given) is given and list(given) == total
    view.release()
    if isinstance(given, array.array):
        given.append(1)  # nothing holds its memory any more


def test_memoryviews_of_other_shapes_and_formats():
    view = memoryview(np.arange(6, dtype="c8").reshape(2, 3))
    result = hvd.allgather(view)
    assert (result.shape, result.format) == ((2 * hvd.size(), 3), "Zf")
    assert np.array_equal(np.asarray(result), np.concatenate([view] * hvd.size()))
    assert hvd.broadcast(memoryview(np.zeros((0, 3), "f4")), 0).shape == (0, 3)
    assert hvd.broadcast(memoryview(np.array(2.5)), 0).tolist() == 2.5
    for wrong in (np.zeros(2, "i4,f4"), np.zeros(2, ">f4"), np.zeros(2, "U1")):
        with pytest.raises(ValueError, match="format"):
            hvd.allgather(memoryview(wrong))


def broadcast_array(like: np.ndarray) -> np.ndarray:
    return np.broadcast_to(like, (4, 3))


def test_what_cannot_hold_a_result_is_refused():
    given = np.zeros((4, 3), np.float32)
    read_only = given.copy()
    read_only.flags.writeable = False
    shared = np.lib.stride_tricks.as_strided(given.copy(), given.shape, (0, 4))
    buffer = np.zeros(24, np.float32)
    for out, why in [
        (read_only, "read-only"),
        (broadcast_array(given[0]), "read-only"),
        (shared, "its elements share memory"),
        (np.float32(1), "a scalar .float32. cannot hold a result"),
        (bytes(48), "read-only bytes"),
        (given.astype("f8"), "out is of float64, but the array of float32"),
        (given[:2], "out has the shape"),
    ]:
        with pytest.raises(ValueError, match=why):
            hvd.allreduce(given, out=out)
    with pytest.raises(ValueError, match="overlaps"):
        hvd.allreduce(buffer[:16], out=buffer[4:20])
    with pytest.raises(ValueError, match="read-only"):
        hvd.allgather(given, out=read_only)
    with pytest.raises(ValueError, match="float64"):
        hvd.alltoall(given, out=given.astype("f8"))
    with pytest.raises(ValueError, match="overlaps"):
        hvd.alltoall(given, out=given)
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="rows, but the result"):
            hvd.allgather(given, out=given.copy())


def test_what_is_no_array_is_refused():
    for wrong in (1.0, [1, 2], None, "text", object()):
        for function in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall, lambda x: hvd.broadcast(x, 0)):
            with pytest.raises(TypeError, match=f"an array is needed, .* not {type(wrong).__name__}"):
                function(wrong)
    with pytest.raises(ValueError, match="structured"):
        hvd.allreduce(np.zeros(2, [("a", "f4")]))
    with pytest.raises(ValueError, match="Python objects"):
        hvd.broadcast(np.array([{}]), 0)
    with pytest.raises(TypeError, match="masked"):
        hvd.allreduce(np.ma.masked_array([1.0], [True]))
    for function in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        with pytest.raises(ValueError, match="a scalar has no rows"):
            function(np.array(1.0))
    with pytest.raises(ValueError, match="op and average"):
        hvd.allreduce(np.ones(1), average=True, op=hvd.Sum)
    with pytest.raises(TypeError, match="op is 'sum'"):
        hvd.allreduce(np.ones(1), op="sum")


def test_prepared_operations():
    given, tensor, out = np.zeros(3), np.zeros(4, "f"), array.array("f", [0] * 4)
    total = hvd.prepare(hvd.allreduce, given, op=hvd.Sum)
    in_place = hvd.prepare(hvd.allreduce, tensor, name="in place", op=hvd.Max, out=tensor)
    elsewhere = hvd.prepare(hvd.allreduce, tensor, op=hvd.Sum, name="elsewhere", out=out)
    group = hvd.prepare(hvd.grouped_allreduce, [given, tensor], op=hvd.Min, out=[given, tensor])
    root = hvd.prepare(hvd.broadcast, given, root_rank=hvd.size() - 1, out=given)
    assert total.wait() is total.result is not given  # nothing was started
    sum_of_ranks = hvd.size() * (hvd.size() - 1) // 2
    for step in range(60):
        given[:] = step + hvd.rank()
        tensor.fill(hvd.rank())
        total.start()
        elsewhere.start()
        while not elsewhere.poll():
            pass
        assert elsewhere.wait() is out and out.tolist() == [sum_of_ranks] * 4
        assert total.wait().tolist() == [step * hvd.size() + sum_of_ranks] * 3
        assert in_place() is tensor and tensor.tolist() == [hvd.size() - 1] * 4
        tensor.fill(hvd.rank())
        assert [each.tolist() for each in group()] == [[step] * 3, [0] * 4]
        given[:] = hvd.rank()
        assert root() is given and given.tolist() == [hvd.size() - 1] * 3
        if step % 20 == hvd.rank():  # any rank may call the function instead
            ranks = np.full(4, hvd.rank(), "f")
            assert hvd.allreduce(ranks, op=hvd.Max, name="in place").max() == hvd.size() - 1
        else:
            tensor.fill(hvd.rank())
            assert in_place().max() == hvd.size() - 1
    total.start()
    del total  # goes on; the runtime keeps what it needs
    hvd.barrier()


def test_a_second_start_is_refused():
    given = np.ones(1_000_000)
    total = hvd.prepare(hvd.allreduce, given, op=hvd.Sum, out=given, name="twice")
    if hvd.rank() == 0:
        total.start()
        if hvd.size() > 1:  # the others come later
            with pytest.raises(ValueError, match=r"'allreduce\.twice' is already in flight"):
                total.start()
    hvd.barrier()
    assert (total.wait() if hvd.rank() == 0 else total())[0] == hvd.size()


def test_what_cannot_be_prepared():
    given = np.zeros((4, 4), np.float32)
    for tensor, out, why in [
        (given.T[:2].T, None, "not contiguous"),
        (np.float32(1), None, "a scalar"),
        (given, np.zeros((4, 8), np.float32)[:, ::2], "out is not contiguous"),
        (array.array("f", [1]), None, "out is needed to prepare this array"),
        (given, given.astype("f8"), "out is of float64"),
    ]:
        with pytest.raises(ValueError, match=why):
            hvd.prepare(hvd.allreduce, tensor, out=out)
    for function in (hvd.allgather, hvd.allreduce_async, "allreduce"):
        with pytest.raises(TypeError, match=r"function must be one of hvd\.allreduce"):
            hvd.prepare(function, given)
    with pytest.raises(TypeError, match="root_rank"):
        hvd.prepare(hvd.broadcast, given)
    hvd.barrier()


@pytest.mark.ranks(2, 4)
def test_mismatches_are_errors_on_all_ranks():
    with pytest.raises(hvd.HorovodInternalError, match=r"allreduce\.uneven"):
        hvd.allreduce(np.ones(3 + hvd.rank()), name="uneven")
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).tolist() == [hvd.size()]


@pytest.mark.ranks(2, 4)
def test_process_sets():
    even = hvd.add_process_set(range(0, hvd.size(), 2))
    if even.included():
        assert hvd.allreduce(np.ones(2), op=hvd.Sum, process_set=even).tolist() == [even.size()] * 2
        assert hvd.allgather_object(hvd.rank(), process_set=even) == even.ranks
        hvd.barrier(even)
    hvd.remove_process_set(even)


def test_handles():
    handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum, name="handle")
    while not hvd.poll(handle):
        pass
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 3
    assert hvd.synchronize(handle) is None
    for step in range(50):
        hvd.allgather_async(np.ones(1000), name=f"dropped.{step}")
        hvd.allreduce_async(np.ones(1000), name=f"dropped.{step}")
    hvd.barrier()


def test_join():
    for step in range(hvd.rank() + 1):
        result = hvd.allreduce(np.full(5, 2.0), name=f"batch.{step}")
        assert result.tolist() == [2.0 * (hvd.size() - step) / hvd.size()] * 5
    assert hvd.join() in range(hvd.size())


NOTHING_ELSE = """
import array, sys
import hvd
hvd.init()
given = array.array("f", [1, 2, 3])
assert hvd.allreduce(given, op=hvd.Sum, out=given).tolist() == [1, 2, 3]
assert hvd.allgather(memoryview(b"ab")).tobytes() == b"ab"
assert hvd.broadcast_object({"a": 1}) == {"a": 1}
print(sorted({"numpy", "torch", "tensorflow", "jax", "pyarrow", "ml_dtypes"} & set(sys.modules)))
"""


@pytest.mark.ranks(1)
def test_no_framework_is_imported():
    environment = {name: value for name, value in os.environ.items() if "HVD" not in name}
    run = subprocess.run([sys.executable, "-c", NOTHING_ELSE], env=environment, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("[]\n", 0), run.stderr


@pytest.mark.ranks(2)
def test_outputs_of_a_group_apart_from_other_arrays():
    given = np.arange(10.0)
    first, second = given[:2], given[4:6]
    with pytest.raises(ValueError, match="overlaps another array of the group"):
        hvd.grouped_allreduce([first, second], out=[second, first], op=hvd.Sum)
    with pytest.raises(ValueError, match="overlaps another array of the group"):
        hvd.grouped_allreduce([first, second], out=[given[5:7], given[8:]], op=hvd.Sum)
    results = hvd.grouped_allreduce([first, second, first[:0]], out=[first, None, second[:0]], op=hvd.Sum)
    assert [result.tolist() for result in results] == [[0, 2], [8, 10], []] and given[1] == 2
