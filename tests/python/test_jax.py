"""hvd.jax: collectives inside and outside compiled programs, their derivatives, and training with optax."""

from __future__ import annotations

import functools
import re

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import hvd.jax as hvd
from hvd import elastic
from hvd.jax import collectives, compression, ordering
from hvd.jax.errors import translated
from launching import ROOT, run_job

MEANINGS = {
    hvd.Sum: lambda stacked: stacked.sum(0),
    hvd.Average: lambda stacked: stacked.mean(0),
    hvd.Min: lambda stacked: stacked.min(0),
    hvd.Max: lambda stacked: stacked.max(0),
    hvd.Product: lambda stacked: stacked.prod(0),
}
FORMS = {"eager": lambda function: function, "jit": jax.jit, "hvd.jit": hvd.jit}


def of_rank(rank, shape=(3, 2), dtype=np.float32):
    return (np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1).astype(dtype)


def of_all(ranks, shape=(3, 2), dtype=np.float32):
    return np.stack([of_rank(rank, shape, dtype) for rank in range(ranks)])


@pytest.fixture(params=list(FORMS))
def form(request):
    return FORMS[request.param]


@pytest.mark.ranks
@pytest.mark.parametrize("op", list(MEANINGS))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_allreduce(ranks, form, dtype, op):
    array = jnp.asarray(of_rank(hvd.rank()), dtype)
    result = form(lambda given: hvd.allreduce(given, op))(array)
    assert result.dtype == array.dtype and isinstance(result, jax.Array)
    expected = MEANINGS[op](of_all(ranks))
    if dtype == "int32":
        expected = np.trunc(expected)
    np.testing.assert_array_equal(result.astype(np.float32), expected)
    np.testing.assert_array_equal(array.astype(np.float32), of_rank(hvd.rank()))  # is as it was


@pytest.mark.ranks
def test_shapes_factors_and_names(ranks, form):
    scalar = form(lambda given: hvd.allreduce(given, hvd.Sum, name="loss"))(jnp.float32(2))
    assert scalar.shape == () and scalar == 2 * ranks
    empty = form(hvd.allreduce)(jnp.zeros((0, 3)))
    assert empty.shape == (0, 3)
    scaled = form(lambda given: hvd.allreduce(given, hvd.Sum, prescale_factor=2.0, postscale_factor=0.5))(jnp.ones(3))
    assert scaled.tolist() == [ranks] * 3


@pytest.mark.ranks
def test_collectives_of_rows(ranks, form):
    rank, array = hvd.rank(), jnp.asarray(of_rank(hvd.rank(), (2 * ranks, 3)))
    everything = of_all(ranks, (2 * ranks, 3))
    np.testing.assert_array_equal(form(hvd.allgather)(array), np.concatenate(everything))
    np.testing.assert_array_equal(form(lambda given: hvd.broadcast(given, ranks - 1))(array), everything[-1])
    np.testing.assert_array_equal(
        form(hvd.alltoall)(array), np.concatenate([each[2 * rank : 2 * rank + 2] for each in everything])
    )
    total = everything.sum(0)
    np.testing.assert_array_equal(
        form(lambda given: hvd.reducescatter(given, hvd.Sum))(array), total[2 * rank : 2 * rank + 2]
    )


@pytest.mark.ranks(4)
def test_rows_that_do_not_divide(form):
    parts = form(lambda given: hvd.reducescatter(given, hvd.Sum))(jnp.arange(6.0))
    assert parts.tolist() == [[0.0, 4.0], [8.0, 12.0], [16.0], [20.0]][hvd.rank()]


@pytest.mark.ranks(2)
def test_a_tree_is_one_operation():
    tree = {"a": jnp.ones((2, 2)), "b": [jnp.arange(3), jnp.bfloat16(1.5)], "c": None}
    before = hvd.metrics()
    reduced = jax.jit(lambda given: hvd.allreduce_tree(given, hvd.Sum))(tree)
    after = hvd.metrics(before)
    assert reduced["a"].tolist() == [[2, 2], [2, 2]] and reduced["b"][0].tolist() == [0, 2, 4]
    assert reduced["b"][1] == 3 and reduced["c"] is None
    assert after["operations"] == 1
    assert hvd.allreduce_tree({}) == {} and hvd.grouped_allreduce([]) == []
    assert [row.shape for row in hvd.grouped_allreduce(jnp.ones((2, 3)))] == [(3,), (3,)]


