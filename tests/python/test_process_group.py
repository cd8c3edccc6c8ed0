"""The backend "hvd" of torch.distributed: each operation against what it should give, groups, errors and deadlines."""

from __future__ import annotations

import datetime
import os
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist

import hvd.torch as hvd
from hvd.process_set import _registered
from timeouts import at_most

warnings.filterwarnings("ignore", category=FutureWarning)  # names of torch's that were given up

Op = dist.ReduceOp


@pytest.fixture(autouse=True)
def default_group():
    if "TEST_REPORTS" not in os.environ:  # not within a job
        yield
        return
    dist.init_process_group("hvd", timeout=datetime.timedelta(seconds=30))
    yield
    dist.destroy_process_group()
    remove_process_sets()


def remove_process_sets() -> None:
    """Those of torch's groups, which stay when the groups are gone."""
    for process_set in list(_registered):
        hvd.remove_process_set(process_set)


def here() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def filled(value: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape or (3,), value, dtype=dtype)


REDUCTIONS = {
    "sum": (Op.SUM, lambda n: n * (n + 1) / 2),
    "average": (Op.AVG, lambda n: (n + 1) / 2),
    "min": (Op.MIN, lambda n: 1),
    "max": (Op.MAX, lambda n: n),
    "product": (Op.PRODUCT, lambda n: torch.arange(1, n + 1).prod().item()),
    "multiplied sum": (dist._make_nccl_premul_sum(2.0), lambda n: n * (n + 1)),
}


@pytest.mark.ranks
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op):
    (rank, size), (reduce_op, expected) = here(), REDUCTIONS[op]
    every = filled(expected(size))
    tensor = filled(rank + 1)
    assert dist.all_reduce(tensor, op=reduce_op) is None
    assert tensor.equal(every)
    tensor = filled(rank + 1)
    dist.reduce(tensor, size - 1, op=reduce_op)
    assert tensor.equal(every if rank == size - 1 else filled(rank + 1))
    rows, own = torch.arange(1.0, 2 * size + 1), torch.empty(2)
    dist.reduce_scatter_tensor(own, (rank + 1) * torch.ones(2 * size), op=reduce_op)
    assert own.equal(filled(expected(size), 2))
    dist.reduce_scatter(own, list(rows.chunk(size)), op=Op.MAX)
    assert own.equal(rows[2 * rank : 2 * rank + 2])


@pytest.mark.ranks(2)
def test_reductions_of_other_types():
    rank, _ = here()
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8):
        tensor = filled(rank + 1, dtype=dtype)
        dist.all_reduce(tensor)
        assert tensor.equal(filled(3, dtype=dtype))
    either, both, total = (torch.tensor([rank == 0]) for _ in range(3))
    dist.all_reduce(either, op=Op.BOR)
    dist.all_reduce(both, op=Op.BAND)
    dist.all_reduce(total, op=Op.SUM)
    assert either.item() and not both.item() and total.item()
    sums = torch.tensor([1 + 2j]) * (rank + 1)
    dist.all_reduce(sums)
    assert sums.tolist() == [3 + 6j]


@pytest.mark.ranks(1, 2, 4)
def test_moving_data():
    rank, size = here()
    tensor = filled(rank, 2, 3)
    dist.broadcast(tensor, size - 1)
    assert tensor.equal(filled(size - 1, 2, 3))
    parts = [torch.empty(3) for _ in range(size)]
    dist.all_gather(parts, filled(rank))
    assert [part.tolist() for part in parts] == [[other] * 3 for other in range(size)]
    whole = torch.empty(size, 3)
    dist.all_gather_into_tensor(whole, filled(rank))
    assert whole.equal(torch.stack(parts))
    gathered = [torch.empty(3) for _ in range(size)] if rank == size - 1 else None
    dist.gather(filled(rank), gathered, size - 1)
    assert gathered is None or torch.stack(gathered).equal(whole)
    own = torch.empty(3)
    dist.scatter(own, [filled(10 + other) for other in range(size)] if rank == 0 else None, 0)
    assert own.equal(filled(10 + rank))
    from_all = [torch.empty(2) for _ in range(size)]
    dist.all_to_all(from_all, [filled(10 * rank + other, 2) for other in range(size)])
    assert [part.tolist() for part in from_all] == [[10 * other + rank] * 2 for other in range(size)]
    rows = torch.empty(size, 2, dtype=torch.int64)
    dist.all_to_all_single(rows, filled(rank, size, 2, dtype=torch.int64))
    assert rows.tolist() == [[other] * 2 for other in range(size)]
    dist.barrier()


