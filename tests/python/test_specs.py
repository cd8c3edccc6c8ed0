"""Specs of operations that are remembered: which arguments mean the same one."""

from __future__ import annotations

import pytest

from hvd import _native
from hvd.reduce_op import Average, Max, Min, Sum
from hvd.specs import find_group_spec, find_spec

pytestmark = pytest.mark.quick

ARGUMENTS = {
    "collective": _native.ALLREDUCE,
    "function": "allreduce",
    "name": "test_specs",
    "process_set": 0,
    "tensor": ((2, 3), _native.FLOAT32),
    "op": Sum,
    "root_rank": 0,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
    "device": -1,
}


def spec(**different):
    return find_spec(**{**ARGUMENTS, **different})


def group_spec(**different):
    arguments = {key: value for key, value in ARGUMENTS.items() if key not in ("tensor", "root_rank")}
    return find_group_spec(**{**arguments, "tensors": (ARGUMENTS["tensor"], ((), _native.INT64)), **different})


def test_the_same_arguments_mean_the_same_spec():
    assert spec() is spec(name="test_" + "specs", tensor=((2, 3), _native.FLOAT32))
    assert spec(name=None) is spec(name=None) is not spec()
    assert group_spec() is group_spec() is not spec()
    assert group_spec() is not group_spec(tensors=(ARGUMENTS["tensor"],) * 2)
    of_vectors = {"tensors": (ARGUMENTS["tensor"],) * 2}
    assert group_spec(**of_vectors) is not group_spec(**of_vectors, output_rows=(4, 1))


@pytest.mark.parametrize(
    "different",
    [
        {"collective": _native.BROADCAST},
        {"function": "grouped_allreduce"},
        {"name": "test_specs2"},
        {"process_set": 1},
        {"tensor": ((3, 2), _native.FLOAT32)},
        {"tensor": ((2, 3), _native.FLOAT64)},
        {"op": Average},
        {"root_rank": 1},
        {"prescale_factor": 2.0},
        {"postscale_factor": 2.0},
        {"device": 0},
    ],
)
def test_any_other_argument_means_another_spec(different):
    assert spec(**different) is not spec()


def test_what_is_equal_and_not_the_same_is_never_looked_up():
    factor = [0.5]

    class Changing:
        __hash__ = object.__hash__

        def __float__(self):
            return factor[0]

    changing = Changing()
    for different in (
        {"prescale_factor": 0.0},
        {"postscale_factor": -0.0},
        {"prescale_factor": 1},
        {"postscale_factor": True},
        {"prescale_factor": changing},
        {"op": True},
        {"name": 5},
        {"name": ["unhashable"]},
    ):
        for make in (spec, group_spec):
            assert make(**different) is not make(**different)
            assert make(**different) is not make()


@pytest.mark.parametrize(
    ("different", "error"),
    [
        ({"op": 1.0}, TypeError),  # equal to that of a spec that is remembered
        ({"op": 6}, ValueError),
        ({"op": -1}, ValueError),
        ({"root_rank": 0.0}, TypeError),
        ({"root_rank": 2**31}, ValueError),
        ({"name": "a\0b"}, ValueError),
        ({"prescale_factor": "2"}, TypeError),
    ],
)
def test_wrong_arguments_are_refused_each_time(different, error):
    spec()
    for _ in range(2):
        with pytest.raises(error):
            spec(**different)


def test_what_is_remembered_is_bounded():
    first = spec(name="test_specs.first")
    for number in range(20_000):
        spec(name=f"test_specs.{number}", op=Max if number % 2 else Min)
    assert spec(name="test_specs.first") is not first