@pytest.mark.ranks(2)
def test_a_broadcast_tree():
    rank = hvd.rank()
    tree = {"weights": jnp.full((2,), float(rank)), "step": rank, "key": jax.random.key(rank)}
    received = hvd.broadcast_tree(tree, root_rank=1)
    assert received["weights"].tolist() == [1.0, 1.0] and received["step"] == 1
    assert jax.random.uniform(received["key"]) == jax.random.uniform(jax.random.key(1))


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    ("collective", "expected"),
    [
        # The weight of each result is its rank plus 1; a gradient is what hvd.torch's would be.
        (lambda given: hvd.allreduce(given, hvd.Sum), lambda rank: np.full(2, 3.0)),
        (lambda given: hvd.allreduce(given), lambda rank: np.full(2, 1.5)),
        (lambda given: hvd.allreduce(given, hvd.Sum, prescale_factor=2.0), lambda rank: np.full(2, 6.0)),
        (lambda given: hvd.broadcast(given, 1), lambda rank: np.full(2, 1.5 * rank)),
        (hvd.allgather, lambda rank: np.full(2, 1.5)),
        (hvd.alltoall, lambda rank: np.array([1.0, 2.0])),
        (lambda given: hvd.reducescatter(given, hvd.Sum), lambda rank: np.array([1.0, 2.0])),
        (hvd.reducescatter, lambda rank: np.array([0.5, 1.0])),
    ],
)
def test_gradients(form, collective, expected):
    weight = hvd.rank() + 1.0
    gradient = form(jax.grad(lambda given: weight * collective(given).sum()))(jnp.array([3.0, 5.0]))
    np.testing.assert_allclose(gradient, expected(hvd.rank()))


def alltoall_of(each):
    return [jnp.concatenate([one[rank : rank + 1] for one in each]) for rank in range(len(each))]


@pytest.mark.ranks(2)
@pytest.mark.parametrize("form", ["jit"], indirect=True)
@pytest.mark.parametrize(
    ("collective", "meaning", "divisor"),
    [
        (lambda given: hvd.allreduce(given, hvd.Sum), lambda each: [sum(each)] * 2, 1),
        (hvd.allreduce, lambda each: [sum(each) / 2] * 2, 1),
        (lambda given: hvd.broadcast(given, 1), lambda each: [each[1]] * 2, 2),
        (hvd.allgather, lambda each: [jnp.concatenate(each)] * 2, 2),
        (hvd.alltoall, alltoall_of, 1),
        (hvd.reducescatter, lambda each: list((sum(each) / 2)[:, None]), 1),
    ],
)
def test_complex_numbers_and_their_derivatives(form, collective, meaning, divisor):
    everything = jnp.array([[1 + 2j, 3 - 1j], [2 - 3j, 1j]], jnp.complex64)
    rank, weights = hvd.rank(), [2 - 1j, 1 + 3j]

    def loss(result, weight):
        return jnp.real(weight * result**2).sum() + jnp.abs(result).sum()

    def total(every):
        return sum(map(loss, meaning(list(every)), weights))

    result = form(collective)(everything[rank])
    assert result.dtype == jnp.complex64
    np.testing.assert_allclose(result, meaning(list(everything))[rank], rtol=1e-6)
    gradient = form(jax.grad(lambda given: loss(collective(given), weights[rank])))(everything[rank])
    np.testing.assert_allclose(gradient, jax.jit(jax.grad(total))(everything)[rank] / divisor, rtol=1e-5)


@pytest.mark.ranks(2)
def test_complex_scalars_and_double_precision():
    assert hvd.allreduce(jnp.complex64(1 + 2j), hvd.Sum, postscale_factor=0.5) == 1 + 2j
    jax.config.update("jax_enable_x64", True)
    try:
        wide = hvd.allgather(jnp.full((1, 2), 1 + 1e-12j * hvd.rank(), jnp.complex128))
        assert wide.dtype == jnp.complex128 and wide.imag.tolist() == [[0, 0], [1e-12, 1e-12]]
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("dtype", [name for name in vars(jnp) if name.startswith("float8_")])
def test_small_floats_move(form, dtype):
    array = jnp.asarray([0.5, 2.0], dtype) * (hvd.rank() + 1)
    as_floats = [
        form(function)(array).astype(jnp.float32).tolist()
        for function in (hvd.allgather, lambda given: hvd.broadcast(given, 1), hvd.alltoall)
    ]
    assert as_floats == [[0.5, 2.0, 1.0, 4.0], [1.0, 4.0], [[0.5, 1.0], [2.0, 4.0]][hvd.rank()]]


@pytest.mark.ranks(2)
def test_derivatives_of_small_floats():
    weight = jnp.asarray([1.0, 3.0], jnp.float8_e4m3fn)[hvd.rank()]
    gradient = jax.grad(lambda given: (weight * hvd.broadcast(given, 0)).sum())(jnp.ones(2, jnp.float8_e4m3fn))
    assert gradient.dtype == jnp.float8_e4m3fn
    assert gradient.astype(jnp.float32).tolist() == [2.0 * (hvd.rank() == 0)] * 2


@pytest.mark.ranks(2)
def test_an_alltoall_of_unequal_parts(form):
    rank, splits = hvd.rank(), np.array([[0, 3], [1, 2]])
    exchange = functools.partial(hvd.alltoall, splits=splits[rank], received_splits=splits[:, rank])
    array = jnp.arange(6.0).reshape(3, 2) + 10 * rank
    everything = [np.arange(6.0).reshape(3, 2) + 10 * each for each in range(2)]
    expected = [everything[1][:1], np.concatenate([everything[0], everything[1][1:]])][rank]
    np.testing.assert_array_equal(form(exchange)(array), expected)
    gradient = form(jax.grad(lambda given: (exchange(given) * (rank + 1)).sum()))(array)
    np.testing.assert_array_equal(gradient[:, 0], [[2, 2, 2], [1, 2, 2]][rank])


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    "given",
    [
        (([3, 0], [1, 2]), ([1, 2], [2, 1])),  # as many rows in all
        (([0, 3], [0, 1]), ([1, 2], [2, 3])),  # wrong on rank 1 only
        (([1, 3], [1, 2]), None),  # None expects 2 of each
    ],
)
def test_an_alltoall_that_does_not_fit_fails_on_all_ranks(form, given):
    own = given[hvd.rank()]
    array = jnp.ones((4 if own is None else sum(own[0]), 2))
    text = "alltoall 'jax.alltoall': .*: received_splits, equal parts if not"
    with pytest.raises(hvd.HorovodInternalError, match=text), translated():
        form(lambda given: hvd.alltoall(given, *own or ()))(array).block_until_ready()
    assert hvd.alltoall(jnp.arange(2.0), *[([1, 1], [1, 1]), ()][hvd.rank()])[1] == hvd.rank()  # the job goes on


