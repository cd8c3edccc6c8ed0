"""Trains with parameter servers and by allreduce, and compares: two workers, any number of servers."""

import hvd


def descend(rows, gradients, state, learning_rate):  # type: ignore[no-untyped-def]
    rows -= learning_rate * gradients
    state += 1


hvd.ps.register_update("descend", descend)
hvd.init()  # servers stay here, and import no torch

import torch  # noqa: E402

import hvd.torch as hvd  # noqa: E402

STEPS = 200


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.Tanh(), torch.nn.Linear(60, 7)).float()


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(STEPS):
        inputs = torch.randn(16, 40, generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs[:, :7].sin()).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def differing(servers: hvd.ps.ParameterServers, momentum: float) -> tuple[int, int]:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    names = [(f"{momentum}.{name}", parameter) for name, parameter in model.named_parameters()]
    reduced = train(model, hvd.DistributedOptimizer(optimizer, named_parameters=names))
    model = make_model()
    if hvd.rank() != 0:
        torch.nn.init.zeros_(model[0].weight)  # rank 0's values count
    served = hvd.ps.DenseOptimizer(
        model.named_parameters(), servers, hvd.ps.SGD(0.1, momentum), "synchronous", f"net {momentum}"
    )
    return int((train(model, served) != reduced).sum()), len(reduced)


def train_hybrid(servers: hvd.ps.ParameterServers) -> float:
    """Embeddings on servers, synchronously, and the layer above them by allreduce. Each key has a sign."""
    table = servers.table("rows", 8, hvd.ps.SGD(20.0), hvd.ps.Normal(0.0, 0.3, seed=1), consistency="synchronous")
    embedding, layer = hvd.ps.Embedding(table), torch.nn.Linear(8, 1)
    hvd.broadcast_parameters(layer.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=[(f"hybrid.{name}", parameter) for name, parameter in layer.named_parameters()]
    )
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(STEPS):
        keys = torch.randint(200, (64,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.soft_margin_loss(layer(embedding(keys)).squeeze(1), 1.0 - 2 * (keys % 2))
        loss.backward()
        optimizer.step()
        servers.clock()
    rows, weights = table.pull(torch.arange(200)).flatten(), torch.cat([layer.weight[0], layer.bias]).detach()
    for values in (rows, weights):
        assert torch.equal(hvd.allreduce(values, op=hvd.Max), values), "the ranks' values have come apart"
    return loss.item()


def descend_by_own_update(servers: hvd.ps.ParameterServers) -> None:
    table = servers.table("own", 4, hvd.ps.Custom("descend", learning_rate=0.5, state=1))
    keys = torch.arange(100 * hvd.rank(), 100 * hvd.rank() + 100)
    for _ in range(3):
        table.push(keys, torch.ones(100, 4))
    assert torch.equal(table.pull(keys), torch.full((100, 4), -1.5))


def main() -> None:
    torch.set_num_threads(1)
    with hvd.ps.connect() as servers:
        assert servers.count == 2
        descend_by_own_update(servers)
        plain, values = differing(servers, 0.0)
        momentum, _ = differing(servers, 0.9)
        print(
            f"rank {hvd.rank()}: {plain} of {values:,} values differ after {STEPS} steps, "
            f"{momentum or 'none'} by momentum",
            flush=True,
        )
        print(f"rank {hvd.rank()}: hybrid, loss {train_hybrid(servers):.3f}", flush=True)


main()
