"""Errors: of one rank's call, of ranks that disagree, and what still works afterwards."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import tensorflow as tf

import hvd.tensorflow as hvd
from hvd.process_set import ProcessSet
from tensorflow_modes import MODES, run
from timeouts import at_most

errors = tf.errors


def still_works() -> bool:
    return hvd.allreduce(tf.ones(3), op=hvd.Sum).numpy().tolist() == [hvd.size()] * 3


def by_rank(first: object, others: object) -> object:
    return first if hvd.rank() == 0 else others


DISAGREEMENTS = {
    "shape": (lambda name: hvd.allreduce(tf.ones(by_rank(17, 19)), name=name), "17", "19"),
    "dtype": (lambda name: hvd.allreduce(tf.ones(3, by_rank(tf.int32, tf.float64)), name=name), "int32", "float64"),
    "operation": (lambda name: hvd.allreduce(tf.ones(3), op=by_rank(hvd.Max, hvd.Sum), name=name), "max", "sum"),
    "scale": (lambda name: hvd.allreduce(tf.ones(3), prescale_factor=by_rank(0.25, 0.5), name=name), "0.25", "0.5"),
    "root": (lambda name: hvd.broadcast(tf.ones(3), by_rank(0, 1), name=name), "0", "1"),
    "rows": (lambda name: hvd.allgather(tf.ones([2, by_rank(17, 19)]), name=name), "17", "19"),
    "number": (lambda name: hvd.grouped_allreduce([tf.ones(3)] * by_rank(2, 3), name=name), "2", "3"),
}


@pytest.mark.timed
@pytest.mark.ranks(2, 4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_every_rank_hears_of_a_disagreement(what, mode):
    call, first, other = DISAGREEMENTS[what]
    name, start = f"disagreement_{what}_{mode}", time.monotonic()
    with pytest.raises(errors.FailedPreconditionError) as error:
        run(mode, lambda: call(name))
    assert time.monotonic() - start < at_most(5)
    text = error.value.message
    assert re.search(r"rank 0\b", text) and re.search(r"rank [1-9]\b", text), text
    assert "hvd: " in text and name in text and first in text and other in text, text
    # The name can be used again, and everything else goes on.
    assert still_works()
    assert hvd.allreduce(tf.ones(3), name=name).numpy().tolist() == [1, 1, 1]


@pytest.mark.ranks(2, 4)
@pytest.mark.parametrize("mode", MODES)
def test_wrong_calls(mode):
    ones, size = np.ones(4, np.float32), hvd.size()
    alone = hvd.add_process_set([0])
    calls = {
        "root": lambda: hvd.broadcast(ones, size),
        "negative root": lambda: hvd.broadcast(ones, -1),
        "too few splits": lambda: hvd.alltoall(ones, splits=[4]),
        "too many rows": lambda: hvd.alltoall(ones, splits=[5] * size)[0],
        "negative splits": lambda: hvd.alltoall(ones, splits=[-1] * size)[0],
        "no splits": lambda: hvd.alltoall(ones, splits=tf.zeros([0], tf.int32))[0],
        "real splits": lambda: hvd.alltoall(ones, splits=[1.0] * size)[0],
        "splits with two dimensions": lambda: hvd.alltoall(ones, splits=[[1]] * size)[0],
        "rows that do not divide": lambda: hvd.alltoall(tf.ones(size + 1)),
        "sum of bools": lambda: hvd.allreduce(tf.constant([True]), op=hvd.Sum),
        "adasum of integers": lambda: hvd.allreduce(tf.constant([1]), op=hvd.Adasum),
    }
    if hvd.rank() != 0:
        calls["foreign set"] = lambda: hvd.allreduce(ones, process_set=alone)
    for what, call in calls.items():
        with pytest.raises(errors.InvalidArgumentError, match="hvd: "):
            run(mode, call)
            pytest.fail(what)
    with pytest.raises(ValueError, match=r"op is 17: expected hvd\.Average"):
        run(mode, lambda: hvd.allreduce(ones, op=17))
    assert still_works()
    hvd.remove_process_set(alone)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("mode", MODES)
def test_rows_of_a_scalar(mode):
    scalar = tf.constant(1.0)
    for call in (
        hvd.allgather,
        hvd.reducescatter,
        lambda tensor: hvd.grouped_allgather([tf.ones(1), tensor]),
        lambda tensor: hvd.grouped_reducescatter([tf.ones(1), tensor]),
    ):
        with pytest.raises(errors.FailedPreconditionError, match=r"hvd: .*dimension"):
            run(mode, call, scalar)
    assert still_works()


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("mode", MODES)
def test_wrong_arguments(mode):
    ones = np.ones([2, 2])
    slices = tf.IndexedSlices(ones, np.array([0, 1]))
    invented = ProcessSet([0])
    invented.process_set_id = 77
    for kind, call in (
        (ValueError, lambda: hvd.allreduce(ones, process_set=ProcessSet([0]))),
        (ValueError, lambda: hvd.allreduce(ones, process_set=invented)),
        (ValueError, lambda: hvd.alltoall(ones, process_set=invented)),
        (ValueError, lambda: hvd.size_op(process_set_id=77)),
        (ValueError, lambda: hvd.process_set_included_op(process_set_id=77)),
        (ValueError, lambda: hvd.allreduce(ones, average=True, op=hvd.Sum)),
        (TypeError, lambda: hvd.allreduce(ones, op="sum")),
        (TypeError, lambda: hvd.allreduce(ones, postscale_factor="a")),
        (TypeError, lambda: hvd.allreduce(ones, process_set=0)),
        (TypeError, lambda: hvd.allreduce(ones, compression="fp16")),
        (TypeError, lambda: hvd.reducescatter(ones, compression="fp16")),
        (TypeError, lambda: hvd.reducescatter(ones, op="sum")),
        (ValueError, lambda: hvd.grouped_reducescatter([ones], op=17)),
        (TypeError, lambda: hvd.broadcast(ones, "0")),
        (NotImplementedError, lambda: hvd.allreduce(slices, op=hvd.Min)),
        (NotImplementedError, lambda: hvd.allreduce(slices, op=hvd.Adasum)),
        (NotImplementedError, lambda: hvd.allreduce(slices, prescale_factor=2.0)),
        (NotImplementedError, lambda: hvd.grouped_allreduce([slices, ones], op=hvd.Min)),
        ((TypeError, errors.InvalidArgumentError), lambda: hvd.allreduce(tf.constant(["text"]))),
        ((TypeError, errors.InvalidArgumentError), lambda: hvd.allgather(tf.constant(["text"]))),
        (ValueError, lambda: hvd.allreduce(tf.constant([1j]), op=hvd.Min)),
        (ValueError, lambda: hvd.reducescatter(tf.constant([1j]), op=hvd.Product)),
    ):
        with pytest.raises(kind):
            run(mode, call)
    assert still_works()


@pytest.mark.ranks(1, 2)
def test_xla_is_told_apart():
    variable = tf.Variable([1.0])
    calls = {
        "allreduce": lambda: hvd.allreduce(variable),
        "allgather": lambda: hvd.allgather(variable),
        "broadcast": lambda: hvd.broadcast(variable, 0),
        "broadcast_variables": lambda: hvd.broadcast_variables([variable], 0),
        "size": lambda: hvd.size_op(),
        "rank": lambda: hvd.rank_op(),
        "nested": lambda: tf.function(lambda: hvd.reducescatter(variable))(),
    }
    for what, call in calls.items():

        @tf.function(jit_compile=True, autograph=False)
        def compiled(call=call):
            call()
            return tf.add(1.0, 1.0)

        with pytest.raises(ValueError, match=r"hvd\.\w+ is inside tf\.function\(jit_compile=True\)"):
            compiled()
            pytest.fail(what)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            loss = tf.function(lambda: tf.reduce_sum(variable * variable), jit_compile=True)()
        return hvd.DistributedGradientTape(tape).gradient(loss, [variable])

    assert train()[0].numpy().tolist() == [2.0]  # XLA where it may be
    assert still_works()


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("mode", MODES)
def test_without_a_runtime(mode):
    traced = tf.function(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum), autograph=False)
    assert traced(tf.ones(1)).numpy() == hvd.size()
    size = hvd.size()
    hvd.barrier()
    hvd.shutdown()
    for call in (
        hvd.rank,
        lambda: run(mode, hvd.allreduce, tf.ones(1)),
        lambda: run(mode, hvd.broadcast, tf.ones(1), 0) if mode == "eager" else hvd.broadcast(tf.ones(1), 0),
        lambda: hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0)),
        lambda: hvd.broadcast_variables([tf.Variable(1.0)], 0),
        lambda: hvd.allgather_object(1),
        hvd.join,
    ):
        with pytest.raises(ValueError, match="init"):
            call()
    with pytest.raises(errors.OpError, match=r"hvd: .*init"):
        traced(tf.ones(1))
    with pytest.raises(errors.OpError, match=r"hvd: .*init"):
        run(mode, hvd.size_op)
    hvd.init()
    assert traced(tf.ones(1)).numpy() == size  # a function outlives the runtime that it was traced with
    assert still_works()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("way", ["eager", "function"])
def test_a_rank_that_leaves(way):
    """Its leaving breaks what the others wait for: a HorovodInternalError where hvd's Python code stands between."""
    traced = tf.function(lambda tensor: hvd.allreduce(tensor, name="left"), autograph=False)
    if hvd.rank() == 0:
        hvd.shutdown()
    else:
        with pytest.raises((errors.UnknownError, ValueError)) as error:
            (traced if way == "function" else lambda tensor: hvd.allreduce(tensor, name="left"))(tf.ones(1))
        assert isinstance(error.value, ValueError) or "rank 0" in error.value.message
        if way == "eager" and isinstance(error.value, errors.OpError):
            assert isinstance(error.value, hvd.HorovodInternalError)
        hvd.shutdown()
    hvd.init()
    assert still_works()