@pytest.mark.ranks(2)
def test_second_derivatives_and_integers_beside_floats():
    total = functools.partial(hvd.allreduce, op=hvd.Sum)
    assert jax.grad(jax.grad(lambda given: total(given) ** 3))(1.0) == 2 * 2 * 6 * 2.0

    def loss(given):
        scaled, count = hvd.allreduce_tree((given, jnp.int32(4)), hvd.Sum)
        return scaled * count

    assert jax.jit(jax.grad(loss))(1.0) == 16.0
    with pytest.raises(NotImplementedError, match="only averages and sums"):
        jax.grad(lambda given: hvd.allreduce(given, hvd.Max))(1.0)


@pytest.mark.ranks(2)
def test_vmap_and_loops():
    array = jnp.asarray(of_rank(hvd.rank(), (4, 2)))
    total, everything = of_all(2, (4, 2)).sum(0), of_all(2, (4, 2))
    np.testing.assert_array_equal(jax.vmap(lambda row: hvd.allreduce(row, hvd.Sum))(array), total)
    np.testing.assert_array_equal(jax.vmap(hvd.allgather)(array), np.concatenate(list(everything), axis=1))

    def doubled(carry, _):
        return hvd.allreduce(carry, hvd.Sum), None

    assert jax.jit(lambda given: jax.lax.scan(doubled, given, length=3)[0])(1.0) == 8.0
    assert jax.lax.while_loop(lambda given: given < 30, lambda given: hvd.allreduce(given, hvd.Sum), 1.0) == 32.0


@pytest.mark.ranks(2)
def test_checkpoints_keep_the_results_of_collectives(form):
    """What is inside of jax.checkpoint is computed again, but for the collectives."""
    weights, rows = jnp.arange(1.0, 4.0), jnp.asarray(of_rank(hvd.rank(), (3, 3)))

    def block(weights, row):
        hidden = jnp.sin(weights * row)
        return jnp.sin(hvd.allreduce(hidden)) * hidden + hvd.allgather(hidden)[:3]

    def loss_by(block):
        def loss(weights):
            last, _ = jax.lax.scan(lambda carry, row: (block(carry, row), None), weights, rows)
            return (block(last, rows[0]) ** 2).sum()

        return loss

    found = []
    for each in (block, jax.checkpoint(block), jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)):
        before = hvd.metrics()
        found.append(jax.block_until_ready(form(jax.value_and_grad(loss_by(each)))(weights)))
        assert hvd.metrics(before)["operations"] == 2 * 2 * 4  # two in each of four blocks, there and back
    for value, gradient in found:
        np.testing.assert_allclose(value, found[0][0], rtol=1e-5)
        np.testing.assert_allclose(gradient, found[0][1], rtol=1e-4)


@pytest.fixture(params=[jax.jit, hvd.jit], ids=["jit", "hvd.jit"])
def jit(request):
    return request.param


@pytest.mark.ranks(2)
def test_calls_that_look_alike_are_not_merged_and_unused_ones_stay(jit):
    before = hvd.metrics()

    @jit
    def program(given):
        hvd.allreduce(given, hvd.Max)
        return hvd.allreduce(given, hvd.Sum) + hvd.allreduce(given, hvd.Sum)

    assert program(1.0) == 4.0
    assert hvd.metrics(before)["operations"] == 3


@pytest.mark.ranks(2)
def test_collectives_of_a_large_program_keep_their_order(jit):
    sizes = [400 if i % 3 else 40 for i in range(12)]  # XLA would start the small ones first, each rank at its own time

    @jax.jit
    def inner(array, factor):
        return hvd.allreduce(jnp.sin(array @ array)[0, :1] * factor, hvd.Sum)

    @jit
    def program(arrays):
        def body(total, factor):
            return total + inner(arrays[0], factor), None

        looped = jax.lax.scan(body, jnp.zeros(1), jnp.arange(3.0))[0]
        return [inner(array, number) for number, array in enumerate(arrays)], looped

    arrays = [jnp.full((size, size), 0.001) for size in sizes]
    alone = [jnp.sin(array @ array)[0, :1] for array in arrays]
    expected = [2 * number * each for number, each in enumerate(alone)], 6 * alone[0]
    for _ in range(5):
        results = program(arrays)  # which is not waited for
        other = hvd.allreduce(jnp.full(1, 3.0 + hvd.rank()))
        jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-5), results, expected)
        assert other == 3.5


