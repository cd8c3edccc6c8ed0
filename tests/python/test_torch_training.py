"""DistributedOptimizer in training loops as DDP users write them: clipping, mixed precision, no_sync, sparse gradients,
gradients in shared memory, several optimizers. All against one process with all ranks' data."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import hvd.torch as hvd
from hvd import _native
from hvd.torch import gradients

pytestmark = pytest.mark.ranks

PER_RANK = 6


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def batch(step: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, 5, generator=generator).double(), torch.randn(rows, 2, generator=generator).double()


def rows_of(step: int, of_all: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of all ranks, or of this one."""
    inputs, targets = batch(step, PER_RANK * hvd.size())
    return (inputs, targets) if of_all else (inputs[hvd.rank() :: hvd.size()], targets[hvd.rank() :: hvd.size()])


def loss_of(model: nn.Module, step: int, of_all: bool) -> torch.Tensor:
    inputs, targets = rows_of(step, of_all)
    return (model(inputs) - targets).square().mean()


def sgd(parameters, **options) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, **options)


def assert_same_training(train, make=make_model, make_optimizer=sgd, **options) -> None:
    """`train(model, optimizer, of_all)` leads to the same parameters on the ranks' shares as on everything."""
    together, alone = make(), make()
    optimizer = make_optimizer(together.parameters())
    train(together, hvd.DistributedOptimizer(optimizer, together.named_parameters(), **options), False)
    train(alone, make_optimizer(alone.parameters()), True)
    for parameter, expected in zip(together.parameters(), alone.parameters()):
        torch.testing.assert_close(parameter, expected, rtol=1e-9, atol=1e-11)


VARIANTS = [{}, {"gradient_as_bucket_view": True}, {"num_groups": 2}, {"gradient_as_bucket_view": True, "groups": 1}]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_clipping(options):
    def train(model, optimizer, of_all):
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step, of_all).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()

    assert_same_training(train, **options)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_clipping_what_was_frozen(options):
    """Also in the first step after it was unfrozen all ranks find the same norm."""

    def train(model, optimizer, of_all):
        for step in range(4):
            model[0].requires_grad_(step > 1)
            optimizer.zero_grad()
            loss_of(model, step, of_all).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()

    def make() -> nn.Module:
        model = make_model()
        model[0].requires_grad_(False)
        return model

    assert_same_training(train, make=make, **options)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_grad_scaler(options, fused):
    """One rank's gradients overflow in step 1: no rank makes that step, and all lower their scales."""

    def train(model, optimizer, of_all):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=2)
        for step in range(5):
            optimizer.zero_grad()
            loss = loss_of(model, step, of_all)
            overflows = step == 1 and (of_all or hvd.rank() == hvd.size() - 1)
            scaler.scale(loss * (float("inf") if overflows else 1)).backward()
            if step > 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 2.0**4

    # A fused step divides by the scale itself.
    assert_same_training(train, make_optimizer=lambda parameters: sgd(parameters, fused=fused), **options)


# On a CPU capturable=True is for compiled steps only: test_torch_compiled.py has it.
MODES = {
    "sgd fused": lambda p: sgd(p, fused=True),
    "sgd foreach": lambda p: sgd(p, foreach=True),
    "adam fused, its rate a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), fused=True, amsgrad=True),
    "adam foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adagrad fused": lambda p: torch.optim.Adagrad(p, lr=0.01, fused=True),
    "rmsprop foreach": lambda p: torch.optim.RMSprop(p, lr=0.01, foreach=True, centered=True),
    "maximize": lambda p: sgd(p, foreach=True, maximize=True),
}


