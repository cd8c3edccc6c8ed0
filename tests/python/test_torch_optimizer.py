"""DistributedOptimizer: the same steps as one process makes with all ranks' data."""

from __future__ import annotations

import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn

import hvd.torch as hvd

pytestmark = pytest.mark.ranks

STEPS, PER_RANK = 4, 6


def make_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def batch(step: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, 5, generator=generator).double(), torch.randn(rows, 2, generator=generator).double()


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (model(inputs) - targets).square().mean()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def trained_alone(kind: str) -> list[torch.Tensor]:
    """Parameters after steps on the batches of all ranks together."""
    model = make_model()
    optimizer = OPTIMIZERS[kind](model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, *batch(step, PER_RANK * hvd.size())).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def trained_together(kind: str, passes: int = 1, **options) -> list[torch.Tensor]:
    """Parameters after steps in which each rank has its share of the batches, in so many backward passes."""
    model = make_model()
    optimizer = OPTIMIZERS[kind](model.parameters())
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=passes, **options
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs, targets = (t[hvd.rank() :: hvd.size()] for t in batch(step, PER_RANK * hvd.size()))
        for i, t in zip(inputs.chunk(passes), targets.chunk(passes)):
            (loss_of(model, i, t) / passes).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def groups_of_two(model: nn.Module) -> list[list[nn.Parameter]]:
    parameters = list(model.parameters())
    return [parameters[0:2], parameters[3:5]]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"passes": 2},
        {"passes": 3, "num_groups": 2},
        {"gradient_predivide_factor": 4.0},
        {"num_groups": 1},
        {"num_groups": 3},
        {"num_groups": 100},
        {"sparse_as_dense": True},
    ],
    ids=str,
)
def test_same_as_one_process(kind, options):
    torch.testing.assert_close(trained_together(kind, **options), trained_alone(kind), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name, tolerance", [("fp16", 2e-3), ("bf16", 2e-2)])
def test_compression_is_close_to_one_process(name, tolerance):
    result = trained_together("sgd", compression=getattr(hvd.Compression, name))
    torch.testing.assert_close(result, trained_alone("sgd"), rtol=tolerance, atol=tolerance)
    assert result[0].dtype is torch.float64


def one_step(optimizer: torch.optim.Optimizer, model: nn.Module, scale: float = 1.0) -> None:
    optimizer.zero_grad()
    (scale * loss_of(model, *batch(hvd.rank(), PER_RANK))).backward()
    optimizer.step()


def same_everywhere(model: nn.Module) -> bool:
    return len({repr([p.tolist() for p in model.parameters()]) for model in hvd.allgather_object(model)}) == 1


def test_groups_given_as_lists():
    models = [make_model(), make_model()]
    groups = groups_of_two(models[1])
    for model, options in zip(models, ({}, {"groups": groups})):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        one_step(hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options), model)
    torch.testing.assert_close(list(models[0].parameters()), list(models[1].parameters()), rtol=0, atol=0)


def test_number_of_groups_under_its_newer_name():
    torch.testing.assert_close(trained_together("sgd", groups=2), trained_alone("sgd"))


def test_it_cannot_be_copied():
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(make_model().parameters(), lr=0.1))
    with pytest.raises(TypeError, match=r"state_dict\(\)"):
        deepcopy(optimizer)


def test_an_unknown_operation_is_refused():
    with pytest.raises(ValueError, match="op is 77"):
        hvd.DistributedOptimizer(torch.optim.SGD(make_model().parameters(), lr=0.1), op=77)


def test_sum_of_gradients():
    model, expected = make_model(), make_model()
    one_step(hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum), model)
    one_step(hvd.DistributedOptimizer(torch.optim.SGD(expected.parameters(), lr=0.1)), expected, scale=hvd.size())
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()))


def test_two_optimizers_over_parameters_of_the_same_names():
    models = [make_model(1), make_model(2)]
    alone = deepcopy(models)
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), wait_in_backward=False
        )
        for model in models
    ]
    # Both models have gradients before the first step, and the ranks compute them in different orders.
    for index in (0, 1) if hvd.rank() % 2 == 0 else (1, 0):
        loss_of(models[index], *batch(0, PER_RANK)).backward()
    for optimizer in optimizers:
        optimizer.step()
    for model, expected in zip(models, alone):
        optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
        loss_of(expected, *batch(0, PER_RANK)).backward()
        optimizer.step()
        torch.testing.assert_close(list(model.parameters()), list(expected.parameters()), rtol=1e-10, atol=1e-12)