@pytest.mark.ranks(2)
def test_an_error_of_a_program_in_the_background_is_forgotten(jit):
    @functools.partial(jit, static_argnums=1)
    def program(arrays, rows):
        return [hvd.allreduce(jnp.sin(array @ array)[:rows], name="odd").sum() for array in arrays]

    arrays = [jnp.ones((300, 300))] * 12
    with pytest.raises(jax.errors.JaxRuntimeError, match="the ranks disagree"):
        jax.block_until_ready(program(arrays, 2 + hvd.rank()))
    hvd.elastic.JaxState(step=0).reset()
    jax.block_until_ready(program(arrays, 2))


@pytest.mark.ranks(2)
def test_donated_arrays(jit):
    step = jit(lambda given: hvd.allreduce(given, hvd.Sum), donate_argnums=0)
    array = jnp.ones(1000)
    for power in range(1, 5):
        array = step(array)
        assert array[0] == 2**power and array[-1] == 2**power


@pytest.mark.ranks(2)
def test_programs_of_all_kinds_keep_their_order():
    """Each begins once its arguments are complete, and those of the other kinds always are."""

    def slow(array):
        return hvd.allreduce(jnp.sin(array @ array)[:1, 0], hvd.Sum, name="of the same name")

    def quick(number):
        return hvd.allreduce(jnp.full(1, number), hvd.Sum, name="of the same name")

    def without_operation(number):
        jax.debug.print("{}", number)
        return jnp.full(1, 2 * number)

    array = jnp.full((500, 500), 0.001)
    expected = 2 * jnp.sin(array @ array)[:1, 0]
    programs = [jax.jit(slow), hvd.jit(slow), jax.jit(quick), hvd.jit(quick), quick, hvd.jit(without_operation)]
    for round_ in range(3):
        order = np.random.default_rng(round_).permutation(20) % len(programs)
        results = [programs[i](array if i < 2 else float(n)) for n, i in enumerate(order)]
        for n, (i, result) in enumerate(zip(order, results)):
            np.testing.assert_allclose(result, expected if i < 2 else [2.0 * n], rtol=1e-5)


@pytest.mark.ranks(2)
def test_a_program_of_hvd_jit_is_one_of_jax_jit():
    traced = []

    @functools.partial(hvd.jit, static_argnames="power", donate_argnames="state")
    def step(state, batch, power=1, *, scale=None):
        """A step."""
        traced.append(power)
        jax.lax.cond(batch["x"][0] > 1, lambda: hvd.allreduce(1.0), lambda: hvd.allreduce(2.0))
        total = hvd.allreduce(batch["x"] ** power, hvd.Sum)
        return {"count": state["count"] + 1, "key": jax.random.split(state["key"])[0]}, (total, None, 7), scale

    def state():
        return {"count": jnp.zeros((), jnp.int8), "key": jax.random.key(0)}

    assert step.__name__ == "step" and step.__doc__ == "A step."
    batch = {"x": jnp.arange(1.0, 4.0) + hvd.rank()}
    before = state()
    for power in (1, 2, 1):
        after, (total, nothing, seven), scale = step(before, batch, power=power, scale=3)
        assert total.tolist() == [(1 + n) ** power + (2 + n) ** power for n in range(3)]
        assert nothing is None and seven == 7 and scale == 3
        assert after["count"].dtype == jnp.int8 and after["count"] == 1
        assert before["count"].is_deleted()
        before = state()
    assert traced == [1, 2]
    assert jax.typeof(hvd.jit(lambda x: x * 2)(1.0)).weak_type == jax.typeof(jax.jit(lambda x: x * 2)(1.0)).weak_type


@pytest.mark.ranks(2)
def test_a_program_of_hvd_jit_within_others_and_with_other_effects(capfd):
    square = hvd.jit(lambda x: hvd.allreduce(x, hvd.Sum) ** 2)
    assert jax.grad(square)(3.0) == 2 * 6 * 2
    assert jax.jit(square)(3.0) == 36
    assert jax.vmap(square)(jnp.arange(2.0)).tolist() == [0, 4]
    with jax.disable_jit():
        assert square(3.0) == 36

    @hvd.jit
    def talking(x):
        y = hvd.allreduce(x, hvd.Sum)
        jax.debug.print("reduced {}", y, ordered=True)
        return hvd.allreduce(y, hvd.Sum)

    assert [talking(1.0), square(1.0), talking(2.0)] == [4, 4, 8]
    jax.effects_barrier()
    assert capfd.readouterr().out.count("reduced") == 2
    with pytest.raises(TypeError, match="out_shardings"):
        hvd.jit(lambda x: x, out_shardings=None)


