"""hvd.ps and hvd.torch.ps. Most tests are for workers that serve a part of the tables themselves; the programs at the
end are for servers, and so are the examples."""

from __future__ import annotations

import copy
import functools
import gc
import io
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import hvd
import hvd.torch
from launching import PROGRAMS, ROOT, hvdrun, run_command

ps = hvd.torch.ps
is_rank = "TEST_REPORTS" in os.environ


@pytest.fixture(scope="module")
def servers():
    """All tests of a job use tables of their own, and leave clocks equal on all ranks. Who starts jobs is in none."""
    if not is_rank:
        yield None
        return
    hvd.init()
    with ps.connect() as connection:
        yield connection


def rows_of(count, width=4, seed=0):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


# One worker


@pytest.mark.ranks(1)
def test_hvd_ps_is_imported_when_it_is_asked_for(ranks):
    code = "import sys, hvd; assert 'numpy' not in sys.modules and 'hvd.ps' not in sys.modules; hvd.ps.connect"
    torch_code = (
        "import sys, hvd.torch as hvd; assert 'hvd.torch.ps' not in sys.modules and 'hvd.ps' not in sys.modules; "
        "assert hvd.ps.SGD is sys.modules['hvd'].ps.SGD and hvd.ps.Embedding"
    )
    for text in (code, torch_code):
        subprocess.run([sys.executable, "-c", text], check=True)
    with pytest.raises(AttributeError, match="no attribute 'parameter_server'"):
        _ = hvd.torch.parameter_server
    assert set(hvd.ps.__all__) < set(ps.__all__) and ps.connect is hvd.ps.connect


OPTIMIZERS = {
    "sgd": (ps.SGD(0.1), torch.optim.SGD, {"lr": 0.1}),
    "sgd_decay": (ps.SGD(0.1, weight_decay=0.02), torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.02}),
    "momentum": (ps.SGD(0.1, momentum=0.9), torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (
        ps.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.02),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02},
    ),
    "adagrad": (
        ps.Adagrad(0.1, accumulator=0.5, weight_decay=0.02),
        torch.optim.Adagrad,
        {"lr": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.02},
    ),
    "adam": (
        ps.Adam(0.1, beta1=0.8, weight_decay=0.02),
        torch.optim.Adam,
        {"lr": 0.1, "betas": (0.8, 0.999), "weight_decay": 0.02},
    ),
}


@pytest.mark.ranks(1)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_those_of_torch(servers, ranks, name):
    own, theirs, settings = OPTIMIZERS[name]
    model = torch.nn.Linear(70, 61)  # 4,331 values: more than one row, and the last one not full
    table = servers.dense(f"as torch {name}", model.named_parameters(), own)
    optimizer = theirs(model.parameters(), foreach=False, **settings)
    pulled = [torch.empty_like(parameter) for parameter in model.parameters()]
    for step in range(20):
        for number, parameter in enumerate(model.parameters()):
            parameter.grad = torch.from_numpy(rows_of(1, parameter.numel(), 2 * step + number)).view_as(parameter)
        table.push_pull([parameter.grad for parameter in model.parameters()], pulled)
        optimizer.step()
    for got, expected in zip(pulled, model.parameters()):
        if theirs is torch.optim.SGD:
            assert torch.equal(got, expected)
        else:
            torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.ranks(1)
def test_optimizers_that_torch_has_not(servers, ranks):
    gradients = rows_of(2)

    def pushed(optimizer):
        table = servers.table(f"rule {optimizer}", 4, optimizer, ps.Constant(1.0))
        table.push([1, 2], gradients)
        return table.pull([1, 2])

    assert np.array_equal(pushed(ps.Assign()), gradients)
    assert np.array_equal(pushed(ps.Add()), 1 + gradients)
    means = np.mean(gradients**2, axis=1, keepdims=True)
    np.testing.assert_allclose(pushed(ps.Adagrad(0.1, row_wise=True)), 1 - 0.1 * gradients / np.sqrt(means), rtol=1e-5)
    np.testing.assert_allclose(
        pushed(ps.Adam(0.1, row_wise=True)), 1 - 0.1 * gradients / (np.sqrt(means) + 1e-8), rtol=1e-5
    )
    # Follow the regularised leader: the first state is the one whose weights are the initial ones.
    rate, l1, l2 = 0.1, 0.5, 0.3
    sums = np.abs(gradients)  # square roots of the sums of squares
    z = -(1 / rate + l2) - l1 + gradients - sums / rate
    expected = -np.sign(z) * np.maximum(np.abs(z) - l1, 0) / ((1 + sums) / rate + l2)
    np.testing.assert_allclose(pushed(ps.Ftrl(rate, l1=l1, l2=l2)), expected, rtol=1e-5)
    sparse = servers.table("ftrl from nothing", 4, ps.Ftrl(rate, l1=100.0))
    assert np.array_equal(sparse.push_pull([1, 2], gradients), np.zeros((2, 4)))