@pytest.mark.ranks(1, 2, 4)
def test_results_are_written_where_they_go():
    """In one contiguous output's memory that is apart from the input's; into others they are copied."""
    rank, size = here()
    expected = torch.arange(float(size)).repeat_interleave(3)
    whole = torch.full((3 * size,), -1.0)
    own = whole[3 * rank : 3 * rank + 3]
    own.fill_(rank)
    dist.all_gather_into_tensor(whole, own)
    assert whole.equal(expected)
    spread = torch.empty(3 * size, 2)[:, 0]
    dist.all_gather_into_tensor(spread, filled(rank))
    assert spread.equal(expected)
    moved = torch.full((3 * size,), float(rank))
    dist.all_to_all_single(moved, moved)  # not apart
    assert moved.equal(expected)
    for dtype in (torch.bfloat16, torch.complex64, torch.int16):
        received = torch.empty(3 * size, dtype=dtype)
        dist.all_gather_into_tensor(received, filled(rank, dtype=dtype))
        assert received.equal(expected.to(dtype))
        dist.all_to_all_single(received, filled(rank, 3 * size, dtype=dtype))
        assert received.equal(expected.to(dtype))
    sums = torch.empty(2)
    dist.reduce_scatter_tensor(sums, torch.arange(2.0 * size))
    assert sums.tolist() == [2 * rank * size, (2 * rank + 1) * size]


@pytest.mark.ranks(2, 4)
def test_alltoall_with_splits():
    rank, size = here()
    splits = [other + 1 for other in range(size)]  # rank r gets r + 1 rows from each
    output = torch.empty(size * (rank + 1), 2)
    dist.all_to_all_single(output, filled(rank, sum(splits), 2), [rank + 1] * size, splits)
    assert output.equal(torch.arange(float(size)).repeat_interleave(rank + 1)[:, None].expand(-1, 2))
    uneven = [torch.empty(rank + 1) for _ in range(size)]
    dist.all_to_all(uneven, [filled(rank, other + 1) for other in range(size)])
    assert [part.tolist() for part in uneven] == [[other] * (rank + 1) for other in range(size)]


@pytest.mark.ranks(1, 2, 4)
def test_all_gather_of_tensors_of_different_sizes():
    rank, size = here()
    parts = [torch.empty(other, 2) for other in range(size)]
    dist.all_gather(parts, filled(rank, rank, 2))
    assert all(part.equal(torch.full((other, 2), float(other))) for other, part in enumerate(parts))


@pytest.mark.ranks(2)
def test_memory_in_other_orders():
    rank, _ = here()
    tensor = filled(rank + 1, 2, 3).t()
    dist.all_reduce(tensor)
    assert tensor.equal(filled(3, 3, 2)) and not tensor.is_contiguous()
    columns = torch.zeros(3, 2)
    dist.all_gather([columns[:, 0], columns[:, 1]], filled(rank + 1))
    assert columns.tolist() == [[1, 2]] * 3
    channels_last = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    dist.broadcast(channels_last, 0)
    mine = channels_last.clone()
    dist.broadcast(mine, 1)
    assert mine.equal(channels_last)
    number = torch.tensor(float(rank))
    dist.all_reduce(number)
    assert number.item() == 1 and number.dim() == 0
    into = torch.empty(3, 2).t()
    dist.reduce_scatter_tensor(into, torch.arange(12.0))
    assert into.flatten().equal(2 * torch.arange(12.0)[6 * rank : 6 * rank + 6])


@pytest.mark.ranks(2)
def test_types_that_are_only_moved():
    rank, size = here()
    for dtype in (torch.complex64, torch.float8_e4m3fn, torch.uint16):
        tensor = torch.tensor([rank + 1, 4]).to(dtype)
        dist.broadcast(tensor, 1)
        assert tensor.to(torch.complex64).tolist() == [2, 4]
        parts = [torch.empty(1, dtype=dtype) for _ in range(size)]
        dist.all_gather(parts, torch.tensor([rank + 1]).to(dtype))
        assert [part.to(torch.complex64).item() for part in parts] == [1, 2]