@pytest.mark.ranks(2)
def test_what_jax_does_with_programs_of_jax_jit_it_does_with_those_of_hvd_jit():
    square = hvd.jit(lambda x: hvd.allreduce(x, hvd.Sum) ** 2)
    before = hvd.metrics()
    with jax.ensure_compile_time_eval():
        assert hvd.jit(lambda x: (hvd.allreduce(x), None)[1])(1.0) is None  # performed, though nothing uses it
    assert hvd.metrics(before)["operations"] == 1
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        hvd.jit(lambda x: jnp.log(hvd.allreduce(x)))(-1.0)
    assert cloudpickle.loads(cloudpickle.dumps(square))(1.0) == 4
    assert square.lower(1.0).compile().cost_analysis() is not None

    new_ref = jax.new_ref if hasattr(jax, "new_ref") else jax.experimental.mutable_array
    counter = new_ref(jnp.zeros(()))

    @hvd.jit
    def counting(counter, unused, x):
        counter[...] += 1
        return hvd.allreduce(x, hvd.Sum)

    assert [counting(counter, new_ref(jnp.zeros(2)), float(n)) for n in range(3)] == [0, 2, 4]
    assert counter[...] == 3
    one = jax.device_put(1.0, jax.devices()[0])
    assert square(one).committed and not square(1.0).committed
    ordering.forget_error()  # as in a thread that has called no program yet
    with jax.transfer_guard("disallow"):
        result = square(one)
    assert result == 4


@pytest.mark.ranks(4)
def test_process_sets(form):
    even, odd = hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])
    own = even if hvd.rank() % 2 == 0 else odd
    array = jnp.array([float(hvd.rank())])
    assert form(lambda given: hvd.allreduce(given, hvd.Sum, process_set=own))(array) == [2.0, 4.0][hvd.rank() % 2]
    assert form(lambda given: hvd.allgather(given, process_set=own))(array).tolist() == own.ranks
    for each in (even, odd):
        assert hvd.remove_process_set(each)
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(array, process_set=even)


@pytest.mark.ranks(2)
def test_a_process_set_that_is_registered_again_under_another_number(form):
    sets = [hvd.ProcessSet([rank]) for rank in range(2)]
    own = sets[hvd.rank()]
    program = form(lambda given: hvd.allreduce(given, hvd.Sum, process_set=own))
    for order in (sets, sets[::-1]):
        for each in order:
            hvd.add_process_set(each)
        try:
            assert program(jnp.float32(hvd.rank())) == hvd.rank()
        finally:
            for each in order:
                hvd.remove_process_set(each)
    with pytest.raises(ValueError, match="not registered"):
        program(jnp.float32(1))


@pytest.mark.ranks(2)
def test_a_process_set_is_removed_after_the_programs_that_use_it(form):
    """Which JAX runs in the background: they would find no set of that number any more, or another one."""
    own = [hvd.add_process_set([rank]) for rank in range(2)]
    program = form(lambda given: hvd.allreduce(jnp.sin(given @ given), process_set=own[hvd.rank()]))
    result = program(jnp.ones((900, 900)))
    for each in own:
        assert hvd.remove_process_set(each)
    np.testing.assert_allclose(result, np.sin(900.0), atol=1e-3)


@pytest.mark.ranks(2)
def test_errors():
    for wrong, message in [
        (lambda: hvd.allreduce(jnp.ones(2, jnp.complex64), hvd.Max), "Max is not supported for complex64: it has Aver"),
        (lambda: hvd.reducescatter(jnp.ones(2, jnp.float8_e5m2)), "Average is not supported for float8_e5m2: this ty"),
        (lambda: hvd.allgather(jnp.ones(2, jnp.int4)), "allgather: arrays of int4 are not supported"),
        (lambda: hvd.allreduce(jnp.ones(2, jnp.uint16)), "allreduce with op=Average is not supported for uint16: this"),
        (lambda: hvd.allreduce(jnp.ones(2, bool), hvd.Sum), "op=Sum is not supported for bool: it has Min and Max"),
        (lambda: hvd.allreduce(jnp.ones(2, int), hvd.Adasum), "op=Adasum is not supported for int32: it has Average,"),
        (lambda: hvd.allgather(jnp.float32(1)), "allgather: .* a scalar has no rows"),
        (lambda: hvd.alltoall(jnp.ones(3)), "alltoall: 3 rows cannot be divided equally among 2 ranks: give splits"),
        (lambda: hvd.alltoall(jnp.ones(3), [1, 2]), "alltoall: give both splits and received_splits"),
        (lambda: hvd.alltoall(jnp.ones(3), [1, 1], [1, 1]), "alltoall: splits add up to 2, but the array has 3 rows"),
        (lambda: hvd.alltoall(jnp.ones(3), [3], [3]), r"alltoall: splits is \[3\]: expected 2 numbers of rows"),
        (lambda: hvd.allreduce(jnp.ones(2), op=17), "op is 17"),
        (lambda: hvd.broadcast(jnp.ones(2), 2.5), "root_rank is 2.5"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            wrong()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"allreduce 'allreduce.odd': the ranks disagree"):
        jax.jit(lambda given: hvd.allreduce(given, name="odd"))(jnp.ones(2 + hvd.rank())).block_until_ready()
    assert hvd.allreduce(1.0) == 1.0  # and the job goes on
    assert hvd.broadcast(jnp.ones(2, jnp.uint16), 0).dtype == jnp.uint16


def model_loss(weights, images, labels):
    hidden = jnp.tanh(images @ weights["first"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ weights["second"], labels).mean()


def made_weights(seed):
    first, second = jax.random.split(jax.random.key(seed))
    return {"first": jax.random.normal(first, (6, 8)), "second": jax.random.normal(second, (8, 3))}


def trained(optimizer, weights, batches):
    @jax.jit
    def step(weights, state, images, labels):
        gradients = jax.grad(model_loss)(weights, images, labels)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state

    state = optimizer.init(weights)
    for images, labels in batches:
        weights, state = step(weights, state, images, labels)
    return weights


@pytest.mark.ranks
@pytest.mark.parametrize(
    "compressor",
    [hvd.Compression.none, hvd.Compression.bf16, pytest.param(hvd.Compression.fp16, marks=pytest.mark.long)],
)
def test_an_optimizer_takes_the_steps_of_one_process(ranks, compressor):
    random = np.random.default_rng(1)
    images = random.normal(size=(5, 4 * ranks, 6)).astype(np.float32)
    labels = random.integers(0, 3, size=(5, 4 * ranks))
    mine = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    plain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    distributed = hvd.DistributedGradientTransformation(plain, compressor)
    weights = hvd.broadcast_tree(made_weights(hvd.rank()))
    own = trained(distributed, weights, zip(images[:, mine], labels[:, mine]))
    reference = trained(plain, made_weights(0), zip(images, labels))
    tolerance = 1e-5 if compressor is hvd.Compression.none else 0.02
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=tolerance), own, reference)
    checksums = hvd.allgather_object(jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), own))
    assert all(each == checksums[0] for each in checksums)