@pytest.mark.ranks(1)
def test_initial_values(servers, ranks):
    def pulled(initializer, name="", keys=range(1000)):
        return servers.table(f"first {initializer} {name}", 4, initializer=initializer).pull(np.array(keys))

    assert np.all(pulled(ps.Constant(2.5)) == 2.5)
    uniform, normal = pulled(ps.Uniform(-1.0, 3.0, seed=1)), pulled(ps.Normal(1.0, 2.0, seed=1))
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.1
    assert abs(normal.mean() - 1) < 0.15 and abs(normal.std() - 2) < 0.15
    assert np.array_equal(uniform, pulled(ps.Uniform(-1.0, 3.0, seed=1), "again"))
    assert not np.array_equal(uniform, pulled(ps.Uniform(-1.0, 3.0, seed=2)))
    assert np.array_equal(uniform[7:9], pulled(ps.Uniform(-1.0, 3.0, seed=1), "some", [7, 8]))
    # Pulls alone take no memory; what is pushed to begins with the same values.
    table = servers.table("first and then", 4, ps.Add(), ps.Normal(0.0, 1.0, seed=3))
    before = table.pull([5])
    assert sum(tables["first and then"]["rows"] for tables in servers.stats()) == 0
    table.push([5], np.ones((1, 4), np.float32))
    assert np.array_equal(table.pull([5]), before + 1)


@pytest.mark.ranks(1)
def test_kinds_of_keys_and_arrays(servers, ranks):
    table = servers.table("kinds", 4, ps.Assign())
    gradients = rows_of(3)
    all_keys = [
        [1, 2**40, -1],
        [-(2**63), 2**40, 2**63 + 5],
        (1, 2**40, 2**64 - 1),  # the same keys as unsigned numbers
        np.array([1, 2**40, -1]),
        torch.tensor([1, 2**40, -1]),
    ]
    for number, keys in enumerate(all_keys):
        table.push(keys, gradients + number)
        rows = table.pull(keys)
        assert isinstance(rows, torch.Tensor) == isinstance(keys, torch.Tensor)
        assert np.array_equal(np.asarray(rows), gradients + number)
    every_other = np.repeat(np.arange(3), 2)[::2]
    table.push(every_other, torch.from_numpy(gradients))
    assert np.array_equal(table.pull(np.uint8([2, 0])), gradients[[2, 0]])
    given = np.empty((2, 4), np.float32)
    assert table.pull([1, 0], out=given) is given and np.array_equal(given, gradients[[1, 0]])
    assert table.pull([]).shape == (0, 4)
    table.push([], np.empty((0, 4), np.float32))

    summed = servers.table("kinds added", 4, ps.SGD(1.0))
    after = summed.push_pull([7, 8, 7], np.ones((3, 4), np.float32))
    assert np.array_equal(after[:, 0], [-2, -1, -2])

    arrays = {"a": np.zeros(5, np.float32), "b": torch.zeros(2, 3)}
    dense = servers.dense("kinds dense", arrays, ps.Add())
    dense.push({"a": np.arange(5, dtype=np.float32), "b": torch.ones(2, 3)})
    assert dense.pull(arrays) is arrays and np.array_equal(arrays["a"], np.arange(5)) and arrays["b"].sum() == 6
    single = servers.dense("kinds single", np.zeros((2, 2)), ps.Add())  # float64 converts
    assert np.array_equal(single.push_pull(np.ones((2, 2)), np.zeros((2, 2))), np.ones((2, 2)))
    half = torch.full((3,), 2.0, dtype=torch.bfloat16)  # which NumPy does not have
    dense = servers.dense("kinds bfloat16", half, ps.Add())
    assert torch.equal(dense.push_pull(half, torch.zeros_like(half)), 2 * half)


