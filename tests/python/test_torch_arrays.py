"""The collectives of `import hvd` on tensors of PyTorch, alone and together with arrays of other libraries."""

from __future__ import annotations

import array

import numpy as np
import pytest
import torch

import hvd
import hvd.torch

pytestmark = pytest.mark.ranks

TORCH_DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.float8_e4m3fn, torch.bool]


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_torch(dtype):
    mine = (torch.arange(6).reshape(2, 3) % 2 + hvd.rank() % 2).to(dtype)
    everyone = [(torch.arange(6).reshape(2, 3) % 2 + rank % 2).to(dtype) for rank in range(hvd.size())]
    as_bytes = [bytes(one.view(torch.uint8).numpy()) for one in everyone]
    gathered = hvd.allgather(mine)
    assert gathered.dtype is dtype and bytes(gathered.view(torch.uint8).numpy()) == b"".join(as_bytes)
    transposed = hvd.broadcast(mine.t(), 0)
    assert transposed.dtype is dtype and transposed.stride() == mine.t().stride()
    assert bytes(transposed.t().view(torch.uint8).numpy()) == as_bytes[0]
    if dtype.is_floating_point and dtype.itemsize == 1:
        with pytest.raises(ValueError, match="allreduce with op=Sum is not supported for float8_e4m3fn"):
            hvd.allreduce(mine, op=hvd.Sum)
    elif dtype is not torch.bool:
        total = torch.stack(everyone).sum(0)
        assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), total)
        assert hvd.allreduce(mine, op=hvd.Sum, out=mine) is mine and torch.equal(mine, total)
        if dtype is torch.complex64:
            assert torch.equal(hvd.allreduce(mine.conj(), average=True), total.conj())


def test_out_may_be_of_another_library():
    given = np.arange(3.0) + hvd.rank()
    total = sum(np.arange(3.0) + rank for rank in range(hvd.size())).tolist()
    for out in (torch.zeros(3, dtype=torch.float64), array.array("d", [0] * 3), memoryview(bytearray(24)).cast("d")):
        assert hvd.allreduce(given, op=hvd.Sum, out=out) is out and out.tolist() == total
    assert hvd.allreduce(torch.from_numpy(given), op=hvd.Sum, out=given) is given and given.tolist() == total


def test_libraries_may_differ_between_ranks():
    made = [np.array, torch.tensor, lambda n: array.array("d", n), lambda n: memoryview(array.array("d", n))]
    given = made[hvd.rank()]([1.0, 2.0])
    if isinstance(given, torch.Tensor):
        given = given.double()
    for name in ("with a name", None):
        result = hvd.allreduce(given, op=hvd.Sum, name=name)
        assert type(result) is type(given) and list(result) == [hvd.size(), 2 * hvd.size()]
        assert list(hvd.allgather(given, name=name)) == [1.0, 2.0] * hvd.size()
    reduce = hvd.torch.allreduce if isinstance(given, torch.Tensor) else hvd.allreduce
    assert list(reduce(given, op=hvd.Sum, name="both")) == [hvd.size(), 2 * hvd.size()]


def test_objects_meet_those_of_torch():
    package = hvd.torch if hvd.rank() % 2 else hvd
    assert package.broadcast_object({"rank": hvd.rank()}, 0, name="one") == {"rank": 0}
    assert package.allgather_object(hvd.rank(), name="all") == list(range(hvd.size()))
    assert hvd.allgather_object("unnamed") == ["unnamed"] * hvd.size()


def test_groups_of_several_libraries():
    mixed = hvd.grouped_allreduce([np.ones(2), array.array("f", [1]), torch.ones(1)], op=hvd.Sum, name="mixed")
    assert [type(one) for one in mixed] == [np.ndarray, array.array, torch.Tensor]
    assert [list(one) for one in mixed] == [[hvd.size()] * 2, [hvd.size()], [hvd.size()]]


def test_splits_may_be_a_tensor():
    output, received = hvd.alltoall(np.full(hvd.size(), hvd.rank()), torch.ones(hvd.size(), dtype=torch.int32))
    assert output.tolist() == list(range(hvd.size())) and received.tolist() == [1] * hvd.size()


def test_prepared_operations():
    tensor, out = torch.zeros(4), array.array("f", [0] * 4)
    in_place = hvd.prepare(hvd.allreduce, tensor, name="in place", op=hvd.Max, out=tensor)
    elsewhere = hvd.prepare(hvd.allreduce, tensor, op=hvd.Sum, name="elsewhere", out=out)
    for _ in range(3):
        tensor.fill_(hvd.rank())
        elsewhere.start()
        assert elsewhere.wait() is out and out.tolist() == [hvd.size() * (hvd.size() - 1) // 2] * 4
        assert in_place() is tensor and tensor.tolist() == [hvd.size() - 1] * 4


def test_what_is_refused():
    with pytest.raises(ValueError, match="sparse_coo"):
        hvd.allreduce(torch.ones(2, 2).to_sparse())
    with pytest.raises(ValueError, match="not contiguous"):
        hvd.prepare(hvd.allreduce, torch.zeros(4, 4).t())
    with pytest.raises(TypeError, match=r"function must be one of hvd\.allreduce"):
        hvd.prepare(hvd.torch.allreduce, torch.zeros(4))
    hvd.barrier()