@pytest.mark.ranks(2)
def test_an_optimizer_takes_python_numbers_and_gradients_without_values():
    optimizer = hvd.DistributedGradientTransformation(optax.identity())
    weights = {"rate": jnp.ones(2), "count": jnp.arange(2)}
    gradients = jax.grad(lambda w: (hvd.rank() + 1.0) * w["rate"].sum(), allow_int=True)(weights)
    updates, _ = optimizer.update({**gradients, "bias": hvd.rank() + 1.0}, optimizer.init(weights))
    assert updates["rate"].tolist() == [1.5, 1.5] and updates["bias"].item() == 1.5
    assert updates["count"].dtype == jax.dtypes.float0


@pytest.mark.ranks(2)
@pytest.mark.parametrize("op", [hvd.Min, 17])
def test_an_optimizer_refuses_operations_that_make_no_gradient(op):
    with pytest.raises(ValueError, match=f"op is {int(op)}: expected hvd.Average, hvd.Sum"):
        hvd.DistributedGradientTransformation(optax.sgd(0.1), op=op)


@pytest.mark.ranks(2)
def test_gradients_travel_in_parts_the_last_ones_first(monkeypatch):
    """Steps repeat, so the ranks need not agree again on any part."""
    monkeypatch.setattr(compression, "BUCKET_BYTES", 40)
    gradients = [jnp.full(size, hvd.rank() + 1.0) for size in (3, 20, 2, 8, 1)]
    assert compression._buckets(gradients) == [[4, 3, 2], [1], [0]]  # 44, 80 and 12 bytes
    optimizer = hvd.DistributedGradientTransformation(optax.identity(), hvd.Compression.bf16)  # 22, 40 and 6: two parts
    update = jax.jit(lambda given: optimizer.update(given, optimizer.init(given))[0])
    for _ in range(30):
        before = hvd.metrics()
        for reduced, given in zip(jax.block_until_ready(update(gradients)), gradients):
            np.testing.assert_array_equal(reduced, np.full(given.shape, 1.5))
        assert hvd.metrics(before)["operations"] == 2
    assert hvd.metrics(before)["cache_misses"] == 0


@pytest.mark.ranks(2)
def test_gradients_of_several_passes_are_added_up():
    optimizer = hvd.DistributedGradientTransformation(optax.sgd(1.0), backward_passes_per_step=3)
    weight, before = jnp.float32(0), hvd.metrics()
    state = optimizer.init(weight)
    update = jax.jit(optimizer.update)
    for number in range(6):
        updates, state = update(jnp.float32(number + hvd.rank()), state, weight)
        weight = optax.apply_updates(weight, updates)
    assert weight == -(0 + 1 + 2 + 3 + 4 + 5) - 6 * 0.5
    assert hvd.metrics(before)["operations"] == 2


@pytest.mark.ranks(2)
def test_an_elastic_state():
    rank = hvd.rank()
    state = hvd.elastic.JaxState(
        params={"w": jnp.full(3, float(rank)), "b": [jnp.bfloat16(rank)]}, key=jax.random.key(rank), seen=[rank] * rank
    )
    if rank == 1:
        state.params["more"] = jnp.zeros(2)  # a newcomer's state may look different
    elastic._synchronize(state, is_needed=True)
    assert jax.tree.map(lambda leaf: leaf.tolist(), state.params) == {"w": [0.0] * 3, "b": [0.0]} and state.seen == []
    assert jax.random.uniform(state.key) == jax.random.uniform(jax.random.key(0))
    state.params = jax.tree.map(lambda leaf: leaf + 1, state.params)
    state.finish_step()
    kept = state.params["w"]
    state.params = {"w": None}
    state.seen.append(17)
    state._go_back()
    assert state.params["w"] is kept and state.seen == []
    jax.jit(lambda given: given * 2, donate_argnums=0)(kept)
    state._go_back()  # to the synchronisation, since the step's arrays are gone
    assert state.params["w"].tolist() == [0.0] * 3