@pytest.mark.ranks(1)
def test_errors_say_what_to_do(servers, ranks):
    table = servers.table("errors", 4)
    ones = np.ones((2, 4), np.float32)
    calls = [
        (lambda: table.pull([1.5]), ValueError, "keys are integers, not float64"),
        (lambda: table.pull([[1, 2]]), ValueError, "keys have one dimension, not 2: flatten them"),
        (lambda: table.push([1], ones), ValueError, r"shape \(2, 4\), not \(1, 4\): a row for each key"),
        (
            lambda: table.push([1, 2], ones.astype(np.float64)),
            ValueError,
            r"float32 on the CPU, not float64 on the CPU: convert them, for instance with numpy\.asarray\(",
        ),
        (
            lambda: table.push([1, 2], torch.ones(2, 4, dtype=torch.float64)),
            ValueError,
            r"float32 on the CPU, not float64 on the CPU: convert them, for instance with \.float\(\)",
        ),
        (lambda: table.push([1, 2], None), TypeError, "push and push_pull need gradients, an array of shape"),
        (lambda: table.pull([1, 2], out=ones[:1]), ValueError, r"contiguous float32 array of shape \(2, 4\)"),
        (lambda: servers.table("errors", 5), ValueError, "'errors' is open already, with other arguments"),
        (lambda: table.pull([2**64]), ValueError, r"keys have 64 bits"),
        (lambda: servers.table("", 4), ValueError, "a name has 1 to 256 bytes"),
        (lambda: servers.table("e", "4"), TypeError, "width is '4': expected an integer"),
        (lambda: servers.dense("e", [1.0, 2.0]), TypeError, "1.0 is no array: expected an array, several"),
        (lambda: servers.table("e", 0), ValueError, "a row has 1 to 65536 values"),
        (lambda: servers.table("e", 2**40), ValueError, "width is 1099511627776: it is out of range"),
        (lambda: servers.table("e", 4, consistency=2**31), ValueError, "bound is 2147483648: it is out of range"),
        (lambda: servers.table("e", 4, initializer=ps.Normal(seed=-1)), ValueError, "seed is -1: it is out of range"),
        (lambda: servers.table("e", 4, initializer=ps.Normal(seed=1.5)), TypeError, "seed is 1.5: expected an integer"),
        (lambda: servers.table("e", 4, ps.SGD("0.1")), TypeError, "learning_rate is '0.1': expected a number"),
        (lambda: servers.table("e", 4, ps.SGD(-1.0)), ValueError, "learning rate must not be negative"),
        (lambda: servers.table("e", 4, ps.SGD(math.nan)), ValueError, "must be finite"),
        (lambda: servers.table("e", 4, ps.SGD(nesterov=True)), ValueError, "Nesterov's form needs a momentum"),
        (lambda: servers.table("e", 4, ps.Adam(beta1=1.0)), ValueError, r"betas are in \[0, 1\)"),
        (lambda: servers.table("e", 4, torch.optim.SGD), TypeError, "an optimizer is one of hvd.ps's Assign, Add, SGD"),
        (lambda: servers.table("e", 4, initializer=0.0), TypeError, "an initializer is one of hvd.ps's Constant"),
        (
            lambda: servers.table("e", 4, consistency="sync"),
            ValueError,
            "'asynchronous', 'synchronous', or by how many",
        ),
        (lambda: servers.table("e", 4, consistency=-1), ValueError, "not -1"),
        (
            lambda: servers.table("e", 4, consistency="synchronous", rows=5),
            ValueError,
            "a synchronous table keeps all its rows",
        ),
        (lambda: servers.dense("e", []), ValueError, "the table 'e' has no values"),
        (
            lambda: servers.dense("e", np.zeros(3), consistency="synchronous", compensation=1.0),
            ValueError,
            "delay compensation is for dense tables that are not synchronous",
        ),
        (lambda: table.set_learning_rate(-1.0), ValueError, "learning rate must not be negative"),
        (lambda: servers.restore("/nonexistent"), ValueError, "/nonexistent"),
    ]
    for call, kind, text in calls:
        with pytest.raises(kind, match=text):
            call()
    dense = servers.dense("errors dense", np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match=r"shapes \[\(3, 2\)\] are needed, not \[\(2, 3\)\]"):
        dense.push(np.zeros((2, 3), np.float32))
    synchronous = servers.table("errors synchronous", 4, consistency="synchronous")
    with pytest.raises(ValueError, match="synchronous"):
        synchronous.push_pull([1, 2], ones)
    assert np.array_equal(table.pull([1]), np.zeros((1, 4)))  # everything goes on


