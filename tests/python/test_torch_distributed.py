"""What PyTorch builds on process groups, over the backend "hvd": the same as over gloo, or as on one process."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import hvd.torch as hvd
from hvd.process_set import _registered

warnings.filterwarnings("ignore", category=FutureWarning)  # names of torch's that were given up

STEPS = 4


@pytest.fixture
def default_group():
    """A group over hvd while the test runs, within a job."""
    if "TEST_REPORTS" in os.environ:
        dist.init_process_group("hvd")
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
        for process_set in list(_registered):  # those of torch's groups, which stay when the groups are gone
            hvd.remove_process_set(process_set)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 33), nn.ReLU(), nn.Linear(33, 20), nn.Tanh(), nn.Linear(20, 4))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 6, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4)
    )


MODELS = {"perceptron": perceptron, "convolutional": convolutional}


def trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(STEPS):
        inputs, labels = torch.randn(8, 12), torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


# With PyTorch 2.13 the destructor of a group of gloo joins its threads while it holds the GIL, and they may be waiting
# for it: what refers to their last work refers to Python's objects, too. So these groups live as long as the process.
groups_of_gloo = []


def parameters_over(backend: str, train: Callable[[], nn.Module]) -> list[torch.Tensor]:
    dist.init_process_group(backend)
    if backend == "gloo":
        groups_of_gloo.append(dist.group.WORLD)
    try:
        model = train()
        whole = (p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters())
        return [tensor.detach().clone() for tensor in whole]
    finally:
        hvd.barrier()  # gloo drops what is still on its way to a slower rank
        dist.destroy_process_group()


def assert_close(over_hvd: list[torch.Tensor], over_gloo: list[torch.Tensor]) -> None:
    assert len(over_hvd) == len(over_gloo) > 0
    for one, other in zip(over_hvd, over_gloo):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def with_ddp(make: Callable[[], nn.Module], hook: Callable | None = None, **options: object) -> nn.Module:
    torch.manual_seed(dist.get_rank())  # DDP gives everybody rank 0's parameters
    model = DistributedDataParallel(make(), bucket_cap_mb=0.002, **options)
    if hook is not None:
        model.register_comm_hook(None, hook)
    trained(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return model


def with_fsdp(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(5)
    model = make()
    for layer in model:
        if next(layer.parameters(), None) is not None:
            fully_shard(layer)
    fully_shard(model)
    trained(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    return model


@pytest.mark.ranks(2)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("train", [with_ddp, with_fsdp])
def test_the_same_parameters_as_over_gloo(train, model):
    over_gloo = parameters_over("gloo", lambda: train(MODELS[model]))
    assert_close(parameters_over("hvd", lambda: train(MODELS[model])), over_gloo)


@pytest.mark.ranks(2)
def test_ddp_hook():
    plain = parameters_over("hvd", lambda: with_ddp(perceptron, gradient_as_bucket_view=True))
    for backend in ("hvd", "gloo"):
        assert_close(parameters_over(backend, lambda: with_ddp(perceptron, hvd.ddp_hook())), plain)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        compressed = parameters_over("hvd", lambda: with_ddp(perceptron, hvd.ddp_hook(compression=compression)))  # noqa: B023
        for one, other in zip(compressed, plain):
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.02)
    assert any(not one.equal(other) for one, other in zip(compressed, plain))


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    "wrong, text",
    [({"op": 17}, "op is 17"), ({"compression": "fp16"}, "compression is 'fp16'")],
    ids=["op", "compression"],
)
def test_ddp_hook_refuses_wrong_arguments(wrong, text):
    with pytest.raises((TypeError, ValueError), match=text):
        hvd.ddp_hook(**wrong)


@pytest.mark.ranks(2)
def test_ddp_hook_tells_of_a_mismatch(default_group):
    model = DistributedDataParallel(nn.Linear(3, 1, bias=False))
    model.register_comm_hook(None, hvd.ddp_hook(op=hvd.Sum if dist.get_rank() else hvd.Average))
    with pytest.raises(RuntimeError, match="disagree"):
        model(torch.ones(1, 3)).sum().backward()


@pytest.mark.ranks(2)
def test_ddp_with_powersgd(default_group):
    """Whose hook waits for further collectives within the callback of the first one's future."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

    model = DistributedDataParallel(perceptron())
    model.register_comm_hook(powersgd.PowerSGDState(None, 1, start_powerSGD_iter=2), powersgd.powerSGD_hook)
    trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for parameter in model.parameters():
        theirs = parameter.detach().clone()
        dist.broadcast(theirs, 0)
        assert theirs.equal(parameter)


