"""torch.func: collectives within grad, jacrev and vmap, and gradients of functional models reduced afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import func

import hvd.torch as hvd
from hvd import collectives as arrays

pytestmark = pytest.mark.ranks(2)

COLLECTIVES = {
    "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum),
    "grouped_allreduce": lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1],
    "allgather": hvd.allgather,
    "grouped_allgather": lambda x: hvd.grouped_allgather([x])[0],
    "broadcast": lambda x: hvd.broadcast(x, 1),
    "alltoall": hvd.alltoall,
    "alltoall with splits": lambda x: hvd.alltoall(x, [1, 3])[0],
    "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum),
    "grouped_reducescatter": lambda x: hvd.grouped_reducescatter([x], op=hvd.Sum)[0],
}


def gradient(loss, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(loss(x), x)[0]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_grad_and_vmap(name):
    collective = COLLECTIVES[name]

    def loss(x: torch.Tensor) -> torch.Tensor:
        return collective(x).square().sum()

    examples = torch.arange(12.0).reshape(3, 4) * (hvd.rank() + 1)
    gradients = torch.stack([gradient(loss, example) for example in examples])
    assert func.grad(loss)(examples[1]).equal(gradients[1])
    assert func.vmap(collective)(examples).equal(torch.stack([collective(example) for example in examples]))
    assert func.vmap(collective, in_dims=1)(examples.t()).equal(func.vmap(collective)(examples))
    assert func.vmap(func.grad(loss))(examples).equal(gradients)
    assert func.grad(lambda x: func.vmap(loss)(x).sum())(examples).equal(gradients)
    assert func.jacrev(lambda x: 2 * collective(x).sum(0, keepdim=True))(examples[1]).equal(
        gradient(lambda x: 2 * collective(x).sum(), examples[1]).unsqueeze(0)
    )


def test_what_transforms_do_not_support():
    given = torch.ones(3, 2)
    for call in (
        lambda x: hvd.allreduce_(x * 2),
        lambda x: hvd.synchronize(hvd.allreduce_async(x)),
        lambda x: hvd.broadcast_(x * 2, 0),
        arrays.allreduce,
    ):
        with pytest.raises(ValueError, match=r"of torch\.func only waiting collectives with new results"):
            func.vmap(call)(given)
    with pytest.raises(NotImplementedError, match="adaptive sum of each example"):
        func.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum))(given)
    with pytest.raises(ValueError, match="at least one dimension"):
        func.vmap(hvd.allgather)(given[0])
    with pytest.raises(NotImplementedError, match="jvp"):
        func.jvp(hvd.allreduce, (given,), (given,))
    assert hvd.allreduce(given).equal(given)


def test_gradients_of_a_functional_model():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    batch = torch.randn(6, 3, dtype=torch.float64)

    def loss(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        return func.functional_call(model, parameters, rows).square().mean()

    own = func.grad(loss)(parameters, batch[3 * hvd.rank() :][:3])
    reduced = dict(zip(own, hvd.grouped_allreduce(list(own.values()))))
    torch.testing.assert_close(reduced, func.grad(loss)(parameters, batch))
    per_example = func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, batch[3 * hvd.rank() :][:3].unsqueeze(1))
    largest = hvd.allreduce(per_example["0.bias"].abs().amax(), op=hvd.Max)
    everything = func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, batch.unsqueeze(1))
    torch.testing.assert_close(largest, everything["0.bias"].abs().amax())