def test_it_is_an_optimizer_of_the_same_class():
    model = make_model()
    plain = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.8, 0.9))
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert isinstance(optimizer, torch.optim.Adam) and type(optimizer).__name__ == "Adam"
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9) and optimizer.defaults == plain.defaults
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    one_step(optimizer, model)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    optimizer.load_state_dict(optimizer.state_dict())
    one_step(optimizer, model)
    assert len(optimizer.state) == 6 and same_everywhere(model)


def test_step_hooks_run_once():
    model, calls = make_model(), []
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    optimizer.load_state_dict(optimizer.state_dict())
    one_step(optimizer, model)
    assert len(calls) == 1


def test_synchronize_to_clip_gradients():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    loss_of(model, *batch(hvd.rank(), PER_RANK)).backward()
    optimizer.synchronize()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    assert len(set(hvd.allgather_object(norm.item()))) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with optimizer.skip_synchronize():
            optimizer.step()
        one_step(optimizer, model)
    assert same_everywhere(model)


def test_step_after_synchronize_warns():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    loss_of(model, *batch(0, PER_RANK)).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match=r"optimizer\.step\(\) called without optimizer\.skip_synchronize\(\)"):
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"num_groups": 1}], ids=str)
@pytest.mark.parametrize("by", ["optimizer", "model"])
def test_reduced_gradients_may_be_dropped_instead_of_a_step(by, options):
    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options
    )
    loss_of(model, *batch(hvd.rank(), PER_RANK)).backward()
    {"optimizer": optimizer, "model": model}[by].zero_grad()
    loss_of(model, *batch(hvd.rank() + 7, PER_RANK)).backward()
    optimizer.step()
    plain = hvd.DistributedOptimizer(torch.optim.SGD(expected.parameters(), lr=0.1))
    loss_of(expected, *batch(hvd.rank() + 7, PER_RANK)).backward()
    plain.step()
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()), rtol=0, atol=0)


def test_gradients_must_not_be_cleared_while_a_group_waits():
    model = make_model()
    parameters = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), groups=[parameters], wait_in_backward=False
    )
    model[0](torch.ones(1, 5).double()).sum().backward()  # reaches two of six
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="zero_grad"):
            optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.ranks(2)
def test_a_gradient_must_not_be_dropped_while_it_is_reduced():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), wait_in_backward=False
    )
    loss_of(model, *batch(0, PER_RANK)).backward()
    model[0].bias.grad = None
    with pytest.raises(RuntimeError, match=r"the gradient of \S*0\.bias was set to None while it was being reduced: "):
        optimizer.step()


def test_a_backward_pass_too_many():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    loss_of(model, *batch(0, PER_RANK)).backward()
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            loss_of(model, *batch(0, PER_RANK)).backward()
    optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    for _ in range(2):
        loss_of(model, *batch(0, PER_RANK)).backward()
    optimizer.step()


def test_a_parameter_that_some_ranks_do_not_use():
    model = make_model()
    extra = nn.Linear(5, 2).double()
    hvd.broadcast_parameters(extra.state_dict(), root_rank=0)
    both = nn.ModuleDict({"model": model, "extra": extra})
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(both.parameters(), lr=0.1), both.named_parameters())
    inputs, targets = batch(0, PER_RANK)
    output = model(inputs) + (extra(inputs) if hvd.rank() == 0 else 0)
    (output - targets).square().mean().backward()
    optimizer.step()
    assert same_everywhere(both)


def test_frozen_parameters_and_other_strides():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)).to(memory_format=torch.channels_last)
    model[0].bias.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    images = torch.full((2, 3, 8, 8), hvd.rank() + 1.0).to(memory_format=torch.channels_last)
    model(images).square().mean().backward()
    optimizer.step()
    assert same_everywhere(model)


def test_parameters_that_come_later_take_part():
    model, late = make_model(), nn.Linear(2, 2).double()
    with torch.no_grad():
        late.weight.fill_(0.5), late.bias.fill_(0.5)
    model[0].weight.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    one_step(optimizer, model)
    model[0].weight.requires_grad_(True)
    optimizer.add_param_group({"params": late.parameters(), "lr": 0.2})
    both = nn.Sequential(model, late)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(both, *batch(hvd.rank(), PER_RANK)).backward()
        optimizer.step()
    assert same_everywhere(both)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