@pytest.mark.ranks(2)
def test_ddp_unused_parameters_and_no_sync(default_group):
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.halves = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.halves[dist.get_rank()](inputs)

    torch.manual_seed(0)
    model = DistributedDataParallel(Halves(), find_unused_parameters=True)
    with model.no_sync():
        model(torch.ones(1, 3)).sum().backward()
    model(torch.ones(1, 3)).sum().backward()
    for half in model.module.halves:
        assert half.weight.grad.tolist() == [[1.0] * 3]  # twice one, over two ranks


@pytest.mark.ranks(4)
def test_fsdp_on_a_mesh_of_two_dimensions(default_group):
    """Replicated over two, sharded over two: the same as one process on everybody's data."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(5)
    reference = perceptron()
    model = copy.deepcopy(reference)
    fully_shard(model, mesh=mesh)
    data = torch.randn(4, 8, 12)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, reference)]
    for _ in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(data[dist.get_rank()]).square().mean().backward()
        reference(data).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert_close([p.full_tensor().detach() for p in model.parameters()], [p.detach() for p in reference.parameters()])


@pytest.mark.ranks(2, 4)
def test_dtensor(default_group):
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(1)
    whole = torch.randn(2 * size + 1, 3 * size)  # rows that do not divide evenly
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    assert rows.to_local().equal(whole.chunk(size)[dist.get_rank()] if size == 2 else rows.to_local())
    for target in (Shard(1), Replicate(), Shard(0)):
        rows = rows.redistribute(mesh, [target])
        assert rows.full_tensor().equal(whole)
    torch.testing.assert_close(rows.sum().full_tensor(), whole.sum())
    assert (rows == whole.max()).any().full_tensor() and not (rows > whole.max()).any().full_tensor()
    columns = distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    torch.testing.assert_close((rows @ columns).full_tensor(), whole @ whole.t())


@pytest.mark.ranks(2, 4)
def test_tensor_parallel(default_group):
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(2)
    reference = nn.Sequential(nn.Linear(6, 4 * size), nn.ReLU(), nn.Linear(4 * size, 5))
    model = parallelize_module(copy.deepcopy(reference), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs = torch.randn(7, 6)
    outputs, expected = model(inputs), reference(inputs)
    torch.testing.assert_close(outputs, expected)
    outputs.square().sum().backward()
    expected.square().sum().backward()
    assert_close([p.grad.full_tensor() for p in model.parameters()], [p.grad for p in reference.parameters()])


@pytest.mark.ranks(2, 4)
def test_functional_collectives(default_group):
    rank, size, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    own = torch.full((size, 2), float(rank))
    by_rank = torch.arange(float(size))[:, None].expand(size, 2)
    for result, expected in (
        (functional.all_reduce(own, "sum", group), torch.full((size, 2), size * (size - 1) / 2)),
        (functional.all_gather_tensor(own[:1], 0, group), by_rank),
        (functional.reduce_scatter_tensor(by_rank.contiguous(), "avg", 0, group), by_rank[rank : rank + 1]),
        (functional.all_to_all_single(own, None, None, group), by_rank),
        (functional.broadcast(own, size - 1, group), torch.full((size, 2), size - 1.0)),
    ):
        assert (result + 0).equal(expected)
    several = functional.all_reduce_coalesced([own, own[0]], "max", group)
    assert [(tensor + 0).max().item() for tensor in several] == [size - 1] * 2


@pytest.mark.ranks(2)
def test_compiled_functional_collective(default_group):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def doubled(tensor: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(tensor, "sum", dist.group.WORLD) * 2

    assert doubled(torch.ones(3)).tolist() == [2.0 * dist.get_world_size()] * 3


@pytest.mark.ranks(2)
@pytest.mark.parametrize("how", ["save", "async_save"])
def test_checkpoint_of_a_sharded_model(default_group, tmp_path, how):
    from torch.distributed import checkpoint

    folder = [str(tmp_path)]
    dist.broadcast_object_list(folder, 0)
    torch.manual_seed(3)
    model = with_fsdp(perceptron)
    saved = {name: value.full_tensor().clone() for name, value in model.state_dict().items()}
    saving = getattr(checkpoint, how)(model.state_dict(), checkpoint_id=folder[0])
    if how == "async_save":
        saving.result()
        dist.barrier()  # rank 0 has written its metadata
    other = fully_shard(perceptron())
    state = other.state_dict()
    checkpoint.load(state, checkpoint_id=folder[0])
    other.load_state_dict(state)
    assert all(value.full_tensor().equal(saved[name]) for name, value in other.state_dict().items())
    dist.barrier()  # rank 0's folder stays until all have read it


@pytest.mark.ranks(2)
def test_a_sharded_model_takes_over_the_state_of_rank_0(default_group):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    torch.manual_seed(dist.get_rank())
    whole = perceptron().state_dict()
    expected = hvd.broadcast_object(whole)
    model = with_fsdp(perceptron)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, dict(whole) if dist.get_rank() == 0 else {}, options=options)
    assert all(value.full_tensor().equal(expected[name]) for name, value in model.state_dict().items())


@pytest.mark.ranks(2)
@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
def test_sparse_tensors_are_refused_before_anything_is_sent(default_group, layout):
    dense = torch.eye(2)
    sparse = getattr(dense, layout)()
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(sparse),
        "reduce": lambda: dist.reduce(sparse, 0),
        "broadcast": lambda: dist.broadcast(sparse, 0),
        "all_gather": lambda: dist.all_gather([dense, dense.clone()], sparse),
        "all_gather into": lambda: dist.all_gather([sparse, sparse.clone()], dense),
        "reduce_scatter": lambda: dist.reduce_scatter(dense.clone(), [sparse, sparse]),
        "reduce_scatter into": lambda: dist.reduce_scatter(sparse, [dense, dense]),
        "all_to_all": lambda: dist.all_to_all([dense, dense.clone()], [sparse, sparse]),
        "all_to_all into": lambda: dist.all_to_all([sparse, sparse.clone()], [dense, dense]),
        "send": lambda: dist.send(sparse, 1 - hvd.rank()),
        "recv": lambda: dist.recv(sparse, 1 - hvd.rank()),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"not supported: use .*to_dense"):
            call()
            pytest.fail(f"{name} has not refused it")
    dist.all_reduce(dense)
    assert torch.equal(dense, 2 * torch.eye(2))


@pytest.mark.ranks(2)
def test_torch_and_hvd_must_see_the_same_job():
    with pytest.raises(ValueError, match=rf"rank {hvd.rank()} of 7, hvd for rank {hvd.rank()} of 2"):
        dist.init_process_group("hvd", init_method="hvd://", rank=hvd.rank(), world_size=7)
    with pytest.raises(ValueError, match=r"rank 0 of 1, hvd for rank . of 2"):
        dist.init_process_group("hvd", store=dist.HashStore(), rank=0, world_size=1)
    dist.init_process_group("hvd", init_method="hvd://")
    dist.barrier()
    dist.destroy_process_group()
