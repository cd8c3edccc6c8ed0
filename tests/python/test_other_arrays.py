"""The collectives of `import hvd` on arrays of TensorFlow, of JAX and Arrow where they are installed, and of a library
with DLPack alone."""

from __future__ import annotations

import numpy as np
import pytest

import hvd
from launching import PROGRAMS, ROOT, run_job

DTYPES = ["float32", "float64", "int32", "bfloat16", "complex64", "uint16", "float8_e4m3fn"]


class Foreign:
    """An array of a library that has DLPack, as NumPy does, and nothing else that hvd knows."""

    def __init__(self, values: np.ndarray, is_old: bool = False) -> None:
        self.values, self.is_old = values, is_old

    def __dlpack__(self, **arguments):
        if self.is_old and "max_version" in arguments:
            raise TypeError("max_version")
        return self.values.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __setitem__(self, where, other) -> None:
        self.values[where] = other.values

    def __array_namespace__(self):
        return Foreign

    int32 = np.int32

    @staticmethod
    def from_dlpack(exported) -> Foreign:
        return Foreign(np.from_dlpack(exported))

    @staticmethod
    def asarray(values, dtype) -> Foreign:
        return Foreign(np.asarray(values, dtype))


def tensorflow_of(values: np.ndarray):
    return pytest.importorskip("tensorflow").constant(values)


def jax_of(values: np.ndarray):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(values)


LIBRARIES = {"tensorflow": tensorflow_of, "jax": jax_of}


def numbers(rank: int, dtype: str) -> np.ndarray:
    import ml_dtypes

    wanted = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
    return (np.arange(6).reshape(2, 3) % 4 + rank).astype(wanted)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made", LIBRARIES.values(), ids=LIBRARIES)
def test_tensors_of_other_frameworks(made, dtype):
    given = made(numbers(hvd.rank(), dtype))
    if made is tensorflow_of and dtype.startswith("float8"):
        with pytest.raises(ValueError, match="tensors of float8_e4m3fn are not supported"):
            hvd.allgather(given)
        return
    everyone = [numbers(rank, dtype) for rank in range(hvd.size())]

    def check(result, expected: np.ndarray) -> None:
        assert type(result) is type(given) and result.dtype == given.dtype
        assert np.array_equal(np.asarray(result), expected)

    check(hvd.allgather(given), np.concatenate(everyone))
    check(hvd.broadcast(given, hvd.size() - 1), everyone[-1])
    output, splits = hvd.alltoall(given, [2] + [0] * (hvd.size() - 1))
    check(output, np.concatenate(everyone) if hvd.rank() == 0 else everyone[0][:0])
    assert type(splits) is type(given) and np.asarray(splits).tolist() == [2 * (hvd.rank() == 0)] * hvd.size()
    if dtype.startswith(("uint16", "float8")):
        with pytest.raises(ValueError, match=dtype):
            hvd.allreduce(given, op=hvd.Sum)
    else:
        check(hvd.allreduce(given, op=hvd.Sum), sum(everyone[1:], everyone[0]))
        out = np.zeros_like(everyone[0])
        assert hvd.allreduce(given, op=hvd.Sum, out=out) is out
        assert np.array_equal(out, sum(everyone[1:], everyone[0]))
    with pytest.raises(ValueError, match="cannot hold a result"):
        hvd.broadcast(given, 0, out=given)


@pytest.mark.ranks(1, 2)
def test_variables_text_and_graphs_of_tensorflow():
    tf = pytest.importorskip("tensorflow")
    assert hvd.allreduce(tf.Variable([1.0, 2.0]), op=hvd.Sum).numpy().tolist() == [hvd.size(), 2 * hvd.size()]
    with pytest.raises(ValueError, match="tensors of string are not supported"):
        hvd.allgather(tf.constant(["a"]))
    with pytest.raises(TypeError, match=r"hvd\.tensorflow"):
        tf.function(hvd.allreduce, autograph=False)(tf.constant([1.0]))
    with pytest.raises(TypeError, match="not one tensor but several"):
        hvd.allreduce(tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])))


