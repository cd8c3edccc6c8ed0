"""hvd.jax.data_parallel: a loss of all ranks' batches, compared with the same loss in one process."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import hvd.jax as hvd
from launching import ROOT

ALL_ROWS = np.random.default_rng(3).normal(size=(4, 8, 3)).astype(np.float32)  # of four ranks
COMBINED = {hvd.Average: lambda losses: sum(losses) / len(losses), hvd.Sum: sum}


def loss_of(params, rows):
    return jnp.mean(jnp.sin(rows @ params["w"]) ** 3 * params["b"])


def made_params():
    return {"w": jnp.array([0.0, 0.3, 0.6]), "b": jnp.float32(1.5), "step": jnp.int32(3)}


def own_rows():
    return jnp.asarray(ALL_ROWS[hvd.rank()])


def reference(ranks, op, params):
    return COMBINED[op]([loss_of(params, rows) for rows in ALL_ROWS[list(ranks)]])


def assert_close(one, other, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=10 * tolerance, atol=tolerance), one, other)


def same_bits(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: np.asarray(a).tobytes() == np.asarray(b).tobytes(), one, other))


def derivatives(loss, *arguments):
    """The value, and derivatives of three orders with respect to the float parameters."""

    def of_floats(floats, *rest):
        return loss({**floats, "step": arguments[0]["step"]}, *rest)

    floats = {name: value for name, value in arguments[0].items() if name != "step"}
    second = jax.jacrev(jax.grad(of_floats))
    return [each(floats, *arguments[1:]) for each in (jax.value_and_grad(of_floats), second, jax.jacrev(second))]


@pytest.mark.ranks(2)
@pytest.mark.parametrize("op", list(COMBINED))
def test_derivatives_are_those_of_one_process(op):
    loss = hvd.data_parallel(loss_of, op=op)
    found = jax.jit(functools.partial(derivatives, loss))(made_params(), own_rows())
    of_one = functools.partial(derivatives, lambda params: reference(range(2), op, params))
    assert_close(found, jax.jit(of_one)(made_params()))


@pytest.mark.ranks(2)
@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.bf16])
def test_steps_have_the_bits_of_the_explicit_form(compression):
    plain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    explicit = hvd.DistributedGradientTransformation(plain, compression)

    def trained(loss, optimizer, average):
        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def step(params, state, rows):
            value, gradients = jax.value_and_grad(loss)(params, rows)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state, average(value)

        params = {name: value for name, value in made_params().items() if name != "step"}
        state, losses = optimizer.init(params), []
        before = hvd.metrics()
        for _ in range(4):
            params, state, value = step(params, state, own_rows())
            losses.append(float(value))
        assert hvd.metrics(before)["operations"] == 2 * 4
        return params, losses

    found = trained(hvd.data_parallel(loss_of, compression=compression), plain, lambda value: value)
    assert same_bits(found, trained(loss_of, explicit, hvd.allreduce))
    assert found[1][0] != found[1][-1]


@pytest.mark.ranks(2)
def test_results_beside_the_loss_stay_the_ranks_own():
    def loss_and_sum(params, rows, *, scale):
        return scale * loss_of(params, rows), rows.sum()

    loss = functools.partial(hvd.data_parallel(loss_and_sum, has_aux=True), scale=2.0)
    (value, aux), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True, allow_int=True))(made_params(), own_rows())
    assert_close(value, 2 * reference(range(2), hvd.Average, made_params()))
    assert_close(aux, own_rows().sum())
    assert gradients["step"].dtype == jax.dtypes.float0


@pytest.mark.ranks(2)
def test_two_arguments_are_one_operation_and_others_have_gradients_of_this_rank():
    def loss(weight, rows, bias):
        return loss_of({"w": weight, "b": bias}, rows)

    params, before = made_params(), hvd.metrics()
    of_both = jax.grad(hvd.data_parallel(loss, argnums=(0, -1)), argnums=(0, 1, 2))
    weight, rows, bias = jax.block_until_ready(of_both(params["w"], own_rows(), params["b"]))
    assert hvd.metrics(before)["operations"] == 2  # with the value
    expected = jax.grad(lambda both: reference(range(2), hvd.Average, both), allow_int=True)(params)
    assert_close((weight, bias), (expected["w"], expected["b"]))
    assert_close(rows, jax.grad(loss, argnums=1)(params["w"], own_rows(), params["b"]))


@pytest.mark.ranks(2)
def test_microbatches_within_the_loss_are_reduced_once():
    def over_microbatches(params, rows):
        @jax.checkpoint
        def add(total, microbatch):
            return total + loss_of(params, microbatch), None

        return jax.lax.scan(add, 0.0, rows.reshape(4, 2, 3))[0] / 4

    def around_the_loss(params, rows):
        def add(total, microbatch):
            return total + jax.grad(hvd.data_parallel(loss_of))(params, microbatch)["w"], None

        return jax.lax.scan(add, jnp.zeros(3), rows.reshape(4, 2, 3))[0] / 4

    params = {name: value for name, value in made_params().items() if name != "step"}
    expected = jax.grad(lambda given: reference(range(2), hvd.Average, given))(params)["w"]
    for gradient, operations in [
        (lambda *given: jax.grad(hvd.data_parallel(over_microbatches))(*given)["w"], 2),
        (around_the_loss, 2 * 4),
    ]:
        before = hvd.metrics()
        assert_close(jax.jit(gradient)(params, own_rows()), expected)
        assert hvd.metrics(before)["operations"] == operations


@pytest.mark.ranks(4)
def test_a_process_set():
    even, odd = hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])
    own = even if hvd.rank() % 2 == 0 else odd
    found = derivatives(hvd.data_parallel(loss_of, process_set=own), made_params(), own_rows())
    assert_close(found, derivatives(lambda params: reference(own.ranks, hvd.Average, params), made_params()))
    for each in (even, odd):
        hvd.remove_process_set(each)


@pytest.mark.ranks(2)
def test_wrong_uses():
    with pytest.raises(ValueError, match=r"op must be hvd\.Average or hvd\.Sum"):
        hvd.data_parallel(loss_of, op=hvd.Adasum)
    with pytest.raises(ValueError, match="argnums has 2, but there are 2 positional arguments"):
        hvd.data_parallel(loss_of, argnums=2)(made_params(), own_rows())
    with pytest.raises(TypeError, match="returned a tuple: expected the loss alone, or give has_aux=True"):
        hvd.data_parallel(lambda params: (params, params))(1.0)
    with pytest.raises(TypeError, match="expected a tuple"):
        hvd.data_parallel(lambda params: params, has_aux=True)(1.0)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(hvd.data_parallel(lambda params: params), (1.0,), (1.0,))
    assert hvd.data_parallel(lambda params: params * hvd.rank())(3.0) == 1.5


@pytest.mark.ranks(2)
def test_the_steps_of_the_page_agree():
    page = (ROOT / "docs" / "jax.md").read_text()
    steps = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def step" in code]
    results = []
    for code in steps:
        names = {"jax": jax, "optax": optax, "hvd": hvd, "loss_of": loss_of}
        names["params"] = {"w": jnp.arange(3.0) * (hvd.rank() + 1), "b": jnp.float32(1 - hvd.rank())}
        exec(code, names)
        batch = own_rows().reshape((4, 2, 3) if "microbatches" in code else (8, 3))
        results.append(names["step"](names["params"], names["optimizer"].init(names["params"]), batch))
    assert len(results) == 3
    assert same_bits(results[0], results[1])
    assert_close(results[0], results[2])