@pytest.mark.parametrize("how", ["broadcast", "load"])
def test_a_scheduler_made_before_wrapping_stays_in_charge(how, op):
    model = make_model()
    base = torch.optim.SGD(model.parameters(), lr=1.0 + hvd.rank(), momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(base, step_size=1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(base, model.named_parameters(), op=op)
    if how == "broadcast":
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    else:
        optimizer.load_state_dict(torch.optim.SGD(make_model().parameters(), lr=1.0, momentum=0.9).state_dict())
    one_step(optimizer, model)
    before = optimizer.param_groups[0]["lr"]
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == before / 2
    assert hvd.allgather_object(optimizer.param_groups[0]["lr"]) == [before / 2] * hvd.size()


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_schedulers_within_one_that_was_made_before_wrapping_see_the_steps(op):
    model = make_model()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = [torch.optim.lr_scheduler.StepLR(base, step_size=1) for _ in range(2)]
    scheduler = torch.optim.lr_scheduler.SequentialLR(base, parts, milestones=[1])
    optimizer = hvd.DistributedOptimizer(base, model.named_parameters(), op=op)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            one_step(optimizer, model)
            scheduler.step()


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_a_scheduler_given_the_optimizer_later_sees_its_steps(op):
    model = make_model()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(base, step_size=1)
    scheduler.optimizer = optimizer = hvd.DistributedOptimizer(base, model.named_parameters(), op=op)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one_step(optimizer, model)
        scheduler.step()


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_released_parameters_go_to_another_optimizer(op):
    model = make_model()
    first = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op)
    one_step(first, model)
    first.release()
    second = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op)
    one_step(second, model)
    one_step(second, model)
    assert same_everywhere(model)


def test_gradients_must_not_be_cleared_between_passes():
    model = make_model()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(base, model.named_parameters(), backward_passes_per_step=2)
    loss_of(model, *batch(0, PER_RANK)).backward()
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="zero_grad"):
            optimizer.zero_grad()
    loss_of(model, *batch(1, PER_RANK)).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_sparse_gradients():
    def step(**options) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Embedding(10, 3, sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
        model(torch.tensor([hvd.rank(), 7])).sum().backward()
        optimizer.step()
        return model

    assert same_everywhere(step(sparse_as_dense=True))
    torch.testing.assert_close(list(step().parameters()), list(step(sparse_as_dense=True).parameters()))


def test_closures():
    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, *batch(hvd.rank(), PER_RANK))
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    one_step(hvd.DistributedOptimizer(torch.optim.SGD(expected.parameters(), lr=0.1)), expected)
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()), rtol=0, atol=0)


def test_gradients_of_a_dropped_optimizer_stay_local():
    model = make_model()
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for _ in range(3):
        loss_of(model, *batch(hvd.rank(), PER_RANK)).backward()


@pytest.mark.parametrize(
    "options, text",
    [
        ({"named_parameters": [("a", 1)]}, "leaves out"),
        ({"named_parameters": "duplicates"}, "differ"),
        ({"named_parameters": [1, 2]}, "pairs"),
        ({"groups": [1, 2]}, "lists of parameters"),
        ({"groups": -1}, "num_groups"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "predivide"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
        ({"num_groups": -1}, "num_groups"),
        ({"gradient_predivide_factor": 0.0}, "positive"),
        ({"num_groups": 1, "groups": []}, "exclude"),
    ],
    ids=str,
)
def test_wrong_arguments(options, text):
    model = make_model()
    if options.get("named_parameters") == "duplicates":
        options = {"named_parameters": [("same", parameter) for parameter in model.parameters()]}
    with pytest.raises(ValueError, match=text):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)


def test_wrapping_twice():
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(make_model().parameters(), lr=0.1))
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)


@pytest.mark.ranks(2)
def test_on_a_process_set():
    process_set = hvd.add_process_set([0])
    model = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(float(hvd.rank()))
    if process_set.included():
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0),
            named_parameters=model.named_parameters(),
            process_set=process_set,
        )
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        assert model.weight.tolist() == [[-20.0, -20.0]]
    assert hvd.remove_process_set(process_set)

    # Ranks that are not in the set have made an optimizer less.
    shared = torch.nn.Linear(1, 1, bias=False)
    hvd.broadcast_parameters(shared.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(shared.parameters(), lr=1.0), named_parameters=shared.named_parameters()
    )
    before = shared.weight.item()
    shared(torch.ones(1, 1) + hvd.rank()).sum().backward()
    optimizer.step()
    assert shared.weight.item() == pytest.approx(before - 1.5)