@pytest.mark.ranks(2)
def test_an_elastic_state_with_a_dictionary_that_is_no_pytree():
    rank = hvd.rank()
    state = hvd.elastic.JaxState(w=jnp.full(2, float(rank)), best={0: rank, "last": [rank, jnp.ones(1) * rank]})
    elastic._synchronize(state, is_needed=True)
    assert state.w.tolist() == [0.0, 0.0] and state.best[0] == 0 and state.best["last"] == [0, jnp.zeros(1)]
    state.best["last"][0] = 5
    state.finish_step()
    state.best["last"][0] = 7
    state._go_back()
    assert state.best["last"][0] == 5


@pytest.mark.ranks(2)
def test_a_step_fails_also_where_its_results_are_in_a_dictionary_that_is_no_pytree():
    state = hvd.elastic.JaxState(best={0: jnp.ones(1), "last": None})
    program = hvd.jit(lambda array: hvd.allreduce(jnp.sin(array @ array)[: 2 + hvd.rank()], name="odd"))
    state.best = {0: [program(jnp.ones((500, 500)))], "last": 1}
    with pytest.raises(hvd.HorovodInternalError, match="the ranks disagree"):
        state.save_step()


@pytest.mark.ranks(2)
def test_programs_that_depend_on_the_ranks_are_compiled_again(monkeypatch):
    traced = []

    @jax.jit
    def program(given):
        traced.append(1)
        return hvd.allgather(given)

    program(jnp.ones(2))
    collectives.forget_place()
    program(jnp.ones(2))
    assert len(traced) == 1
    monkeypatch.setattr(collectives, "_compiled_for", (5, 7))
    collectives.forget_place()
    program(jnp.ones(2))
    assert len(traced) == 2


@pytest.mark.parametrize("end", ["", "hvd.shutdown()"])
def test_a_last_step_that_one_rank_does_not_wait_for(end):
    job = run_job(2, ["-c", LAST_STEP + end])
    assert job.returncode == 0, job.output
    assert "the loss is" in job.output and "Exception" not in job.output


LAST_STEP = """
import jax, jax.numpy as jnp
import hvd.jax as hvd
hvd.init()

@hvd.jit
def step(array):
    for _ in range(6):
        array = hvd.allreduce(jnp.sin(array @ array))
    return array.sum()

loss = step(jnp.ones((500, 500)))
if hvd.rank() == 0:
    print("the loss is", loss)
"""


def test_a_rank_that_fails_leaves_without_waiting_for_its_programs():
    """Which wait for the other rank, as that one does for this one."""
    job = run_job(2, ["-c", FAILS_IN_BETWEEN], limit_s=120)
    assert job.returncode == 1 and "ValueError: bad data" in job.output and "killed" not in job.output, job.output


FAILS_IN_BETWEEN = """
import jax, jax.numpy as jnp
import hvd.jax as hvd
hvd.init()
name = "its own" if hvd.rank() == 1 else "the other"
try:
    result = hvd.jit(lambda array: hvd.allreduce(jnp.sin(array @ array), name=name))(jnp.ones((900, 900)))
    if hvd.rank() == 1:
        raise ValueError("bad data")
    result.block_until_ready()
finally:
    hvd.shutdown()
"""


def test_programs_of_another_initialisation_begin_anew():
    job = run_job(2, ["-c", FAILED_BEFORE])
    assert job.returncode == 0, job.output


FAILED_BEFORE = """
import jax, jax.numpy as jnp
import hvd.jax as hvd
hvd.init()
for jit in (jax.jit, hvd.jit):
    program = jit(lambda array: hvd.allreduce(jnp.sin(array @ array)[: 2 + hvd.rank()], name="odd"))
    try:
        program(jnp.ones((500, 500))).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        assert "the ranks disagree" in str(error)
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(1.0) == 1.0
"""


def test_a_process_set_that_has_another_number_after_another_initialisation():
    job = run_job(2, ["-c", OTHER_NUMBERS])
    assert job.returncode == 0, job.output


OTHER_NUMBERS = """
import jax, jax.numpy as jnp
import hvd.jax as hvd
hvd.init()
sets = [hvd.ProcessSet([rank]) for rank in range(2)]
own = sets[hvd.rank()]
programs = [jit(lambda array: hvd.allreduce(array, hvd.Sum, process_set=own)) for jit in (jax.jit, hvd.jit)]
for order in (sets, sets[::-1]):
    for each in order:
        hvd.add_process_set(each)
    for program in programs:
        assert program(jnp.float32(hvd.rank())) == hvd.rank()
    hvd.shutdown()
    hvd.init()
"""


def test_the_errors_of_a_program_that_has_run_before_are_those_of_jax():
    job = run_job(1, ["-c", CALLED_AGAIN])
    assert job.returncode == 0, job.output
    assert job.output.count("refused INVALID_ARGUMENT: hvd: hvd is not initialised") == 2


CALLED_AGAIN = """
import jax, jax.numpy as jnp
import hvd.jax as hvd
hvd.init()
double = hvd.jit(lambda x: hvd.allreduce(x, hvd.Sum))
for _ in range(2):
    double(jnp.ones(2))
hvd.shutdown()
for _ in range(2):
    try:
        double(jnp.ones(2))
    except jax.errors.JaxRuntimeError as error:
        print("refused", error)
"""