@pytest.mark.ranks(1)
def test_a_table_is_opened_twice_and_its_rate_changes(servers, ranks):
    first, second = (servers.table("twice", 2, ps.SGD(1.0)) for _ in range(2))
    ones = np.ones((1, 2), np.float32)
    first.push([3], ones)
    assert np.array_equal(second.pull([3]), -ones)
    second.set_learning_rate(0.5)
    first.push([3], ones)
    assert np.array_equal(second.pull([3]), -1.5 * ones)
    servers.table("twice", 2, ps.SGD(1.0))  # its rate is another one by now, which does not matter


@pytest.mark.ranks(1)
def test_handles(servers, ranks):
    table = servers.table("handles", 2, ps.Add())
    ones = np.ones((1, 2), np.float32)
    pushes = [table.push([1], ones, wait=False) for _ in range(50)]
    pull = table.pull([1], wait=False)
    assert np.array_equal(pull.wait(timeout=30), 50 * ones) and pull.poll() and pull.version == 50
    assert all(push.poll() and push.wait() is None for push in pushes)
    for _ in range(50):
        table.push([1], ones.copy(), wait=False)  # what nobody keeps goes on, with its arrays
    servers.flush(timeout=30)
    assert np.array_equal(table.pull([1]), 100 * ones)


@pytest.mark.ranks(1)
def test_numbers_of_tables(servers, ranks):
    table = servers.table("numbers", 2, ps.Add(), rows=16)
    servers.table("numbers\u2028of lines", 2, consistency=np.int64(3))
    for key in range(64):
        table.push([key], np.ones((1, 2), np.float32))
    table.pull([63])
    (stats,) = servers.stats()
    assert servers.count == 1 and stats["-"]["bytes"] >= stats["numbers"]["bytes"] > 0
    numbers = {name: stats["numbers"][name] for name in ("rows", "updates", "pushes", "pulls", "evicted")}
    assert numbers == {"rows": 16, "updates": 64, "pushes": 64, "pulls": 1, "evicted": 48}


@pytest.mark.ranks(1)
def test_updates_of_the_programs_own(servers, ranks, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda of: told.append(str(of.exc_value)))

    def clipped_momentum(rows, gradients, state, learning_rate):
        if np.isnan(gradients).any():
            raise ValueError("no gradients of mine")
        state[:, : rows.shape[1]] = 0.5 * state[:, : rows.shape[1]] + np.clip(gradients, -1, 1)
        state[:, -1] += 1
        rows -= learning_rate * state[:, : rows.shape[1]]

    with pytest.raises(ValueError, match=r"no update 'nobody knows' is registered .* before hvd\.init"):
        servers.table("custom", 4, ps.Custom("nobody knows"))
    ps.register_update("clipped momentum", clipped_momentum)
    table = servers.table("custom", 4, ps.Custom("clipped momentum", learning_rate=0.5, state=5), ps.Constant(1.0))
    gradients = 2 * rows_of(3)
    table.push([5, 9, 5], gradients)
    summed = np.clip([gradients[0] + gradients[2], gradients[1]], -1, 1)
    np.testing.assert_allclose(table.pull([5, 9]), 1 - 0.5 * summed, rtol=1e-6)
    table.set_learning_rate(0.25)
    after = table.push_pull([5, 9], np.zeros((2, 4), np.float32))
    np.testing.assert_allclose(after, 1 - 0.5 * summed - 0.25 * 0.5 * summed, rtol=1e-6)
    with pytest.raises(ValueError, match="the update 'clipped momentum' has failed on server 0"):
        table.push([5], np.full((1, 4), np.nan, np.float32))
    assert np.array_equal(table.pull([5, 9]), after) and told == ["no gradients of mine"]
    dense = servers.dense("custom dense", np.ones(5000), ps.Custom("clipped momentum", 1.0, state=4097))
    assert np.all(dense.push_pull(np.full(5000, 3.0), np.empty(5000, np.float32)) == 0)