@pytest.mark.parametrize("options", VARIANTS[:3], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_optimizers(mode, options):
    def train(model, optimizer, of_all):
        for step in range(4):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(model, step, of_all).backward()
            optimizer.step()
            if step == 1:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    assert_same_training(train, make_optimizer=MODES[mode], **options)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradients_are_collected_or_not_as_each_rank_likes(options, monkeypatch):
    steps = iter(range(100))
    monkeypatch.setattr(gradients, "_computes_on_all_cores", lambda: (next(steps) + hvd.rank()) % 3 != 0)
    runs = []
    run_all = _native.run_all
    monkeypatch.setattr(_native, "run_all", lambda calls: runs.append(len(calls)) or run_all(calls))

    def train(model, optimizer, of_all):
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step, of_all).backward()
            optimizer.step()

    assert_same_training(train, **options)
    groups = options.get("num_groups", options.get("groups"))
    assert runs == [groups or 4] * (4 if hvd.size() > 1 else 0)  # what has been collected is handed over in one call


@pytest.mark.parametrize("collects", [True, False])
def test_optimizers_of_one_backward_pass(collects, monkeypatch):
    """The ranks reach the gradients of the two in different orders."""
    monkeypatch.setattr(gradients, "_computes_on_all_cores", lambda: collects)
    models = [make_model(), make_model()]
    optimizers = [hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters()) for model in models]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses = [loss_of(model, step, False) for model in models]
        order = losses if hvd.rank() % 2 == 0 else losses[::-1]
        (order[0] + 0.5 * order[1]).backward() if hvd.rank() % 2 == 0 else (0.5 * order[0] + order[1]).backward()
        for model in models:
            assert (
                len({repr(found) for found in hvd.allgather_object([p.grad.tolist() for p in model.parameters()])}) == 1
            )
        for optimizer in optimizers:
            optimizer.step()


def test_optimizers_of_one_backward_pass_in_several_process_sets(monkeypatch):
    monkeypatch.setattr(gradients, "_computes_on_all_cores", lambda: True)
    first = hvd.add_process_set([0]) if hvd.size() > 1 else hvd.global_process_set
    models = [make_model(), make_model()]
    optimizers = [
        hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), process_set=process_set)
        for model, process_set in zip(models, (first, hvd.global_process_set))
    ]
    sum(loss_of(model, 0, False) for model in models).backward()
    for optimizer in optimizers:
        optimizer.step()
    same = hvd.allgather_object([parameter.tolist() for parameter in models[1].parameters()])
    assert all(found == same[0] for found in same)
    if hvd.size() > 1:
        assert hvd.remove_process_set(first)


@pytest.mark.parametrize("options", [*VARIANTS, {"wait_in_backward": False}], ids=str)
def test_parameters_that_change_requires_grad(options):
    """Frozen at first, unfrozen, frozen with a gradient in place, unfrozen again; the same on all ranks."""

    def train(model, optimizer, of_all):
        first, last = model[0], model[-1]
        for step, (trains_first, trains_last) in enumerate([(0, 1), (1, 1), (1, 0), (0, 1), (1, 1), (1, 0), (1, 1)]):
            first.requires_grad_(bool(trains_first)), last.requires_grad_(bool(trains_last))
            if step == 4:
                scale = torch.nn.Parameter(torch.ones((), dtype=torch.float64))
                optimizer.add_param_group({"params": [scale], "lr": 0.05})
            optimizer.zero_grad()
            (loss_of(model, step, of_all) * (scale if step >= 4 else 1)).backward()
            optimizer.step()
        if not of_all:
            assert len(set(hvd.allgather_object(scale.item()))) == 1

    def make() -> nn.Module:
        model = make_model()
        model[0].requires_grad_(False)
        return model

    assert_same_training(train, make=make, **options)


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"backward_passes_per_step": 2}], ids=str)
def test_no_sync(options):
    passes = options.get("backward_passes_per_step", 1)

    def train(model, optimizer, of_all):
        for step in range(3):
            optimizer.zero_grad()
            if of_all:
                sum(loss_of(model, 10 * step + part, True) for part in range(2 + passes)).backward()
            else:
                with optimizer.no_sync():
                    for part in range(2):
                        loss_of(model, 10 * step + part, False).backward()
                for part in range(passes):
                    loss_of(model, 10 * step + 2 + part, False).backward()
            optimizer.step()

    assert_same_training(train, **options)


