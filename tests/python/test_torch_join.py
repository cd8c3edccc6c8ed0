"""What the others do while a rank has joined."""

from __future__ import annotations

import pytest
import torch

import hvd.torch as hvd


def rows(rank: int, number: int) -> torch.Tensor:
    return torch.arange(number * 3.0).reshape(number, 3) + rank * 100


@pytest.mark.ranks(2, 4)
def test_movements_go_on():
    size, me = hvd.size(), hvd.rank()
    others = range(1, size)
    if me > 0:
        for _ in range(3):
            gathered = hvd.allgather(rows(me, me), name="gathered")
            assert torch.equal(gathered, torch.cat([rows(rank, rank) for rank in others]))
            assert torch.equal(hvd.broadcast(rows(me, 5), size - 1, name="from the last"), rows(size - 1, 5))
            splits = [0, *(rank * me for rank in others)]
            output, received = hvd.alltoall(rows(me, sum(splits)), splits=splits, name="exchanged")
            assert received.tolist() == splits
            sent = [rows(rank, sum(other * rank for other in others)) for rank in others]
            lengths = [[other * rank for other in others] for rank in others]
            parts = [tensor.split(length)[me - 1] for tensor, length in zip(sent, lengths)]
            assert torch.equal(output, torch.cat(parts))
        assert hvd.allgather_object({"rank": me}) == [{"rank": rank} for rank in others]
        assert hvd.broadcast_object(me, root_rank=1) == 1
        hvd.barrier()
    assert hvd.join() in others


@pytest.mark.ranks(2, 4)
def test_reductions_go_on():
    size, me = hvd.size(), hvd.rank()
    if me < size - 1:
        given, ranks = torch.full((2 * size, 2), me + 1.0), range(1, size)
        results = {
            hvd.Sum: sum(ranks),
            hvd.Average: sum(ranks) / size,
            hvd.Min: 1,
            hvd.Max: size - 1,
            hvd.Product: torch.tensor([*ranks]).prod().item(),
        }
        for op, result in results.items():
            assert torch.equal(hvd.allreduce(given, op=op), torch.full((2 * size, 2), float(result)))
            assert torch.equal(hvd.reducescatter(given, op=op), torch.full((2, 2), float(result)))
    assert hvd.join() in range(size - 1)


@pytest.mark.ranks(2, 4)
def test_what_needs_the_joined_rank_fails_and_the_rest_goes_on():
    if hvd.rank() > 0:
        with pytest.raises(hvd.HorovodInternalError, match=r"root, rank 0\b.* has joined"):
            hvd.broadcast(torch.ones(3), 0)
        with pytest.raises(hvd.HorovodInternalError, match=r"sends 1 rows to rank 0\b.*, which has joined"):
            hvd.alltoall(torch.ones(hvd.size()))
        for collective in (hvd.allreduce, hvd.reducescatter):
            with pytest.raises(hvd.HorovodInternalError, match=r"rank 0\b.* has joined"):
                collective(torch.ones(3), op=hvd.Max, prescale_factor=0.5)
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size() - 1] * 3
    hvd.join()
    assert hvd.broadcast(torch.tensor(hvd.rank()), 0).item() == 0


@pytest.mark.ranks(2, 4)
def test_what_was_started_before_is_finished():
    names = [f"started.{number}" for number in range(10)]
    # The highest rank does without every other one.
    last = hvd.rank() == hvd.size() - 1
    started = names[::2] if last else names
    handles = {name: hvd.allreduce_async(torch.ones(4), op=hvd.Sum, name=name) for name in started}
    hvd.join()
    for name, handle in handles.items():
        assert hvd.poll(handle)
        expected = hvd.size() if name in names[::2] else hvd.size() - 1
        assert hvd.synchronize(handle).tolist() == [expected] * 4


@pytest.mark.ranks(2, 4)
@pytest.mark.parametrize("held", [False, True], ids=["dropped", "held"])
def test_what_nobody_waits_for_is_in_nobodys_way(held):
    """Unnamed operations are numbered anew after each join."""
    handles = []
    for _ in range(3):
        for _ in range(hvd.rank() + 1):
            handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
            if held:
                handles.append(handle)
        hvd.join()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    assert all(hvd.poll(handle) for handle in handles)


@pytest.mark.ranks(2, 4)
def test_gradient_of_an_allgather():
    if hvd.rank() > 0:
        tensor = torch.ones(hvd.rank() + 1, 2, requires_grad=True)
        gathered = hvd.allgather(tensor)
        weights = torch.arange(float(len(gathered))).unsqueeze(1)
        (gathered * weights).sum().backward()
        first = sum(rank + 1 for rank in range(1, hvd.rank()))
        # The average is over all ranks, and the joined one adds zeros.
        share = (hvd.size() - 1) / hvd.size()
        torch.testing.assert_close(tensor.grad, share * weights[first : first + hvd.rank() + 1].expand(-1, 2))
    hvd.join()


@pytest.mark.ranks(2, 4)
def test_gradient_of_a_reducescatter():
    size = hvd.size()
    if hvd.rank() > 0:
        tensor = torch.ones(2 * size + 1, 3, requires_grad=True)
        part = hvd.reducescatter(tensor)
        part.backward(torch.full_like(part, hvd.rank() + 1.0))
        # Nobody has a use for the slice of the joined rank, which is longer by a row.
        expected = [torch.full((2 + (rank == 0), 3), rank + 1.0 if rank > 0 else 0.0) for rank in range(size)]
        torch.testing.assert_close(tensor.grad, torch.cat(expected))
    hvd.join()