@pytest.mark.ranks(1)
def test_rows_of_a_cache_and_rows_that_go_by_age(servers, ranks):
    table = servers.table("cached", 2, ps.Add(), cache=1, max_age=2)
    ones = np.ones((3, 2), np.float32)
    table.push([1, 2, 3], ones)
    for _ in range(3):
        assert np.array_equal(table.pull([1, 2, 3]), ones)
    assert table.cache_counts == (6, 3) and servers.stats()[0]["cached"]["pulls"] == 1
    table.push([2], ones[:1])
    assert np.array_equal(table.pull([1, 2]), [[1, 1], [2, 2]]) and table.cache_counts == (7, 4)
    for _ in range(6):
        servers.clock()
    assert np.array_equal(table.pull([1, 2, 3]), np.zeros((3, 2))) and table.cache_counts == (7, 7)
    assert servers.stats()[0]["cached"]["evicted"] == 3
    for wrong in ({"cache": 1}, {"max_age": 1}):
        with pytest.raises(ValueError, match="synchronous"):
            servers.table("never", 2, consistency="synchronous", **wrong)


@pytest.mark.ranks(1)
def test_copies_have_the_same_table(servers, ranks):
    table = servers.table("copied", 2, ps.SGD(1.0))
    model = torch.nn.Sequential(ps.Embedding(table), torch.nn.Linear(2, 1))
    model[0].prefetch(torch.tensor([1, 2]))
    twin = copy.deepcopy(model)
    assert twin[0].table is table is copy.copy(table) and twin[1].weight is not model[1].weight
    twin(torch.tensor([1, 2])).sum().backward()
    before, after = model(torch.tensor([1, 2])), model(torch.tensor([1, 2]))  # the first one's rows were prefetched
    assert not torch.equal(before, after) and torch.equal(after, twin(torch.tensor([1, 2])))
    for what in (lambda: pickle.dumps(table), lambda: torch.save(model, io.BytesIO())):
        with pytest.raises(TypeError, match=r"'copied' is on parameter servers, .* servers.snapshot\(\)"):
            what()
    for of_servers in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"hvd.ps.connect\(\) makes them"):
            of_servers(servers)


# Several workers


@pytest.mark.ranks(2)
def test_every_push_counts_once_and_rank_0_gives_first_values(servers, ranks):
    table = servers.table("counts", 3, ps.Add())
    for _ in range(100):
        table.push([1, 2, 3, 4, 5], np.ones((5, 3), np.float32), wait=False)
    servers.flush()
    dense = servers.dense("counts dense", np.full(9000, 1.0 + hvd.rank(), np.float32), ps.Add())
    hvd.barrier()
    assert np.all(table.pull([1, 2, 3, 4, 5]) == 200)
    assert np.all(dense.pull(np.empty(9000, np.float32)) == 1)
    assert servers.count == 2
    hvd.barrier()


@pytest.mark.ranks(2)
def test_synchronous_steps_and_waits_that_end(servers, ranks, tmp_path):
    table = servers.table("together", 2, ps.SGD(1.0), consistency="synchronous")
    summed = servers.table("together summed", 2, ps.SGD(1.0), consistency="synchronous", average=False)
    dense = [np.ones(5, np.float32)]
    servers.dense("together dense", dense)
    ones = np.ones((1, 2), np.float32)
    for tab in (table, summed):
        tab.push([4], ones * (1 + hvd.rank()))
    assert np.array_equal(table.pull([4]), 0 * ones)  # takes effect with the clock
    hvd.barrier()
    if hvd.rank() == 0:  # waits for rank 1, in all ways
        servers.clock()
        pull = table.pull([4], wait=False)
        assert not pull.poll()
        with pytest.raises(TimeoutError, match="have not answered"):
            pull.wait(timeout=0.05)
        with pytest.raises(TimeoutError, match="have not answered"):
            servers.flush(timeout=0.05)
        for ask in (servers.stats, functools.partial(servers.snapshot, tmp_path)):  # are answered behind the pull
            with pytest.raises(TimeoutError, match="have not answered"):
                ask(timeout=0.05)
        for wait in (pull.wait, functools.partial(servers.dense, "together dense", dense)):
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                wait()
            timer.join()
        hvd.barrier()
        assert np.array_equal(pull.wait(timeout=30), -1.5 * ones)
    else:
        hvd.barrier()
        servers.clock()
    assert np.array_equal(table.pull([4]), -1.5 * ones) and np.array_equal(summed.pull([4]), -3 * ones)
    assert servers.clocks[1] <= servers.clocks[0]
    hvd.barrier()


