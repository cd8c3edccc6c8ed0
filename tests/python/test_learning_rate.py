"""Linear scaling with warm-up: the rates themselves."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy
import pytest

from hvd.learning_rate import LinearScaling


def halved_every_ten(step):
    return 0.5 ** (step // 10)


# rate, warmup_steps, factor; and the rates that it has after how many steps
TABLE = [
    ((0.1, 4, 3), {0: 0.1, 1: 0.15, 2: 0.2, 3: 0.25, 4: 0.3, 5: 0.3, 10**9: 0.3}),
    ((0.1, 0, 3), {0: 0.3, 1: 0.3, 7: 0.3}),
    ((0.1, 4, 1), {0: 0.1, 3: 0.1, 4: 0.1, 100: 0.1}),
    ((0.4, 2, 0.5), {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.2}),
    ((1.0, 2.5, 2), {0: 1.0, 1: 1.4, 2: 1.8, 3: 2.0}),
    ((halved_every_ten, 4, 3), {0: 1.0, 2: 2.0, 4: 3.0, 9: 3.0, 10: 1.5, 25: 0.75}),
    ((halved_every_ten, 20, 3), {0: 1.0, 10: 1.0, 20: 0.75, 30: 0.375}),
]


@pytest.mark.quick
@pytest.mark.parametrize("arguments, rates", TABLE)
def test_rates(arguments, rates):
    schedule = LinearScaling(*arguments)
    assert [schedule(step) for step in rates] == pytest.approx(list(rates.values()), rel=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("arguments, rates", TABLE)
@pytest.mark.parametrize("dtype", ["int32", "uint64", "float64"])
def test_rates_of_arrays_of_steps(arguments, rates, dtype):
    calculated = LinearScaling(*arguments)(numpy.array(list(rates), dtype))
    assert calculated == pytest.approx(numpy.array(list(rates.values())), rel=1e-12)


@pytest.mark.quick
def test_rates_are_exact_at_both_ends():
    schedule = LinearScaling(0.1, 1000, 8)
    assert schedule(0) == 0.1 and schedule(1000) == schedule(123456789) == 0.8


@pytest.mark.quick
def test_it_does_not_branch_on_the_step():
    """As the tracers of JAX, and the symbolic tensors of TensorFlow, do not say whether they are true."""

    class Traced:
        def __init__(self, value):
            self.value = value

        def __bool__(self):
            raise AssertionError("asked whether it is true")

        def __abs__(self):
            return Traced(abs(self.value))

        def __rsub__(self, other):
            assert isinstance(self.value, float)  # TensorFlow's integers take no part in floating point
            return Traced(other - self.value)

        def __add__(self, other):
            return Traced(self.value + other.value)

        def __mul__(self, other):
            return Traced(self.value * other)

        def __truediv__(self, other):
            return Traced(self.value / other)

        __rmul__ = __mul__

    schedule = LinearScaling(0.1, 4, 3)
    assert [schedule(Traced(step)).value for step in (0, 2, 9)] == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.quick
def test_it_can_be_pickled():
    schedule = LinearScaling(halved_every_ten, 4, 3)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


@pytest.mark.quick
@pytest.mark.parametrize("arguments", [(0.1, 0, 0), (0.1, 0, -2), (0.1, -1, 2), (0.1, 0, float("nan"))])
def test_what_makes_no_sense_is_refused(arguments):
    with pytest.raises(ValueError, match="cannot"):
        LinearScaling(*arguments)


@pytest.mark.quick
def test_without_a_factor_it_needs_the_job():
    program = (
        "import hvd.learning_rate, sys\ntry: hvd.learning_rate.LinearScaling(0.1)\nexcept ValueError as e: print(e)"
    )
    program += "\nprint(sorted({'torch', 'numpy', 'keras', 'tensorflow', 'jax'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "init" in done.stdout and done.stdout.endswith("[]\n")