@pytest.mark.ranks(1, 2)
def test_arrays_of_jax_that_cannot_be_read():
    made = jax_of(np.ones(3))
    with pytest.raises(TypeError, match="without a value"):
        pytest.importorskip("jax").jit(hvd.allreduce)(made)
    assert hvd.allreduce(made.reshape(3, 1).T, op=hvd.Sum).tolist() == [[hvd.size()] * 3]
    with pytest.raises(ValueError, match="arrays of int4 are not supported"):
        hvd.broadcast(made.astype("int4"), 0)
    made.delete()
    with pytest.raises(ValueError, match="was deleted"):
        hvd.allreduce(made)


@pytest.mark.ranks(1, 2)
def test_arrow():
    pa = pytest.importorskip("pyarrow")
    for kind in (pa.int32(), pa.float64(), pa.uint16()):
        given = pa.array([1, 2, 3], kind)
        gathered = hvd.allgather(given[1:])
        assert gathered.type == kind and gathered.to_pylist() == [2, 3] * hvd.size()
    result = hvd.allreduce(pa.array([1.5]), op=hvd.Sum)
    assert isinstance(result, pa.Array) and result.to_pylist() == [1.5 * hvd.size()]
    assert hvd.allgather(pa.py_buffer(b"ab")).to_pybytes() == b"ab" * hvd.size()
    assert hvd.allgather(pa.Tensor.from_numpy(np.ones((1, 2)))).shape == (hvd.size(), 2)
    for wrong in (pa.array([1, None]), pa.array(["a"]), pa.array([True])):
        with pytest.raises(ValueError, match=str(wrong.type)):
            hvd.allgather(wrong)
    with pytest.raises(ValueError, match="cannot hold a result"):
        hvd.allreduce(result, out=result)


@pytest.mark.ranks(1, 2)
def test_results_of_arrow_without_rows():
    pa = pytest.importorskip("pyarrow")
    assert hvd.allgather(pa.array([], pa.int32())).to_pylist() == []
    assert hvd.allgather(pa.py_buffer(b"")).to_pybytes() == b""
    rows = hvd.reducescatter(pa.array([1.0]), op=hvd.Sum)
    assert rows.to_pylist() == [float(hvd.size())] * (hvd.rank() == 0)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("is_old", [False, True])
def test_a_library_with_dlpack_alone(is_old):
    given = Foreign(np.arange(6.0).reshape(2, 3) + hvd.rank(), is_old)
    total = sum(np.arange(6.0).reshape(2, 3) + rank for rank in range(hvd.size()))
    result = hvd.allreduce(given, op=hvd.Sum)
    assert isinstance(result, Foreign) and np.array_equal(result.values, total)
    transposed = hvd.allreduce(Foreign(given.values.T, is_old), op=hvd.Sum)
    assert np.array_equal(transposed.values, total.T)
    output, splits = hvd.alltoall(given, [2] + [0] * (hvd.size() - 1))
    assert isinstance(output, Foreign) and splits.values.tolist() == [2 * (hvd.rank() == 0)] * hvd.size()
    out = Foreign(np.zeros((2 * hvd.size(), 3)), is_old)
    assert hvd.allgather(given, out=out) is out and out.values[-1].tolist() == [x + hvd.size() - 1 for x in (3, 4, 5)]
    assert hvd.allreduce(given, op=hvd.Sum, out=given) is given and np.array_equal(given.values, total)
    with pytest.raises(ValueError, match="not contiguous"):
        hvd.allreduce(given, out=Foreign(np.zeros((3, 2)).T))
    read_only = np.zeros((2, 3))
    read_only.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        hvd.allreduce(given, out=Foreign(read_only, is_old))


FAKE_CUDA = ROOT / "build" / "release" / "tests" / "support" / "fake_cuda" / "libhvd_fake_cuda.so"


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the fake CUDA driver is not built: cmake --build --preset release")
def test_a_library_on_a_fake_gpu():
    environment = {
        "HVD_CUDA_LIB": str(FAKE_CUDA),
        "HVD_NCCL_LIB": "/no/such/libnccl.so",
        "HVD_GPU_THROUGH_HOST": "1",
    }
    job = run_job(2, [str(PROGRAMS / "cuda_arrays.py")], environment)
    assert job.output.count("right") == 2, job.output