@pytest.mark.ranks(2)
def test_gradients_are_compensated_for_what_another_worker_has_changed(servers, ranks):
    first, gradients = rows_of(1, 9000)[0], rows_of(2, 9000, seed=1)
    table = servers.dense("compensated", first, ps.SGD(0.1), compensation=2.0)
    values = table.pull(np.empty_like(first))
    hvd.barrier()
    for rank in (1, 0):
        if hvd.rank() == rank:
            table.push(gradients[rank])
        hvd.barrier()
    own, other = gradients
    expected = first - 0.1 * other
    expected -= 0.1 * (own + 2.0 * own * own * (expected - first))
    np.testing.assert_allclose(table.pull(values), expected, rtol=1e-5, atol=1e-6)
    hvd.barrier()


@pytest.mark.ranks(2)
def test_a_bound_lets_workers_be_so_far_apart(servers, ranks):
    table = servers.table("bounded", 2, consistency=2)
    hvd.barrier()
    if hvd.rank() == 0:
        for _ in range(3):
            table.pull([1])  # up to two clocks ahead
            servers.clock()
        late = table.pull([1], wait=False)
        with pytest.raises(TimeoutError):
            late.wait(timeout=0.05)
        hvd.barrier()
        late.wait(timeout=30)
    else:
        table.pull([1])
        hvd.barrier()
        for _ in range(3):
            servers.clock()
    table.pull([1])
    hvd.barrier()


# PyTorch


def embedded(servers, name, cls, **settings):
    table = servers.table(name, 6, ps.SGD(0.5), ps.Normal(0.0, 1.0, seed=5))
    own = getattr(ps, cls)(table, **settings)
    theirs = getattr(torch.nn, cls)(50, 6, **settings)
    with torch.no_grad():
        theirs.weight.copy_(table.pull(torch.arange(50)))
    return own, theirs, torch.optim.SGD(theirs.parameters(), lr=0.5)


@pytest.mark.ranks(1)
@pytest.mark.parametrize("prefetches", [False, True])
def test_embedding_is_that_of_torch(servers, ranks, prefetches):
    own, theirs, optimizer = embedded(servers, f"embedding {prefetches}", "Embedding")
    pulls = servers.stats()[0][own.table.name]["pulls"]
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        keys = torch.randint(50, (7, 3), generator=generator)
        if prefetches:
            own.prefetch(keys.clone())
        ours, reference = own(keys), theirs(keys)
        torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-6)
        optimizer.zero_grad()
        for result in (ours, reference):
            (result**2).sum().backward()
        optimizer.step()
    torch.testing.assert_close(own.table.pull(torch.arange(50)), theirs.weight.detach(), rtol=1e-5, atol=1e-5)
    assert servers.stats()[0][own.table.name]["pulls"] == pulls + 6  # what was prefetched is not pulled again
    before = own.table.pull(torch.arange(50))
    with torch.no_grad():
        assert not own(torch.tensor(3)).requires_grad
    assert own(torch.empty((0, 2), dtype=torch.int64)).shape == (0, 2, 6)
    assert torch.equal(own.table.pull(torch.arange(50)), before) and not list(own.parameters())
    assert repr(own) == f"Embedding('embedding {prefetches}', width=6)"


@pytest.mark.ranks(1)
def test_nothing_is_left_of_a_batch(servers, ranks):
    embedding = ps.Embedding(servers.table("left of a batch", 6))
    pull, handles = embedding.table.pull, []

    def noted(*arguments, **options):
        handle = pull(*arguments, **options)
        handles.append(weakref.ref(handle))
        return handle

    embedding.table.pull = noted
    for _ in range(3):
        embedding(torch.arange(4)).sum().backward()
    gc.collect()
    assert len(handles) == 3 and not any(handle() for handle in handles)


@pytest.mark.ranks(1)
def test_a_tensor_that_is_filled_anew_once_its_rows_were_prefetched(servers, ranks):
    own, theirs, _ = embedded(servers, "filled anew", "Embedding")
    keys = torch.tensor([1, 2])
    own.prefetch(keys)
    keys.copy_(torch.tensor([3, 4]))
    torch.testing.assert_close(own(keys), theirs(keys))