@pytest.mark.ranks(2)
def test_several_at_once():
    rank, size = here()
    group = dist.group.WORLD
    tensors = [filled(rank + 1), filled(rank + 1, 2)]
    group.allreduce_coalesced(tensors).wait()
    assert [tensor.tolist() for tensor in tensors] == [[3] * 3, [3] * 2]
    outputs, inputs = [torch.empty(2), torch.empty(4)], [filled(rank, 1), filled(rank, 2)]
    for gather in (group.all_gather_single_coalesced, group.allgather_into_tensor_coalesced):
        gather(outputs, inputs).wait()
        assert [output.tolist() for output in outputs] == [[0, 1], [0, 0, 1, 1]]
    for reduce_scatter in (group.reduce_scatter_single_coalesced, group.reduce_scatter_tensor_coalesced):
        reduce_scatter(inputs, [torch.ones(2), torch.ones(4)]).wait()
        assert [tensor.tolist() for tensor in inputs] == [[2], [2, 2]]
    lists = [[torch.empty(1), torch.empty(2)] for _ in range(size)]
    group.allgather_coalesced(lists, [filled(rank, 1), filled(rank, 2)]).wait()
    assert [[tensor.tolist() for tensor in row] for row in lists] == [[[0], [0, 0]], [[1], [1, 1]]]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as works:
        dist.all_reduce(tensors[0])
        dist.all_reduce(tensors[1])
    works.wait()
    assert tensors[1].tolist() == [6, 6]
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
        dist.all_to_all_single(outputs[0], filled(rank, 2))
        dist.broadcast(tensors[0], 0)
    assert outputs[0].tolist() == [0, 1]


@pytest.mark.ranks(2, 4)
def test_objects():
    rank, size = here()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert [one["rank"] for one in objects] == list(range(size)) and objects[-1]["text"] == "x" * (size - 1)
    listed = [rank, "of", size]
    dist.broadcast_object_list(listed, 1)
    assert listed == [1, "of", size]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered, 0)
    assert gathered is None or gathered == list(range(size))
    own = [None]
    dist.scatter_object_list(own, [f"for {other}" for other in range(size)] if rank == 0 else None, 0)
    assert own == [f"for {rank}"]


@pytest.mark.ranks(2, 4)
def test_groups():
    rank, size = here()
    ranks_of_half = size // 2
    halves = [dist.new_group([*range(ranks_of_half)]), dist.new_group([*range(ranks_of_half, size)])]
    last_ones = [ranks_of_half - 1, size - 1]
    one, again = dist.new_group(last_ones), dist.new_group(last_ones)
    number, rank_in_half = divmod(rank, ranks_of_half)
    half = halves[number]
    assert halves[1 - number] == dist.GroupMember.NON_GROUP_MEMBER
    assert (dist.get_rank(half), dist.get_world_size(half)) == (rank_in_half, ranks_of_half)
    tensor = filled(rank)
    dist.all_reduce(tensor, group=half)
    assert tensor.equal(filled(sum(range(size)[number * ranks_of_half :][:ranks_of_half])))
    dist.broadcast(tensor, src=last_ones[number], group=half)
    if rank in last_ones:
        # Groups of the same ranks do not disturb each other, in whatever order their operations come.
        first, second = (one, again) if number == 0 else (again, one)
        tensors = {group: filled(rank) for group in (one, again)}
        works = [dist.all_reduce(tensors[group], group=group, async_op=True) for group in (first, second)]
        assert all(work.wait() for work in works)
        assert all(tensor.equal(filled(sum(last_ones))) for tensor in tensors.values())
        dist.destroy_process_group(one)
    everybody = dist.new_group()
    dist.barrier(group=everybody)


@pytest.mark.ranks(2, 4)
def test_groups_that_cannot_be():
    rank, size = here()
    with pytest.raises(ValueError, match="sort_ranks"):
        dist.new_group([1, 0], sort_ranks=False)
    others = [other for other in range(size) if other != 1]
    if rank != 1:
        with pytest.raises(ValueError, match="use_local_synchronization"):
            dist.new_group(others, use_local_synchronization=True)
    dist.new_group(others)
    if rank != 1:  # a set that all ranks have made before
        group = dist.new_group(others, use_local_synchronization=True)
        dist.barrier(group=group)