def test_gradients_within_no_sync_are_local():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    with optimizer.no_sync():
        loss_of(model, 0, False).backward()
    gradients = hvd.allgather(model[0].weight.grad.unsqueeze(0))
    if hvd.size() > 1:
        assert not torch.equal(gradients[0], gradients[1])
    optimizer.zero_grad()
    loss_of(model, 0, False).backward()
    gradients = hvd.allgather(model[0].weight.grad.unsqueeze(0))
    assert all(torch.equal(gradients[0], gradient) for gradient in gradients)
    optimizer.step()


def test_an_incomplete_last_window():
    def train(model, optimizer, of_all):
        loss_of(model, 0, of_all).backward()
        loss_of(model, 1, of_all).backward()
        optimizer.step()  # of three
        optimizer.zero_grad()
        for step in range(3):
            loss_of(model, step, of_all).backward()
        optimizer.step()

    assert_same_training(train, backward_passes_per_step=3)


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=str)
def test_a_layer_that_some_passes_of_a_window_leave_out(options):
    """Gradients are clipped before each step, and once they are dropped."""

    def train(model, optimizer, of_all):
        for step in range(4):
            optimizer.zero_grad()
            for number in range(2):
                for rank in range(hvd.size()) if of_all else [hvd.rank()]:
                    inputs, targets = (t[rank :: hvd.size()] for t in batch(2 * step + number, PER_RANK * hvd.size()))
                    hidden = model[0](inputs)
                    if number == 1 or (step != 2 and rank != step % hvd.size()):
                        hidden = hidden + model[1](hidden)
                    loss = (model[2](hidden) - targets).square().mean()
                    (loss / hvd.size() if of_all else loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            if step != 2:  # of which all ranks leave the layer out
                optimizer.step()

    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 2)]).double()

    assert_same_training(train, make, backward_passes_per_step=2, **options)


@pytest.mark.parametrize("wait", [True, False])
def test_each_rank_misses_other_parameters(wait):
    """Experts, of which each rank uses one: gradients are clipped, and a loss is averaged, before the step."""

    def experts():
        return nn.ModuleList(make_model() for _ in range(hvd.size() + 1))  # nobody uses the last one

    model, alone = experts(), experts()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), wait_in_backward=wait
    )
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        expert = (hvd.rank() + step // 2) % hvd.size()
        loss = loss_of(model[expert], step, False)
        loss.backward()
        hvd.allreduce(loss.detach(), name="loss")
        if not wait:
            optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.zero_grad()
        for rank in range(hvd.size()):
            inputs, targets = (t[rank :: hvd.size()] for t in batch(step, PER_RANK * hvd.size()))
            ((alone[(rank + step // 2) % hvd.size()](inputs) - targets).square().mean() / hvd.size()).backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.05)
        plain.step()
    torch.testing.assert_close(list(model.parameters()), list(alone.parameters()), rtol=1e-9, atol=1e-11)


def test_passes_over_different_parts():
    def train(model, optimizer, of_all):
        for step in range(3):
            optimizer.zero_grad()
            inputs, targets = rows_of(step, of_all)
            (model["a"](inputs) - targets).square().mean().backward()
            (model["b"](inputs) + targets).square().mean().backward()
            optimizer.step()

    assert_same_training(train, lambda: nn.ModuleDict({"a": make_model(), "b": make_model(), "unused": nn.Tanh()}))


def test_ranks_may_run_the_passes_of_a_step_in_other_orders_if_they_do_not_wait():
    def train(model, optimizer, of_all):
        for step in range(3):
            optimizer.zero_grad()
            inputs, targets = rows_of(step, of_all)
            for part in "ab" if (hvd.rank() + step) % 2 == 0 else "ba":
                (model[part](inputs) - targets).square().mean().backward()
            optimizer.step()

    assert_same_training(train, lambda: nn.ModuleDict({"a": make_model(), "b": make_model()}), wait_in_backward=False)


@pytest.mark.parametrize("has_all", [False, True])
def test_a_group_over_the_parts_of_several_passes(has_all):
    parts = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)})
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parts.parameters(), lr=0.1),
        parts.named_parameters(),
        op=hvd.Sum,
        groups=[list(parts.parameters()) if has_all else [parts["a"].weight, parts["b"].weight]],
    )
    for _ in range(2):
        optimizer.zero_grad()
        for part in parts.values():
            part(torch.ones(1, 2)).sum().backward()
        assert all((parameter.grad == hvd.size()).all() for parameter in parts.parameters())
        optimizer.step()


