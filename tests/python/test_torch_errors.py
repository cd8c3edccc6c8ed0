"""Errors: of one rank's call, of ranks that disagree, and what still works afterwards."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import hvd.torch as hvd
from hvd import collectives as arrays
from hvd.process_set import ProcessSet
from timeouts import at_most


def still_works() -> bool:
    return hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3


def fake_tensor() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(4, 4)


class Wrapper(torch.Tensor):
    """Has a shape and a dtype, as DTensor has, and no memory."""

    def __new__(cls) -> Wrapper:
        return torch.Tensor._make_wrapper_subclass(cls, (4, 4), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, operator, types, arguments=(), options=None):
        return cls()


def square() -> torch.Tensor:
    return torch.eye(4)


def two_lengths() -> list[torch.Tensor]:
    return [torch.ones(2), torch.ones(3)]


BAD_TENSORS = {
    "sparse": (lambda: square().to_sparse(), r"sparse_coo\) are not supported: use sparse_allreduce_async"),
    "csr": (lambda: square().to_sparse_csr(), r"sparse_csr are not supported: use to_dense\(\), or sparse_allreduce"),
    "csc": (lambda: square().to_sparse_csc(), "sparse_csc are not supported: use to_dense"),
    "bsr": (lambda: square().to_sparse_bsr((2, 2)), "sparse_bsr are not supported: use to_dense"),
    "bsc": (lambda: square().to_sparse_bsc((2, 2)), "sparse_bsc are not supported: use to_dense"),
    "mkldnn": (lambda: square().to_mkldnn(), "_mkldnn are not supported: use to_dense"),
    "quantized": (lambda: torch.quantize_per_tensor(square(), 0.1, 0, torch.qint8), "qint8.*: use dequantize"),
    "nested": (lambda: torch.nested.nested_tensor(two_lengths()), "nested tensors .*: send their values"),
    "jagged": (lambda: torch.nested.nested_tensor(two_lengths(), layout=torch.jagged), "nested tensors .*: send their"),
    "meta": (lambda: torch.ones(2, device="meta"), "on meta are not supported: use to"),
    "fake": (fake_tensor, "an input has elements but no memory"),
    "wrapper": (Wrapper, "an input has elements but no memory"),
}
FORMS = {
    "allreduce": hvd.allreduce,
    "allreduce_": hvd.allreduce_,
    "allreduce_async": hvd.allreduce_async,
    "allreduce_async_": hvd.allreduce_async_,
    "grouped_allreduce": lambda tensor: hvd.grouped_allreduce([torch.ones(1), tensor]),
    "allgather": hvd.allgather,
    "broadcast": lambda tensor: hvd.broadcast(tensor, 0),
    "broadcast_": lambda tensor: hvd.broadcast_(tensor, 0),
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
    "broadcast_parameters": lambda tensor: hvd.broadcast_parameters({"tensor": tensor}, 0),
    "allreduce of any array": lambda tensor: arrays.allreduce(tensor),
    "grouped_allgather": lambda tensor: hvd.grouped_allgather([torch.ones(1), tensor]),
    "grouped_reducescatter": lambda tensor: hvd.grouped_reducescatter([torch.ones(1), tensor]),
}


@pytest.mark.ranks(2)
@pytest.mark.filterwarnings("ignore")  # that these kinds of tensors are young, or old
@pytest.mark.parametrize("bad", BAD_TENSORS)
def test_unsupported_tensors(bad):
    make, text = BAD_TENSORS[bad]
    for form in FORMS.values():
        with pytest.raises(ValueError, match=text):
            form(make())
    assert still_works()


@pytest.mark.ranks(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bad", ["csr", "csc", "bsr", "bsc"])
def test_parameters_whose_gradients_are_not_supported(bad):
    parameter = torch.nn.Parameter(BAD_TENSORS[bad][0]())
    text = f"parameter weight has the layout torch.sparse_{bad}, .*: train its to_dense"
    with pytest.raises(ValueError, match=text):
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], 0.1), named_parameters=[("weight", parameter)])
    dense = torch.nn.Parameter(torch.ones(2))
    wrapped = hvd.DistributedOptimizer(torch.optim.SGD([dense], 0.1))
    wrapped.add_param_group({"params": [parameter]})
    with pytest.raises(ValueError, match=text.replace("weight", "added.1")):
        wrapped.step()
    assert still_works()


@pytest.mark.ranks(2)
def test_wrong_arguments():
    ones = torch.ones(4)
    for call in (
        lambda: hvd.allreduce(torch.ones(4, dtype=torch.int32), op=hvd.Adasum),
        lambda: hvd.allreduce_(ones, op=17),
        lambda: hvd.broadcast(ones, root_rank=hvd.size()),
        lambda: hvd.broadcast(ones, root_rank=-1),
        lambda: hvd.alltoall(ones, splits=[4]),
        lambda: hvd.alltoall(ones, splits=[]),
        lambda: hvd.alltoall(ones, splits=[4, 4]),
        lambda: hvd.alltoall(ones, splits=[5, -1]),
        lambda: hvd.alltoall(ones, splits=torch.tensor([2.0, 2.0])),
        lambda: hvd.alltoall(ones, splits=torch.tensor([[2, 2]])),
        lambda: hvd.alltoall(torch.ones(3)),
        lambda: hvd.allreduce(ones, process_set=ProcessSet([0])),
        lambda: hvd.allreduce_(torch.ones(1).expand(4)),
        lambda: hvd.allreduce(ones, average=True, op=hvd.Sum),
        lambda: hvd.grouped_allreduce_([ones, torch.ones(1).expand(4)]),
        lambda: hvd.sparse_allreduce_async(ones, "s", hvd.Sum),
        lambda: hvd.sparse_allreduce_async(ones.to_sparse(), "s", hvd.Max),
        lambda: hvd.alltoall(torch.tensor(1.0)),
        lambda: hvd.DistributedOptimizer(
            torch.optim.SGD([torch.nn.Parameter(ones)], 0.1), backward_passes_per_step=1.5
        ),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(ones)], 0.1), num_groups=1.5),
        lambda: hvd.poll(123456789),
        lambda: hvd.init(process_sets=[ProcessSet([hvd.size()])]),
        lambda: hvd.init(comm=object()),
    ):
        with pytest.raises(ValueError):
            call()
    grid = torch.ones(4, 4)
    for group in ([ones, ones], [ones[:3], grid, ones[2:]], [grid.t(), ones]):
        if group[0] is not ones:
            group.append(group[0])
        for call in (hvd.grouped_allreduce_, hvd.grouped_allreduce_async_):
            with pytest.raises(ValueError, match="outputs of a group share memory"):
                call(group)
    hvd.grouped_allreduce_([grid[:, :2], grid[:, 2:], ones[:2], ones[2:2], ones[2:]])
    assert still_works()


WRONG_TYPES = {
    "op": (lambda ones: hvd.allreduce(ones, op="sum"), "op is 'sum': expected hvd.Average, hvd.Sum, .* or hvd.Product"),
    "op_": (lambda ones: hvd.allreduce_(ones, op=1.5), "op is 1.5: expected hvd.Average"),
    "op of torch": (
        lambda ones: hvd.allreduce(ones, op=torch.distributed.ReduceOp.SUM),
        "op is .*SUM.*: expected hvd.Average",
    ),
    "op of a group": (lambda ones: hvd.grouped_allreduce([ones], op=[]), r"op is \[\]: expected hvd.Average"),
    "op of reducescatter": (lambda ones: hvd.reducescatter(ones, op="sum"), "op is 'sum': expected hvd.Average"),
    "op of an optimizer": (lambda ones: optimizer(op="sum"), "op is 'sum': expected hvd.Average"),
    "root": (lambda ones: hvd.broadcast(ones, "0"), "root_rank is '0': expected the number of a rank"),
    "factor": (lambda ones: hvd.allreduce(ones, prescale_factor="a"), "prescale_factor is 'a': expected a number"),
    "set": (lambda ones: hvd.allreduce(ones, process_set=0), "process_set is 0: expected a ProcessSet"),
    "removed set": (lambda ones: hvd.remove_process_set([0, 1]), r"process_set is \[0, 1\]: expected the ProcessSet"),
    "state": (lambda ones: hvd.elastic.run(print)(ones), "first argument .* is of type Tensor: expected a State"),
    "new set": (lambda ones: hvd.add_process_set(5), r"ranks is 5: expected numbers of ranks, as in \[0, 2\]"),
    "compression": (lambda ones: hvd.allreduce(ones, compression="fp16"), "compression is 'fp16': .*Compression.fp16"),
    "compression of an optimizer": (lambda ones: optimizer(compression="fp16"), "compression is 'fp16': expected"),
    "passes": (lambda ones: optimizer(backward_passes_per_step="2"), "backward_passes_per_step is '2': expected"),
    "optimizer": (lambda ones: hvd.DistributedOptimizer(torch.nn.Linear(1, 1)), "optimizer is a Linear: expected"),
    "splits": (lambda ones: hvd.alltoall(ones, splits=4), "splits is 4: expected a number of rows for each rank"),
    "splits of floats": (
        lambda ones: hvd.alltoall(ones, splits=[1.5]),
        r"splits is \[1.5\]: expected a number of rows",
    ),
    "list": (lambda ones: hvd.allreduce([1.0, 2.0]), "a torch.Tensor is needed, not list"),
    "list in a group": (lambda ones: hvd.grouped_allgather([ones, 1.0]), "a torch.Tensor is needed, not float"),
}


def optimizer(**options: object) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.1), **options)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("what", WRONG_TYPES)
def test_an_argument_of_a_wrong_type_is_told_what_it_may_be(what):
    call, text = WRONG_TYPES[what]
    with pytest.raises(TypeError, match=text) as error:
        call(torch.ones(4))
    assert "incompatible function arguments" not in str(error.value)
    assert still_works()


OUT_OF_RANGE = {
    "new set": (lambda ones: hvd.add_process_set([0, 2**40]), "ranks is 1099511627776: expected the number of a rank"),
    "splits": (lambda ones: hvd.alltoall(ones, splits=[2**64 - 1, 1]), "splits is .*: expected .*, below 2..63"),
    "name": (lambda ones: hvd.allreduce(ones, name="caf\udce9"), "a name cannot have a surrogate in it"),
}


@pytest.mark.ranks(2)
@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_an_argument_that_the_runtime_cannot_hold_is_refused(what):
    call, text = OUT_OF_RANGE[what]
    with pytest.raises(ValueError, match=text):
        call(torch.ones(4))
    assert still_works()


@pytest.mark.ranks(2)
def test_a_name_with_nul_is_refused():
    with pytest.raises(ValueError, match="cannot have a NUL character"):
        hvd.allreduce(torch.ones(4), name="one\0two")
    assert still_works()


@pytest.mark.ranks(2)
def test_numpys_numbers_are_numbers():
    ones = torch.ones(4)
    assert hvd.allreduce(ones, op=np.int64(hvd.Sum), postscale_factor=np.float32(0.5)).tolist() == [1.0] * 4
    assert hvd.allreduce(ones, op=hvd.Sum, prescale_factor=2).tolist() == [4.0] * 4
    assert hvd.broadcast(ones, np.int32(1)).tolist() == [1.0] * 4


@pytest.mark.ranks(2)
def test_a_name_is_taken_while_the_operation_is_under_way():
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_async(torch.ones(2), name="twice")
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_(torch.ones(2), name="twice")
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
    assert hvd.synchronize(handle).tolist() == [1, 1]
    assert hvd.allreduce(torch.ones(2), name="twice").tolist() == [1, 1]


@pytest.mark.ranks(1, 2)
def test_a_name_is_free_when_the_operation_has_ended():
    for kept in ([], None):
        for value in range(3):
            handle = hvd.allreduce_async(torch.full((2,), float(value)), name="never waited for")
            if kept is not None:
                kept.append(handle)
            hvd.barrier()
        for value, handle in enumerate(kept or ()):
            assert hvd.poll(handle)
            assert hvd.synchronize(handle).tolist() == [value, value]


@pytest.mark.ranks(1, 2)
def test_operations_whose_handles_are_gone_keep_no_memory():
    tensors = [torch.ones(4) for _ in range(5)]
    alive = [weakref.ref(tensor) for tensor in tensors]
    for tensor in tensors:
        hvd.allreduce_async_(tensor)
        hvd.allgather_async(tensor)
    del tensors, tensor
    hvd.barrier()
    hvd.barrier()  # whatever has ended by then is let go of
    assert not any(reference() is not None for reference in alive)


@pytest.mark.ranks(1)
def test_a_copy_of_a_handle_is_a_number():
    handle = hvd.allreduce_async(torch.ones(2))
    for copied in (copy.copy(handle), copy.deepcopy([handle])[0], pickle.loads(pickle.dumps(handle)), int(handle)):
        assert type(copied) is int and copied == handle
    assert hvd.synchronize(int(handle)).tolist() == [1, 1]


@pytest.mark.ranks(1)
def test_handles_are_used_up():
    handle = hvd.allreduce_async(torch.ones(2))
    assert isinstance(handle, int)
    assert hvd.synchronize(handle) is not None
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(987654321) is None


def by_rank(first: object, others: object) -> object:
    return first if hvd.rank() == 0 else others


DISAGREEMENTS = {
    "shape": (lambda name: hvd.allreduce(torch.ones(by_rank(17, 19)), name=name), "17", "19"),
    "dtype": (
        lambda name: hvd.allreduce(torch.ones(3, dtype=by_rank(torch.int32, torch.float64)), name=name),
        "int32",
        "float64",
    ),
    "operation": (lambda name: hvd.allreduce(torch.ones(3), op=by_rank(hvd.Max, hvd.Sum), name=name), "max", "sum"),
    "scale": (lambda name: hvd.allreduce(torch.ones(3), prescale_factor=by_rank(0.25, 0.5), name=name), "0.25", "0.5"),
    "root": (lambda name: hvd.broadcast(torch.ones(3), by_rank(0, 1), name=name), "0", "1"),
    "collective": (
        lambda name: hvd.allreduce(torch.ones(3)) if hvd.rank() == 0 else hvd.allgather(torch.ones(3)),
        "allreduce",
        "allgather",
    ),
    "rows": (lambda name: hvd.allgather(torch.ones(2, by_rank(17, 19)), name=name), "17", "19"),
    "number": (
        lambda name: hvd.grouped_allreduce([torch.ones(3)] * by_rank(2, 3), name=name),
        "2",
        "3",
    ),
}


@pytest.mark.timed
@pytest.mark.ranks(2, 4)
@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_every_rank_hears_of_a_disagreement(what):
    call, first, other = DISAGREEMENTS[what]
    start = time.monotonic()
    with pytest.raises(hvd.HorovodInternalError) as error:
        call(f"disagreement.{what}")
    assert time.monotonic() - start < at_most(5)
    text = str(error.value)
    assert re.search(r"rank 0\b", text) and re.search(r"rank [1-9]\b", text), text
    assert first in text and other in text, text
    # The name can be used again, and everything else goes on.
    assert still_works()
    assert hvd.allreduce(torch.ones(3), name=f"disagreement.{what}").tolist() == [1, 1, 1]


@pytest.mark.ranks(2)
def test_rows_of_a_scalar():
    scalar = torch.tensor(1.0)
    for call in (
        lambda: hvd.allgather(scalar),
        lambda: hvd.reducescatter(scalar),
        lambda: hvd.grouped_allgather([torch.ones(1), scalar]),
        lambda: hvd.grouped_reducescatter([torch.ones(1), scalar]),
    ):
        for kind in (ValueError, hvd.HorovodInternalError):
            with pytest.raises(kind, match="at least one dimension"):
                call()
    assert still_works()


@pytest.mark.timed
@pytest.mark.ranks(2)
def test_ctrl_c_while_waiting():
    if hvd.rank() == 0:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            hvd.allreduce_(torch.ones(100), name="late")
        assert time.monotonic() - start < at_most(3)
    hvd.barrier()
    if hvd.rank() != 0:
        # Rank 0 has left the wait, not the operation: its part, which nobody there holds any more, is still good.
        assert hvd.allreduce_(torch.ones(100), name="late", op=hvd.Average).tolist() == [1.0] * 100
    assert still_works()


@pytest.mark.ranks(2)
def test_an_interrupted_handle_can_be_synchronized_again():
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(3), name="again", op=hvd.Sum)
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            hvd.synchronize(handle)
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(torch.ones(3), name="again", op=hvd.Sum)
    assert hvd.synchronize(handle).tolist() == [2, 2, 2]


@pytest.mark.ranks(2)
def test_waiting_leaves_other_threads_running():
    turns = 0
    if hvd.rank() == 0:
        waiting = threading.Thread(target=lambda: hvd.allreduce_(torch.ones(3), name="slow"))
        waiting.start()
        while turns < 1000:
            turns += 1
        assert waiting.is_alive()
    hvd.barrier()
    if hvd.rank() == 0:
        waiting.join()
    else:
        hvd.allreduce_(torch.ones(3), name="slow")
    assert still_works()


@pytest.mark.ranks(2)
def test_threads_may_run_operations_without_a_name_while_a_rank_is_late():
    sums: list[list[float]] = []

    def add_up():
        sums.append(hvd.allreduce_(torch.ones(2), op=hvd.Sum).tolist())

    hvd.barrier()
    if hvd.rank() == 1:
        time.sleep(0.5)  # longer than a call waits between two looks at signals
    threads = [threading.Thread(target=add_up, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(at_most(20))
    assert sums == [[2, 2]] * 4
    assert still_works()