def test_several_devices_in_a_process():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    job = run_job(2, ["-c", SEVERAL_DEVICES], flags)
    assert job.returncode == 0, job.output
    assert "compilation cache off" in job.output  # JAX would crash as it writes the program there


SEVERAL_DEVICES = """
import jax, jax.numpy as jnp
from functools import partial
from jax.sharding import Mesh, PartitionSpec
import hvd.jax as hvd
hvd.init()
mesh = Mesh(jax.devices(), ("devices",))
rows = PartitionSpec("devices")

@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=rows, out_specs=rows)
def program(part):
    return hvd.allreduce(hvd.allreduce(part, hvd.Sum) + 1, hvd.Sum, name="second")

array = jnp.arange(8.0) + 8 * hvd.rank()
for _ in range(20):
    assert program(array).tolist() == [2 * (2 * each + 8 + 1) for each in range(8)]
"""


def test_the_example(tmp_path):
    job = run_job(2, [str(ROOT / "examples" / "jax" / "digits.py"), "--epochs", "12", "--reference"], cwd=tmp_path)
    assert job.returncode == 0, job.output
    assert float(re.search(r"test accuracy ([\d.]+)%", job.output)[1]) > 93, job.output
    assert "differ from those of one process by at most" in job.output


@pytest.mark.long
def test_the_character_model(tmp_path):
    program = str(ROOT / "examples" / "jax" / "characters.py")
    job = run_job(2, [program, "--steps", "60", "--reference"], cwd=tmp_path)
    assert job.returncode == 0, job.output
    assert float(re.search(r"([\d.]+) in the last steps, on 2 ranks", job.output)[1]) < 3, job.output
    assert "differ from those of one process by at most" in job.output


@pytest.mark.ranks(2)
def test_a_training_goes_on_from_the_checkpoints_of_the_page(tmp_path):
    page = (ROOT / "docs" / "jax.md").read_text()
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ocp" in each)
    optimizer = hvd.DistributedGradientTransformation(optax.adamw(1e-2))
    random = np.random.default_rng(hvd.rank())
    batches = [(random.normal(size=(4, 6)).astype(np.float32), random.integers(0, 3, size=4)) for _ in range(200)]

    @jax.jit
    def step(weights, state, batch):
        loss, gradients = jax.value_and_grad(model_loss)(weights, *batch)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, hvd.allreduce(loss)

    def training_of(folder, steps, batches, seed):
        names = {"hvd": hvd, "optimizer": optimizer, "params": hvd.broadcast_tree(made_weights(seed)), "step": step}
        names |= {"folder": hvd.broadcast_object(str(tmp_path / folder)), "batches": iter(batches), "steps": steps}
        exec(code, names)
        return jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), names["training"])

    without = training_of("whole", 200, batches, seed=7)
    training_of("parts", 100, batches, seed=7)
    assert training_of("parts", 200, batches[100:], seed=8) == without


@pytest.mark.ranks(2)
def test_a_nan_of_another_rank_is_named(form):
    given = jnp.array([1.0, jnp.nan if hvd.rank() == 1 else 2.0])
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="hvd_collective"):
        form(hvd.allreduce)(given)
    assert form(hvd.allreduce)(jnp.float32(hvd.rank())) == 0.5


@pytest.mark.ranks(2)
def test_weak_types_stay_weak(form):
    reduced = form(hvd.allreduce)(1.0 + hvd.rank())
    assert jax.typeof(reduced).weak_type
    assert (jnp.ones(2, jnp.bfloat16) * reduced).dtype == jnp.bfloat16
    state = hvd.broadcast_tree({"rate": 0.5, "weights": jnp.ones(2, jnp.bfloat16)})
    assert (state["weights"] * state["rate"]).dtype == jnp.bfloat16
    assert not jax.typeof(form(hvd.allreduce)(jnp.float32(1))).weak_type


@pytest.mark.ranks(2)
def test_a_broadcast_of_keys(form):
    received = form(lambda key: hvd.broadcast(key, 1))(jax.random.key(hvd.rank()))
    assert jax.random.uniform(received) == jax.random.uniform(jax.random.key(1))


@pytest.mark.ranks(2)
def test_passes_of_an_optimizer_whose_updates_are_wider_than_the_gradients():
    def trained(optimizer):
        weights = {"a": jnp.ones(3, jnp.bfloat16)}
        state = optimizer.init(weights)
        for _ in range(4):
            gradients = {"a": jnp.full(3, hvd.rank() + 1, jnp.bfloat16)}
            updates, state = jax.jit(optimizer.update)(gradients, state, weights)
            weights = optax.apply_updates(weights, updates)
        return weights["a"]

    adam = optax.adam(0.1, mu_dtype=jnp.float32)
    of_passes = trained(hvd.DistributedGradientTransformation(adam, backward_passes_per_step=2))
    of_optax = trained(optax.MultiSteps(hvd.DistributedGradientTransformation(adam), 2))
    assert of_passes.dtype == jnp.bfloat16 and of_passes.tolist() == of_optax.tolist()


@pytest.mark.ranks(2)
def test_hvd_jit_without_a_function_is_a_decorator():
    @hvd.jit(static_argnums=0)
    def scaled(factor, x):
        return hvd.allreduce(x) * factor

    assert scaled(2, jnp.float32(hvd.rank())) == 1