@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_are_reduced_after_passes_that_complete_no_group(passes):
    """Or else each rank clips its own, and the ranks' parameters differ."""

    def train(model, optimizer, of_all):
        for step in range(3):
            optimizer.zero_grad()
            for number in range(passes):
                for rank in range(hvd.size()) if of_all else [hvd.rank()]:
                    head = model["ab"[(step + number + rank) % 2]]
                    output = head(model["trunk"](torch.full((1, 2), rank + step + 1.0).double()))
                    (output.square().sum() / (hvd.size() if of_all else 1)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    def make():
        torch.manual_seed(0)
        return nn.ModuleDict({name: nn.Linear(2, 2) for name in ("trunk", "a", "b")}).double()

    assert_same_training(train, make, num_groups=1, backward_passes_per_step=passes)


def test_sums_of_parts_that_some_passes_of_a_window_reach():
    parts = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)})
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parts.parameters(), lr=0.1), parts.named_parameters(), op=hvd.Sum, backward_passes_per_step=2
    )
    for _ in range(2):
        optimizer.zero_grad()
        for reached in ("ab", "a", "b"):
            sum(parts[part](torch.ones(1, 2)).sum() for part in reached).backward()
        optimizer.synchronize()
        assert all((parameter.grad == 2 * hvd.size()).all() for parameter in parts.parameters())
        with optimizer.skip_synchronize():
            optimizer.step()


def test_a_dropped_step_whose_passes_left_heads_out():
    """The next step begins with a head that only one pass of the dropped one has used."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(2, 1)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), backward_passes_per_step=2
    )
    for step in range(2):
        for head in (1, 2):
            model[head](model[0](torch.ones(1, 2))).sum().backward()
        if step == 0:
            model.zero_grad()
    optimizer.step()
    values = [parameter.tolist() for parameter in model.parameters()]
    assert hvd.allgather_object(values) == [values] * hvd.size()


def train_adversaries(of_all: bool, freezes: bool) -> nn.Module:
    generator, discriminator = make_model(), nn.Linear(2, 1).double()
    wrapped = (lambda optimizer, _: optimizer) if of_all else hvd.DistributedOptimizer
    optimizers = [
        wrapped(torch.optim.Adam(part.parameters(), lr=0.01), part.named_parameters())
        for part in (generator, discriminator)
    ]
    for step in range(3):
        noise, real = rows_of(step, of_all)
        optimizers[1].zero_grad()
        (discriminator(real).square().mean() - discriminator(generator(noise).detach()).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        discriminator.requires_grad_(not freezes)
        discriminator(generator(noise)).square().mean().backward()
        discriminator.requires_grad_(True)
        optimizers[0].step()
    return nn.ModuleList([generator, discriminator])


@pytest.mark.parametrize("freezes", [False, True], ids=["zeroes", "freezes"])
def test_adversaries(freezes):
    """The discriminator gets gradients in the generator's turn, which nobody wants."""
    torch.testing.assert_close(
        list(train_adversaries(False, freezes).parameters()), list(train_adversaries(True, freezes).parameters())
    )


def test_what_all_ranks_freeze_later_is_left_alone():
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), num_groups=1)
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step, False).backward()
        optimizer.step()
    assert torch.equal(model[0].weight, before) and model[0].weight.grad is None