@pytest.mark.ranks(1)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_those_of_torch(servers, ranks, mode):
    own, theirs, optimizer = embedded(servers, f"bag {mode}", "EmbeddingBag", mode=mode)
    keys = torch.tensor([1, 2, 1, 7, 49, 7])
    for arguments in ((keys.view(2, 3),), (keys, torch.tensor([0, 4]))):
        optimizer.zero_grad()
        ours, reference = own(*arguments), theirs(*arguments)
        torch.testing.assert_close(ours, reference)
        for result in (ours, reference):
            result.sum().backward()
        optimizer.step()
    if mode == "sum":
        weights = torch.rand(6)
        torch.testing.assert_close(
            own(keys, torch.tensor([0, 4]), weights), theirs(keys, torch.tensor([0, 4]), weights)
        )
    torch.testing.assert_close(own.table.pull(torch.arange(50)), theirs.weight.detach())


@pytest.mark.ranks(1)
def test_errors_of_torch_modules(servers, ranks):
    table = servers.table("module errors", 2, ps.Add(), rows=4)
    embedding = ps.Embedding(table)
    model = torch.nn.Linear(2, 1)
    calls = [
        (lambda: embedding(torch.rand(2)), "keys are integers, not torch.float32"),
        (lambda: embedding(torch.tensor([True])), "keys are integers, not torch.bool"),
        (lambda: embedding([1, 2]), "keys are a tensor of integers, not list"),
        (lambda: ps.Embedding(torch.zeros(3, 2)), r"made by ParameterServers.table\(\) is needed, not Tensor"),
        (lambda: ps.EmbeddingBag(table, mode="median"), "mode is 'sum', 'mean' or 'max', not 'median'"),
        (lambda: ps.DenseOptimizer([], servers, ps.SGD()), "no parameters that require a gradient"),
        (lambda: ps.DenseOptimizer(model.parameters(), servers, ps.SGD()), "pairs of name and parameter"),
        (
            lambda: ps.DenseOptimizer([*model.named_parameters()] * 2, servers, ps.SGD()),
            "two parameters have the name 'weight'",
        ),
        (
            lambda: ps.DenseOptimizer(torch.nn.Linear(2, 1).double().named_parameters(), servers, ps.SGD()),
            "'weight' is torch.float64: those on servers are float32",
        ),
        (
            lambda: ps.DenseOptimizer(model.named_parameters(), servers, ps.Add()),
            "that has a learning rate is needed, such as SGD or Adam, not Add",
        ),
    ]
    for call, text in calls:
        with pytest.raises(ValueError, match=text):
            call()
    # A push that is refused is known at a later forward pass.
    embedding(torch.arange(9)).sum().backward()
    with pytest.raises(ValueError, match="more rows than it may keep"):
        for _ in range(2):
            embedding(torch.arange(2))


@pytest.mark.ranks(1)
def test_dense_optimizer(servers, ranks):
    def make():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def train(model, optimizer, schedule):
        for step in range(12):
            inputs = torch.from_numpy(rows_of(8, seed=step))

            def closure(inputs=inputs):
                optimizer.zero_grad()
                loss = model(inputs).square().mean()
                loss.backward()
                return loss

            assert optimizer.step(closure) > 0
            schedule.step()

    def schedule_of(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)

    for consistency in ("asynchronous", 1, "synchronous"):
        ours, theirs = make(), make()
        for model in (ours, theirs):
            model[0].bias.requires_grad_(False)
        name = f"net {consistency}"
        optimizer = ps.DenseOptimizer(ours.named_parameters(), servers, ps.SGD(0.1, 0.9), consistency, name)
        reference = torch.optim.SGD((p for p in theirs.parameters() if p.requires_grad), lr=0.1, momentum=0.9)
        clock = servers.clocks[0]
        train(ours, optimizer, schedule_of(optimizer))
        train(theirs, reference, schedule_of(reference))
        assert servers.clocks[0] == clock + 12
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))

    state = optimizer.state_dict()
    assert state["state"] == {} and state["param_groups"][0]["lr"] == 0.1 / 8
    state["param_groups"][0]["lr"] = 0.25
    optimizer.load_state_dict(state)
    before = ours[2].bias.item()
    optimizer.zero_grad()
    ours[2].bias.grad = torch.ones(1)
    optimizer.step()
    assert abs(before - ours[2].bias.item()) > 0.2
    with pytest.raises(ValueError, match=r"on the servers, and comes from there: servers.restore\(\)"):
        optimizer.load_state_dict(reference.state_dict())
    with pytest.raises(ValueError, match="make another DenseOptimizer"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    ours[2].bias.grad = torch.zeros(1).to_sparse()
    with pytest.raises(ValueError, match=r"the gradient of .* is sparse"):
        optimizer.step()


# One process alone; two workers and two servers


def run_with_servers(program: Path, *arguments: str, servers: int = 2, **variables: str):
    command = [hvdrun(), "-np", "2", "--servers", str(servers), sys.executable, str(program), *arguments]
    return run_command(command, {"OMP_NUM_THREADS": "1", **variables}, limit_s=300)


def test_the_first_program_of_the_page_without_a_launcher():
    page = (ROOT / "docs" / "parameter-server.md").read_text()
    job = run_command([sys.executable, "-c", re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]])
    assert job.returncode == 0, job.output
    rank, mean = job.output.split()
    assert rank == "0" and 0.1 < float(mean) < 0.5  # of a target of 1


