"""Elastic states, samplers, and the loop around them: within one process, and on ranks that fail together."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

import hvd.torch as hvd
from hvd import elastic, process_set, progress
from hvd.exceptions import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt
from hvd.process_set import global_process_set
from hvd.torch import ddp, process_group
from hvd.torch.elastic import ElasticSampler, ModelStateHandler, StateHandler, TorchState


def object_state(**values) -> elastic.ObjectState:
    return elastic.ObjectState(bcast_object=lambda given: given, get_rank=lambda: 0, **values)


def test_objects_are_saved_and_restored():
    state = object_state(epoch=1, history=[1])
    state.epoch, state.history = 2, [1, 2]
    state.history.append(3)
    state.restore()
    assert (state.epoch, state.history) == (1, [1])
    state.epoch = 3
    state.history.append(2)
    state.commit()
    state.epoch = 4
    state.history.append(4)
    for _ in range(2):
        state.restore()
        assert (state.epoch, state.history) == (3, [1, 2])
        state.history.append(5)


def test_a_finished_step_of_objects_is_saved_whole():
    state = object_state(epoch=1, history=[])
    state.history.append(2)
    state.finish_step()
    state.history.append(3)
    for _ in range(2):
        state._go_back()
        assert state.history == [2]
        state.history.append(4)


def test_objects_come_from_the_root():
    state = elastic.ObjectState(lambda _: {"epoch": 7}, lambda: 1, epoch=1)
    state.sync()
    assert state.epoch == 7
    state.epoch = 8
    state.restore()
    assert state.epoch == 7


@pytest.mark.parametrize(
    "updates, skip_sync",
    [
        ([(1, elastic.HOSTS_REMOVED)], True),
        ([(1, elastic.HOSTS_ADDED)], False),
        ([(1, elastic.HOSTS_REMOVED), (2, elastic.HOSTS_ADDED)], False),
        ([(1, elastic.HOSTS_REMOVED), (1, elastic.HOSTS_ADDED)], True),  # the second is no later one
    ],
)
def test_updates_of_hosts_interrupt(updates, skip_sync):
    state = object_state(epoch=1)
    state.commit()
    for update in updates:
        state.on_hosts_updated(*update)
    state.epoch = 2
    with pytest.raises(HostsUpdatedInterrupt) as interrupt:
        state.commit()
    assert interrupt.value.skip_sync is skip_sync
    state.epoch = 3
    state.restore()
    assert state.epoch == 2
    state.commit()
    state.on_hosts_updated(3, elastic.HOSTS_ADDED)
    state.on_reset()
    state.check_host_updates()


class Recorded(elastic.State):
    def __init__(self) -> None:
        super().__init__(lambda given: given, lambda: 0)
        self.calls: list[str] = []
        for name in ("sync", "restore", "save", "reset"):
            setattr(self, name, lambda name=name: self.calls.append(name))


@pytest.mark.parametrize(
    "error, expected",
    [
        (HorovodInternalError("lost"), ["sync", "restore", "shutdown and init", "reset", "callback", "sync"]),
        (HostsUpdatedInterrupt(False), ["sync", "shutdown and init", "reset", "callback", "sync"]),
        (HostsUpdatedInterrupt(True), ["sync", "shutdown and init", "reset", "callback"]),
    ],
    ids=["failure", "added", "removed"],
)
def test_the_loop(error, expected):
    state, errors = Recorded(), [error]
    state.register_reset_callbacks([lambda: state.calls.append("callback")])

    def train(given, number, *, more):
        """Trains."""
        assert given is state
        if errors:
            raise errors.pop()
        return number + more

    run = elastic.run_fn(train, lambda: state.calls.append("shutdown and init"))
    assert run(state, 1, more=2) == 3
    assert state.calls == expected and run.__name__ == "train" and run.__doc__ == "Trains."


def test_a_rank_that_is_lost_while_callbacks_are_called_breaks_the_epoch():
    state, errors = Recorded(), [HorovodInternalError("lost"), HostsUpdatedInterrupt(True)]

    def callback():
        state.calls.append("callback")
        if errors:
            raise errors.pop()

    def train(state):
        state.calls.append("train")
        if state.calls.count("train") == 1:
            raise HostsUpdatedInterrupt(True)

    state.register_reset_callbacks([callback])
    elastic.run_fn(train, lambda: state.calls.append("shutdown and init"))(state)
    anew = ["shutdown and init", "reset", "callback"]
    assert state.calls == ["sync", "train", *anew, *anew, "restore", *anew, "sync", "train"]


def test_a_newcomer_makes_room_before_the_others_wait_for_it(monkeypatch):
    state = Recorded()
    state.make_room = lambda: state.calls.append("room")
    monkeypatch.setattr(elastic._native, "stands_by", lambda: True)
    monkeypatch.setattr(elastic.basics, "leave_standby", lambda: state.calls.append("joins"))
    elastic.run_fn(lambda state: None, lambda: None)(state)
    assert state.calls == ["room", "joins", "reset", "sync"]


def name_of_a_ddp_hook(monkeypatch) -> str:
    def find(tensor, in_place, name, *_):
        raise LookupError(name)

    monkeypatch.setattr(ddp, "allreduce_call", find)
    with pytest.raises(LookupError) as found:
        hvd.ddp_hook()(None, SimpleNamespace(buffer=lambda: torch.ones(1), index=lambda: 0))
    return found.value.args[0]


def name_of_a_bar(monkeypatch) -> str:
    monkeypatch.setattr(progress.basics, "is_initialized", lambda: True)
    monkeypatch.setattr(progress.basics, "rank", lambda: 1)
    monkeypatch.setattr(progress.basics, "size", lambda: 2)
    monkeypatch.setattr(progress, "_Counting", lambda name, *_: name)
    return hvd.tqdm(total=1)._counting


@pytest.mark.parametrize(
    "make",
    [
        lambda _: process_set.numbered_name(global_process_set, "A"),
        name_of_a_ddp_hook,
        name_of_a_bar,
        lambda _: process_group._channel_of("0", global_process_set),
    ],
    ids=["optimizer", "ddp hook", "tqdm", "process group"],
)
def test_what_is_made_in_the_loop_is_called_the_same_again(monkeypatch, make):
    monkeypatch.setattr(process_set._native, "rank", lambda: 0)
    before = make(monkeypatch)
    names = []

    def train(state):
        names.append(make(monkeypatch))
        if len(names) < 3:
            raise HorovodInternalError("lost")

    elastic.run_fn(train, lambda: None)(Recorded())
    assert len(set(names)) == 1 and before not in names


def test_a_bar_of_an_earlier_epoch_counts_no_longer(monkeypatch):
    epochs = [1]
    monkeypatch.setattr(progress.basics, "initializations", lambda: epochs[-1])
    monkeypatch.setattr(progress.basics, "size", lambda: 2)
    monkeypatch.setattr(progress._Counting, "_sums", lambda _: progress._Sums(0, 0, 0, 0))
    counting = progress._Counting("bar", 5, 0, 0.001, lambda sums: epochs.append(2) if len(epochs) < 2 else None)
    counting._thread.join(10)
    is_counting = counting._thread.is_alive()
    monkeypatch.setattr(progress._Counting, "_sums", lambda _: progress._Sums(0, 2, 0, 0))
    assert not is_counting


def test_other_exceptions_leave_the_loop():
    with pytest.raises(KeyError):
        elastic.run_fn(lambda state: {}["a"], lambda: None)(Recorded())


@pytest.mark.parametrize("is_in_sync", [False, True], ids=["training", "synchronisation"])
def test_ranks_that_disagree_again_after_the_same_step_leave_the_loop(is_in_sync):
    state, left = Recorded(), []

    def disagree(*_):
        assert len(left) < 9
        if not is_in_sync and len(left) < 2:
            state.commit()
        error = HorovodInternalError("ranks disagree")
        error.is_mismatch = len(left) != 2  # that one is another failure
        left.append(state._finished_steps)
        raise error

    if is_in_sync:
        state.sync = disagree
    with pytest.raises(HorovodInternalError, match="ranks disagree"):
        elastic.run_fn(disagree, lambda: None)(state)
    assert left == ([0, 0] if is_in_sync else [1, 2, 2, 2, 2])


def test_exceptions():
    assert issubclass(HostsUpdatedInterrupt, RuntimeError) and not issubclass(
        HostsUpdatedInterrupt, HorovodInternalError
    )
    error = HorovodVersionMismatchError("torch", "1.0", "2.0")
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ("torch", "1.0", "2.0")


def make_model(value: float) -> nn.Module:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(value), model.bias.fill_(value)
    return model


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()


def values_of(state: TorchState) -> object:
    return copy.deepcopy((state.model.state_dict(), repr(state.optimizer.state_dict()), state.batch))


@pytest.mark.ranks
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "distributed"])
def test_torch_state(wrapped):
    model = make_model(float(hvd.rank()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = TorchState(model=model, optimizer=optimizer, batch=20 + hvd.rank(), epoch=hvd.rank())
    assert state.model is model and state.optimizer is optimizer
    state.sync()
    assert (state.batch, state.epoch) == (20, 0) and model.weight.tolist() == [[0.0, 0.0]]
    assert optimizer.param_groups[0]["lr"] == 0.1
    committed = values_of(state)
    train_step(model, optimizer)
    state.batch = 21
    state.restore()
    assert repr(values_of(state)) == repr(committed)
    train_step(model, optimizer)
    state.batch = 22
    state.commit()
    committed = values_of(state)
    for _ in range(2):
        train_step(model, optimizer)
        state.restore()
        assert repr(values_of(state)) == repr(committed)
    assert state.batch == 22
    state.model = make_model(5.0 + hvd.rank())
    state.sync()
    assert state.model.weight.tolist() == [[5.0, 5.0]]


@pytest.mark.ranks(2)
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_a_state_of_the_optimizer_that_is_wrapped_later(op):
    model = make_model(float(hvd.rank()))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = TorchState(model=model, optimizer=base)
    optimizer = hvd.DistributedOptimizer(base, model.named_parameters(), op=op)
    for _ in range(2):
        train_step(model, optimizer)
        state.save()
        saved = repr(optimizer.state_dict())
        train_step(model, optimizer)
        state.restore()
        assert repr(optimizer.state_dict()) == saved


def saved_tensors(state) -> list[torch.Tensor]:
    saved = state.saved()
    of_optimizer = [value for each in saved["optimizer"]["state"].values() for value in each.values()]
    return [value for value in [*saved["model"].values(), *of_optimizer] if isinstance(value, torch.Tensor)]


@pytest.mark.ranks(2)
def test_a_commit_copies_into_the_memory_of_the_last_one_unless_a_checkpoint_reads_it():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = TorchState(model, optimizer)

    def step():
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()

    step()
    state.commit()
    lent = saved_tensors(state)
    values = copy.deepcopy(lent)
    step()
    state.commit()  # somebody has what was saved before
    assert all(torch.equal(tensor, value) for tensor, value in zip(lent, values))
    assert not torch.equal(lent[5], model[1].weight)
    kept = [handler._saved for handler in state._handlers.values()]
    addresses = [tensor.data_ptr() for tensor in kept[0].values()]
    step()
    weight = model[1].weight.clone()
    state.commit()
    kept = [handler._saved for handler in state._handlers.values()]
    assert [tensor.data_ptr() for tensor in kept[0].values()] == addresses
    assert kept[0]._metadata == model.state_dict()._metadata
    step()
    state.restore()
    assert torch.equal(model[1].weight, weight)
    step()
    state.restore()  # which has left what was saved as it was
    assert torch.equal(model[1].weight, weight)


@pytest.mark.ranks(2)
def test_a_state_whose_synchronisation_breaks_is_not_half_new(monkeypatch):
    model = make_model(1.0)
    state = TorchState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), batch=3)
    committed = values_of(state)

    def receive(parameters, root_rank, process_set):
        for _, parameter in dict(parameters).items():
            parameter.data.fill_(7.0)

    def fail(optimizer, root_rank, process_set):
        raise HorovodInternalError("lost")

    monkeypatch.setattr("hvd.torch.state_handlers.broadcast_parameters", receive)
    monkeypatch.setattr("hvd.torch.state_handlers.broadcast_optimizer_state", fail)
    with pytest.raises(HorovodInternalError):
        state.sync()
    assert model.weight.tolist() == [[7.0, 7.0]]
    state.restore()
    assert repr(values_of(state)) == repr(committed)


@pytest.mark.ranks(2)
def test_what_modules_keep_besides_tensors_comes_from_the_root():
    class Counting(torch.nn.Linear):
        def get_extra_state(self):
            return {"calls": self.calls}

        def set_extra_state(self, state):
            self.calls = state["calls"]

    module = Counting(2, 2)
    module.calls = 10 + hvd.rank()
    hvd.elastic.TorchState(module).sync()
    assert module.calls == 10


@pytest.mark.ranks(4)
def test_only_a_newcomer_takes_the_parameters():
    """Parameters differ here, to show who has received them."""
    rank, is_newcomer = hvd.rank(), hvd.rank() == 1
    model = make_model(float(rank))
    state = TorchState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), batch=0)
    if not is_newcomer:
        state._is_synchronized = True
        state._is_at_step = rank != 3  # its step is under way
        state._finished_steps, state.batch = 5, 7
    elastic._synchronize(state, is_needed=is_newcomer)
    expected = 0.0 if rank in (1, 3) else rank
    assert torch.all(model.weight == expected) and state.batch == 7
    assert state._finished_steps == state._steps_at_save == 5
    model.weight.data.fill_(-1.0)
    state.restore()
    assert torch.all(model.weight == expected) and state.batch == 7
    assert process_set.registered() == {0: [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("has_it", "hosts", "expected"),
    [
        ("nnn", "aab", {1: [0, 2]}),  # the first synchronisation
        ("nyn", "aaa", {1: [0, 2]}),
        ("nyyn", "aabb", {1: [0], 2: [3]}),
        ("nyynnn", "aabbcc", {1: [0, 4, 5], 2: [3]}),
        ("nnyn", "aabb", {1: [0, 3]}),  # rank 1 has gone further than the step that rank 2 has finished, too
        ("yyy", "abc", {}),
    ],
)
def test_who_takes_the_state_from_whom(has_it, hosts, expected):
    assert elastic._sync_groups(1, [each == "y" for each in has_it], list(map(ord, hosts))) == expected


@pytest.mark.ranks(4)
def test_survivors_of_each_host_give_their_state_to_its_newcomers(monkeypatch):
    """Parameters differ here, to show whose have come; objects come from one rank."""
    rank = hvd.rank()
    monkeypatch.setattr(elastic, "_host_number", lambda: 1 + rank // 2)
    model = make_model(float(rank))
    state = TorchState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=float(rank)), giver=rank)
    if rank % 2 == 0:
        state._is_synchronized = state._is_at_step = True
        state._finished_steps = 5
    elastic._synchronize(state, is_needed=rank % 2 == 1)
    giver = rank // 2 * 2
    assert torch.all(model.weight == giver) and state.optimizer.param_groups[0]["lr"] == giver
    assert state.giver == 0 and process_set.registered() == {0: [0, 1, 2, 3]}


@pytest.mark.ranks(2)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_newcomer_receives_into_the_room_that_it_has_made(kind):
    is_newcomer = hvd.rank() == 1
    model = make_model(float(hvd.rank()))
    optimizer = kind(model.parameters(), lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    state = TorchState(model, optimizer, batch=0)

    def addresses() -> list[int]:
        of_model = [*model.parameters(), *state._handlers["model"]._saved.values()]
        states = [*optimizer.state.values(), *state._handlers["optimizer"]._saved["state"].values()]
        return [tensor.data_ptr() for tensor in of_model + [value for each in states for value in each.values()]]

    if is_newcomer:
        state.make_room()
        assert len(optimizer.state) == 2 and all(torch.all(parameter == 1.0) for parameter in model.parameters())
    else:
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 3.0)
        optimizer.step()
        state.save()
        state._finished_steps, state.batch = 5, 7
    room = addresses()
    elastic._synchronize(state, is_needed=is_newcomer)
    assert addresses() == room and state.batch == 7
    assert len({repr(each) for each in hvd.allgather_object((model.state_dict(), optimizer.state_dict()))}) == 1


@pytest.mark.ranks(2)
def test_ranks_that_fail_together_go_on_from_the_last_commit():
    model = make_model(0.0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, batch=0)
    resets, failed_at = [], []
    state.register_reset_callbacks([lambda: resets.append(state.batch)])

    @hvd.elastic.run
    def train(state):
        for batch in range(state.batch, 6):
            state.batch = batch
            train_step(state.model, state.optimizer)
            if state.batch == 1 and not failed_at:
                state.commit()
            if state.batch == 3 and not failed_at:
                failed_at.append(3)
                with state.optimizer.no_sync():
                    state.model(torch.ones(1, 2)).sum().backward()
                hvd.allreduce(torch.ones(2 + hvd.rank()), name="of different shapes")
        return state.batch

    assert train(state) == 5 and resets == [1] and failed_at == [3]
    # Committed within batch 1, so that this one was made twice.
    assert model.weight.tolist() == [[pytest.approx(-0.3 * 7)] * 2]


@pytest.mark.ranks
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("number", [0, 1, 22, 24])
def test_sampler(number, shuffle):
    sampler = ElasticSampler(range(number), shuffle=shuffle, seed=3)
    size = hvd.size()

    def everybodys() -> list[int]:
        return [index for part in zip(*hvd.allgather_object(list(sampler))) for index in part]

    def check(expected_number: int) -> list[int]:
        indices = everybodys()
        each = -(-expected_number // size)
        assert len(sampler) == each and len(indices) == each * size and len(set(indices)) == expected_number
        return indices[:expected_number]

    first = check(number)
    assert first == everybodys()[:number] and sorted(first) == list(range(number))
    assert shuffle or first == list(range(number))
    sampler.record_batch(0, 2)
    sampler.record_batch(1, 2)
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 4 * size}
    sampler.reset()
    left = check(max(0, number - 4 * size))
    assert left == first[4 * size :]
    other = ElasticSampler(range(number), shuffle=shuffle, seed=3)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == list(sampler)
    sampler.set_epoch(1)
    second = check(number)
    assert sampler.state_dict() == {"epoch": 1, "processed_num": 0}
    assert (second != first) == (shuffle and number > 1)


@pytest.mark.ranks
def test_a_state_with_a_sampler():
    sampler = ElasticSampler(range(24), shuffle=False)
    state = TorchState(sampler=sampler, epoch=0)
    assert state.model is None and state.optimizer is None
    sampler.record_batch(0, 2)
    state.commit()
    sampler.record_batch(1, 2)
    state.restore()
    assert sampler.processed_num == 2 * hvd.size()
    if hvd.rank() == 0:
        sampler.record_batch(1, 2)
    state.sync()
    assert sampler.processed_num == 4 * hvd.size()
    assert len(sampler) == -(-(24 - 4 * hvd.size()) // hvd.size())
    state.on_reset()
    assert len(list(torch.utils.data.DataLoader(range(24), sampler=sampler, batch_size=2))) == -(-len(sampler) // 2)


@pytest.mark.ranks(2)
def test_schedulers_and_loaders_keep_their_place():
    data = torch.utils.data.TensorDataset(torch.arange(16))
    sampler = torch.utils.data.DistributedSampler(data, hvd.size(), hvd.rank(), seed=3)
    loader = StatefulDataLoader(data, batch_size=2, sampler=sampler)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    state = TorchState(optimizer=optimizer, scheduler=scheduler, loader=loader)
    whole = [batch.tolist() for (batch,) in loader]
    batches = iter(state.loader)
    for _ in range(2 if hvd.rank() == 0 else 1):  # rank 1 has yet to finish the second
        next(batches)
        optimizer.step()
        scheduler.step()
        state.save_step()  # finish_step() without the question for other hosts, which all ranks must ask
        state._finished_steps += 1
    next(batches)  # of a step whose gradients do not come
    scheduler.step()
    assert state._finished_steps == 2 - hvd.rank()
    state._go_back()
    elastic._synchronize(state, is_needed=True)
    assert state._finished_steps == 2 and state.scheduler is scheduler and scheduler.optimizer is optimizer
    assert (optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (0.25, 2)
    next(iter(state.loader))
    state.on_reset()  # as after hosts were only removed, where nothing is loaded
    assert [batch.tolist() for (batch,) in state.loader] == whole[3:]


@pytest.mark.ranks(2)
def test_handlers_of_ones_own():
    class Counter:
        count = 0

    class CounterHandler(StateHandler):
        def save(self) -> None:
            self.saved = self.value.count

        def restore(self) -> None:
            self.value.count = self.saved

        def sync(self) -> None:
            self.save()

    registry = hvd.elastic.get_handler_registry()
    assert (nn.Module, ModelStateHandler) in registry
    hvd.elastic.set_handler_registry([*registry, (Counter, CounterHandler)])
    try:
        counter = Counter()
        state = TorchState(counter=counter)
        state.save()
        counter.count = 5
        state.restore()
        assert counter.count == 0 and state.counter is counter
        counter.count = 6
        state.finish_step()  # the handler says nothing of steps, so all is saved
        counter.count = 7
        state._go_back()
        assert counter.count == 6

        class Ours(nn.Linear):
            pass

        class OursHandler(ModelStateHandler):
            def save(self) -> None:
                super().save()

        hvd.elastic.get_handler_registry().insert(0, (Ours, OursHandler))
        for model, is_kept in ((nn.Linear(1, 1), True), (Ours(1, 1), False)):
            state = TorchState(model, kind=Ours)  # a class is a plain object
            state.save_step()
            assert (state._steps_at_save == 0) == is_kept
            if is_kept:
                assert state.restore_step()
    finally:
        hvd.elastic.set_handler_registry(registry)