@pytest.mark.parametrize("set_to_none", [False, True])
def test_gradients_are_views_of_shared_memory(set_to_none):
    model = nn.Sequential(make_model(), nn.Linear(2, 2, dtype=torch.float32).requires_grad_(False))
    before = hvd.arena_usage()["used"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), gradient_as_bucket_view=True)
    addresses = set()
    for step in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(model[0], step, False).backward()
        addresses.add(model[0][0].weight.grad.data_ptr())
        optimizer.step()
    if hvd.size() > 1:
        assert len(addresses) == 1 and hvd.arena_usage()["used"] > before


class Words(nn.Module):
    def __init__(self, number: int, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(number, 5, sparse=sparse, dtype=torch.float64)
        self.linear = nn.Linear(5, 2).double()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.linear(self.embedding(words))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sparse_as_dense": True},
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 2.0},
        {"backward_passes_per_step": 2},
        {"num_groups": 1},
        {"compression": hvd.Compression.fp16},
    ],
    ids=lambda options: ",".join(options) or "default",
)
@pytest.mark.parametrize("number", [100, 4], ids=["few rows", "more rows than the dense tensor has"])
def test_sparse_gradients(number, options):
    words = [torch.tensor([3, rank, 3, (7 * rank + 1) % number]) % number for rank in range(hvd.size())]
    model, expected = Words(number, sparse=True), Words(number, sparse=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    passes, factor = options.get("backward_passes_per_step", 1), 1 if options.get("op") == hvd.Sum else hvd.size()
    for _ in range(4):
        optimizer.zero_grad(), plain.zero_grad()
        for _ in range(passes):
            model(words[hvd.rank()]).square().sum().backward()
            sum(expected(of_rank).square().sum() / factor for of_rank in words).backward()
        assert model.embedding.weight.grad.is_sparse
        optimizer.step(), plain.step()
    tolerance = 5e-2 if "compression" in options else 1e-9
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()), rtol=tolerance, atol=tolerance)
    if hvd.size() > 1 and "sparse_as_dense" not in options:
        travels_dense = any(gradient.travels_dense for gradient in optimizer._gradients._gradients)
        assert travels_dense == (number == 4) or hvd.size() * 3 < number


@pytest.mark.parametrize("options", [{}, {"num_groups": 1}, {"gradient_as_bucket_view": True}], ids=str)
def test_an_optimizer_of_sparse_gradients_has_them_though_they_travel_as_dense_ones(options):
    def trained(**options) -> torch.Tensor:
        embedding = Words(50, sparse=True).embedding
        optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(embedding.parameters(), lr=0.1), **options)
        for step in range(3):
            optimizer.zero_grad()
            if step < 2 or hvd.rank() == 0:
                embedding(torch.tensor([step, 3, hvd.rank() + 10])).square().sum().backward()
            optimizer.step()
        return embedding.weight.detach()

    torch.testing.assert_close(trained(sparse_as_dense=True, **options), trained())


def test_a_sparse_parameter_that_a_rank_does_not_use_later():
    model = Words(50, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(model.embedding.parameters(), lr=0.1))
    for step in range(3):
        optimizer.zero_grad()
        if step == 0 or hvd.rank() == 0:
            model.embedding(torch.tensor([step, hvd.rank() + 10])).sum().backward()
        optimizer.step()
    weights = hvd.allgather(model.embedding.weight.detach().unsqueeze(0))
    assert all(torch.equal(weights[0], weight) for weight in weights)


@pytest.mark.ranks(2, 4)
def test_a_sparse_parameter_that_a_rank_never_used_is_an_error_everywhere():
    model = Words(50, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.embedding.parameters(), lr=0.1))
    with pytest.raises(hvd.HorovodInternalError, match="disagree"):
        if hvd.rank() == 0:
            model.embedding(torch.tensor([1])).sum().backward()
        optimizer.step()