@pytest.mark.ranks(2)
def test_messages_between_two_ranks():
    rank, _ = here()
    large = torch.arange(3 << 20, dtype=torch.float32)
    if rank == 0:
        dist.send(torch.arange(5), 1)
        dist.send(filled(7, 2, 2).t(), 1, tag=3)
        dist.send(large, 1)
        dist.send(torch.empty(0), 1)
    else:
        tagged, first, last = torch.empty(2, 2), torch.empty(5, dtype=torch.int64), torch.empty_like(large)
        assert dist.recv(tagged, 0, tag=3) == 0 and tagged.equal(filled(7, 2, 2))
        dist.recv(first, 0)
        dist.recv(last, 0)
        assert first.tolist() == [0, 1, 2, 3, 4] and last.equal(large)
        dist.recv(torch.empty(0), 0)
    received = torch.empty(2)
    exchange = [dist.P2POp(dist.irecv, received, 1 - rank), dist.P2POp(dist.isend, filled(rank, 2), 1 - rank)]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
    assert received.equal(filled(1 - rank, 2))
    with pytest.raises(hvd.HorovodInternalError, match=r"recv from rank 1|recv from rank 0"):
        dist.irecv(received, 1 - rank, tag=99).wait(datetime.timedelta(seconds=0.2))
    with pytest.raises(ValueError, match=r"(?i)rank"):
        dist.send(received, rank)


@pytest.mark.ranks(2)
def test_messages_of_every_dtype_and_layout():
    rank, _ = here()
    for dtype in (torch.bool, torch.uint16, torch.int64, torch.bfloat16, torch.float8_e5m2, torch.complex64):
        tensor = torch.arange(6).reshape(2, 3).to(torch.float32).to(dtype)
        if rank == 0:
            dist.send(tensor, 1)
            dist.send(tensor.t(), 1)
        else:
            received, strided = torch.zeros_like(tensor), torch.zeros_like(tensor).repeat(2, 1)[::2]
            dist.recv(received, 0)
            assert received.view(torch.uint8).equal(tensor.view(torch.uint8))
            dist.recv(strided.t(), 0)
            assert strided.contiguous().view(torch.uint8).equal(tensor.view(torch.uint8))


@pytest.mark.ranks(2)
def test_large_messages_cross():
    rank, _ = here()
    sent, received = torch.full((16 << 20,), rank, dtype=torch.float32), torch.empty(16 << 20)  # 64 MiB each
    sending = dist.isend(sent, 1 - rank)
    dist.recv(received, 1 - rank)
    sending.wait()
    assert received[0] == received[-1] == 1 - rank


@pytest.mark.ranks(2)
def test_a_message_of_another_size_is_an_error_of_both():
    rank, _ = here()
    if rank == 0:
        with pytest.raises(hvd.HorovodInternalError, match=r"800000 bytes .* 400000 bytes"):
            dist.send(torch.zeros(200_000), 1)
        dist.send(filled(3), 1)
    else:
        with pytest.raises(hvd.HorovodInternalError, match=r"800000 bytes .* 400000 bytes"):
            dist.recv(torch.zeros(100_000), 0)
        received = filled(0)
        dist.recv(received, 0)
        assert received.equal(filled(3))


@pytest.mark.ranks(2, 4)
def test_messages_from_any_rank_and_within_groups():
    rank, size = here()
    first, last = (1, 3) if size == 4 else (0, 1)
    group = dist.new_group([first, last])
    received = filled(0)
    if rank == 0:
        sources = [dist.recv(received, tag=5) for _ in range(size - 1)]
        assert sorted(sources) == list(range(1, size))
    else:
        dist.send(filled(rank), 0, tag=5)
    if rank == last:
        dist.send(filled(1), first, group=group)
        dist.send(filled(2), first)
    if rank == first:
        dist.recv(received, last)
        assert received.equal(filled(2))  # what was sent in the group is another matter
        assert dist.recv(received, group=group) == last and received.equal(filled(1))


class Stage(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(batch)))


@pytest.mark.ranks(2)
def test_a_pipeline_of_two_stages():
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    rank, _ = here()
    whole, batch, target = Stage(), torch.arange(32.0).reshape(8, 4) / 32, torch.ones(8, 2)
    mine = torch.nn.Sequential(whole.first, torch.nn.ReLU()) if rank == 0 else whole.second
    stage = pipelining.PipelineStage(mine, rank, 2, torch.device("cpu"))
    schedule = pipelining.Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    losses: list[torch.Tensor] = []
    output = schedule.step(batch) if rank == 0 else schedule.step(target=target, losses=losses)
    alone = Stage()
    expected = alone(batch)
    torch.nn.functional.mse_loss(expected, target).backward()
    if rank == 1:
        torch.testing.assert_close(output, expected)
    layer, same = (whole.first, alone.first) if rank == 0 else (whole.second, alone.second)
    torch.testing.assert_close(layer.weight.grad, same.weight.grad)