def test_steps_with_servers_have_the_bits_of_allreduce():
    job = run_with_servers(PROGRAMS / "served_training.py")
    assert job.returncode == 0, job.output
    for rank in range(2):
        assert f"rank {rank}: 0 of 2,887 values differ after 200 steps, none by momentum" in job.output, job.output
        assert f"rank {rank}: hybrid, loss 0.0" in job.output, job.output


EXAMPLES = ROOT / "examples" / "parameter_server"


@pytest.mark.long
def test_digits_with_a_slow_worker():
    job = run_with_servers(EXAMPLES / "digits.py", "--steps", "400", "--milliseconds", "3", "--slow", "4")
    assert job.returncode == 0, job.output
    found = re.findall(r"^(.*): +(\d+) steps/s, accuracy ([\d.]+)%.* (\d+) at most$", job.output, re.MULTILINE)
    assert [way for way, _, _, _ in found] == ["asynchronous", "bound 3", "synchronous"], job.output
    assert all(float(accuracy) >= 85 for _, _, accuracy, _ in found), job.output  # untrained 10
    # Rates are for a machine that does nothing else: tests/bench/parameter_servers.py.
    assert int(found[0][3]) > 0 and int(found[2][3]) == 0, job.output


def test_word_vectors_with_a_table_larger_than_a_server():
    job = run_with_servers(EXAMPLES / "word_vectors.py", "--epochs", "2", HVD_SERVER_MEMORY="2000000")
    assert job.returncode == 0, job.output
    before, after = map(float, re.search(r"others: ([\d.]+)% before training, ([\d.]+)% after", job.output).groups())
    assert 40 < before < 60 and after > 66, job.output


def test_one_server_refuses_such_a_table():
    job = run_with_servers(EXAMPLES / "word_vectors.py", "--epochs", "2", servers=1, HVD_SERVER_MEMORY="2000000")
    assert job.returncode != 0, job.output
    assert re.search(r"ValueError: .*table 'vectors' is full: .* 2000000 \(HVD_SERVER_MEMORY\)", job.output), job.output


STEP_WITHOUT_ROOM = """
import torch, hvd.torch as hvd
hvd.init()
with hvd.ps.connect() as servers:
    model = torch.nn.Linear(4096, 15, bias=False)  # there is room for it, and not for a gradient that waits
    optimizer = hvd.ps.DenseOptimizer(model.named_parameters(), servers, hvd.ps.SGD(1.0), consistency="synchronous")
    model.weight.grad = torch.ones_like(model.weight)
    try:
        optimizer.step()
    except ValueError as error:
        print(f"step(): {error}")
"""


def test_a_step_raises_that_its_gradients_were_refused():
    command = [hvdrun(), "-np", "1", "--servers", "1", sys.executable, "-c", STEP_WITHOUT_ROOM]
    job = run_command(command, {"HVD_SERVER_MEMORY": "450000"})
    assert job.returncode == 0 and "step(): table 'dense' is full" in job.output, job.output


@pytest.mark.long
def test_recommender():
    job = run_with_servers(EXAMPLES / "recommender.py", "--epochs", "2", "--events", "60000")
    assert job.returncode == 0, job.output
    after, before = map(float, re.search(r"accuracy ([\d.]+)%, ([\d.]+)% before", job.output).groups())
    assert before < 55 and after > 80, job.output