@pytest.mark.ranks(2)
def test_what_steps_have_shown_is_forgotten_in_the_next_job():
    """There ranks may be new, which have not seen it."""
    model = Words(4, sparse=True)
    reducer = (optimizer := hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1)))._gradients

    def step(*words: int) -> tuple[int, bool]:
        """How many gradients are not submitted until a further pass reaches them, and whether a sparse one travels as
        a dense one."""
        optimizer.zero_grad()
        model.embedding(torch.tensor(words)).square().sum().backward()
        known = len(reducer._late), any(gradient.travels_dense for gradient in reducer._gradients)
        model.linear(torch.ones(1, 5).double()).sum().backward()
        optimizer.step()
        return known

    step(0, 1, 2, 3)
    assert step(3) == (2, True)
    hvd.shutdown()
    hvd.init()
    assert step(3) == (0, False)
    step(0, 1, 2, 3)
    assert step(3) == (2, True)


@pytest.mark.ranks(2, 4)
def test_adasum_adds_up_steps():
    """SGD's steps are the gradients times the rate: so is their adaptive sum."""
    model, expected = make_model(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Adasum)
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD)
    assert set(optimizer._parameter_names.values()) == {name for name, _ in model.named_parameters()}
    for step in range(3):
        optimizer.zero_grad(), expected.zero_grad()
        optimizer.synchronize()
        for of in (model, expected):
            (loss_of(of, step, False) / 2).backward()
            (loss_of(of, step, False) / 2).backward()
        torch.testing.assert_close(model[0].weight.grad, expected[0].weight.grad)  # stays local
        optimizer.step()
        with torch.no_grad():
            for parameter in expected.parameters():
                parameter += hvd.allreduce(-0.1 * parameter.grad, op=hvd.Adasum)
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()), rtol=1e-9, atol=1e-12)
    with pytest.raises(AssertionError), optimizer.skip_synchronize():
        pass
    optimizer.set_backward_passes_per_step(2)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)


def test_adasum_with_other_optimizers_and_compression():
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, compression=hvd.Compression.fp16)
    losses = []
    for _ in range(20):
        losses.append(optimizer.step(lambda: closure(model, optimizer)).item())
    assert losses[-1] < losses[0]
    weights = hvd.allgather(model[0].weight.detach().unsqueeze(0))
    assert all(torch.equal(weights[0], weight) for weight in weights)


def closure(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_of(model, 0, False)
    loss.backward()
    return loss


@pytest.mark.ranks(2)
def test_an_optimizer_of_a_set_that_this_rank_is_not_in():
    process_set = hvd.add_process_set([0])
    model, expected = make_model(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), process_set=process_set)
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    for of, its in ((model, optimizer), (expected, plain)):
        loss_of(of, 0, False).backward()
        its.step()
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()))
    hvd.remove_process_set(process_set)
    with pytest.raises(ValueError, match="not registered"):
        hvd.DistributedOptimizer(plain, process_set=process_set)


def test_a_failed_reduction_leaves_an_optimizer_that_can_go_on():
    model, other = make_model(), make_model()
    optimizers = [hvd.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, other)]
    if hvd.size() > 1:
        model[0].weight.grad = torch.zeros(8, 5).double() if hvd.rank() == 0 else None
        optimizers[0]._gradients._compression = hvd.Compression.fp16 if hvd.rank() == 0 else hvd.Compression.none
        with pytest.raises(hvd.HorovodInternalError, match="disagree"):
            loss_of(model, 0, False).backward()
        optimizers[0]._gradients._compression = hvd.Compression.none
    for one, optimizer in zip((model, other), optimizers):
        optimizer.zero_grad()
        loss_of(one, 0, False).backward()
        optimizer.step()
    torch.testing.assert_close(list(model.parameters()), list(other.parameters()))


@pytest.mark.ranks(1)
@pytest.mark.parametrize("name", ["HOROVOD_ELASTIC", "HVD_ELASTIC"])
def test_one_rank_of_an_elastic_job_reduces_too(monkeypatch, name):
    def reducer_of() -> object:
        return hvd.DistributedOptimizer(torch.optim.SGD(make_model().parameters(), lr=0.1))._gradients

    assert reducer_of() is None
    monkeypatch.setenv(name, "1")
    assert reducer_of() is not None