@pytest.mark.ranks(2)
def test_asynchronous_works():
    rank, _ = here()
    if rank == 0:
        tensor = filled(1)
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        assert not work.is_completed() and not future.done()
        hvd.barrier()
        assert future.wait()[0] is tensor or future.value()[0].equal(filled(2))
        assert work.is_completed() and work.is_success() and work.exception() is None
        assert tensor.equal(filled(2)) and work.result()[0].equal(filled(2)) and work.wait()
    else:
        hvd.barrier()
        dist.all_reduce(filled(1))
    parts = [torch.empty(3), torch.empty(3)]
    work = dist.all_gather(parts, filled(rank), async_op=True)
    limit = time.monotonic() + 60
    while not work.is_completed():  # what is polled as completed needs no wait
        assert time.monotonic() < limit
    assert [part[0].item() for part in parts] == [0, 1]


@pytest.mark.ranks(2)
def test_callbacks_may_start_and_await_others():
    def next_one(future: torch.futures.Future) -> float:
        (tensor,) = future.wait()
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0].sum().item()

    futures = []
    for _ in range(3):
        futures.append(dist.all_reduce(filled(1, 2), async_op=True).get_future().then(next_one))
        assert futures[-1].wait() == 8.0
    names = [thread.name for thread in threading.enumerate()]
    assert 1 <= names.count("hvd-waiter") <= 8


@pytest.mark.timed
@pytest.mark.ranks(2)
def test_a_timeout_says_what_is_missing():
    rank, _ = here()
    if rank == 0:
        start = time.monotonic()
        work = dist.all_reduce(filled(1), async_op=True)
        with pytest.raises(hvd.HorovodInternalError, match=r"allreduce of torch group 0 \(ranks \[0, 1\]\).*0\.3 s"):
            work.wait(datetime.timedelta(seconds=0.3))
        assert 0.25 < time.monotonic() - start < at_most(5)
    hvd.barrier()
    if rank == 1:
        dist.all_reduce(filled(1))
    else:
        assert work.wait()  # the operation itself went on
    quick = dist.new_group(timeout=datetime.timedelta(seconds=0.2))
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"0\.2 s"):
            dist.barrier(group=quick, async_op=True).get_future().wait()
    hvd.barrier()
    if rank == 1:
        dist.barrier(group=quick)


@pytest.mark.ranks(2)
def test_ranks_that_disagree():
    rank, _ = here()
    with pytest.raises(hvd.HorovodInternalError, match=r"disagree.*rank . .*shape"):
        dist.all_reduce(torch.ones(2 + rank))
    work = dist.all_reduce(torch.ones(2 + rank), async_op=True)
    with pytest.raises(RuntimeError, match=r"the ranks disagree"):
        work.get_future().wait()
    assert work.is_completed() and not work.is_success() and "disagree" in str(work.exception())
    with pytest.raises(hvd.HorovodInternalError, match="broadcast"):
        dist.broadcast(torch.ones(2), 0) if rank == 0 else dist.all_reduce(torch.ones(2))
    tensor = filled(1)
    dist.all_reduce(tensor)
    assert tensor.equal(filled(2))


@pytest.mark.ranks(2)
def test_calls_that_are_wrong_by_themselves():
    _, size = here()
    for call, text in (
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), op=Op.BXOR), "BXOR"),
        (lambda: dist.all_reduce(torch.tensor([True]), op=Op.AVG), "bool"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.uint16)), "uint16"),
        (lambda: dist.all_gather([torch.empty(2)] * size, torch.ones(3)), "elements"),
        (lambda: dist.reduce_scatter_tensor(torch.empty(2), torch.ones(3)), "elements"),
        (lambda: dist.all_gather_into_tensor(torch.empty(2 * size, dtype=torch.int32), torch.ones(2)), "of that type"),
        (lambda: dist.reduce_scatter_tensor(torch.empty(2, dtype=torch.int32), torch.ones(2 * size)), "of that type"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    dist.barrier()
