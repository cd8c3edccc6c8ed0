"""Arguments of the public functions: converted where that is plain, else refused with a text that names the argument
and says what it may be."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Sequence
from typing import Any

OPERATIONS = ("Average", "Sum", "Adasum", "Min", "Max", "Product")  # as in hvd.reduce_op, from 0

_ONE_OF_THE_OPERATIONS = f"{', '.join(f'hvd.{name}' for name in OPERATIONS[:-1])} or hvd.{OPERATIONS[-1]}"


def _wrong(name: str, value: object, expected: str) -> str:
    text = repr(value)
    return f"{name} is {text if len(text) <= 100 else f'a {type(value).__name__}'}: expected {expected}"


def reduce_op(value: Any) -> int:
    # Not all that operator.index() reads: torch.distributed's ReduceOp.SUM would be the number of Average.
    if not isinstance(value, numbers.Integral):
        raise TypeError(_wrong("op", value, _ONE_OF_THE_OPERATIONS))
    number = int(value)
    if not 0 <= number < len(OPERATIONS):
        raise ValueError(_wrong("op", value, _ONE_OF_THE_OPERATIONS))
    return number


def rank(value: Any, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(_wrong(name, value, "the number of a rank, from 0")) from None
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{name} is {number}: expected the number of a rank, from 0 to the number of ranks less 1")
    return number


def ranks(value: Any, name: str) -> list[int]:
    try:
        numbers = [operator.index(one) for one in value]
    except TypeError:
        raise TypeError(_wrong(name, value, "numbers of ranks, as in [0, 2]")) from None
    return [rank(number, name) for number in numbers]


def rows(value: Any, name: str) -> list[int]:
    try:
        numbers = [operator.index(one) for one in value]
    except TypeError:
        raise TypeError(_wrong(name, value, "a number of rows for each rank")) from None
    if not all(-(2**63) <= number < 2**63 for number in numbers):  # as a difference of unsigned integers may be
        raise ValueError(_wrong(name, value, "a number of rows for each rank, below 2**63"))
    return numbers


def factor(value: Any, name: str) -> float:
    try:
        # Not float() alone, which would read text.
        return float(value if hasattr(value, "__float__") else operator.index(value))
    except TypeError:
        raise TypeError(_wrong(name, value, "a number")) from None


def positive(value: Any, name: str) -> int:
    if not isinstance(value, numbers.Real):
        raise TypeError(_wrong(name, value, "a whole number, at least 1"))
    number = float(value)
    if not number >= 1:  # NaN is not
        raise ValueError(f"{name} must be at least 1, not {value}")
    if not number.is_integer():
        raise ValueError(f"{name} must be a whole number, not {value}")
    return int(number)


def operation_name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(_wrong("name", value, "a str, or None"))
    if "\0" in value:
        raise ValueError(f"name is {value!r}: a name cannot have a NUL character in it")
    try:
        value.encode()
    except UnicodeEncodeError:  # as Python reads a file's name that is no UTF-8
        raise ValueError(f"name is {value!r}: a name cannot have a surrogate in it, which is no character") from None
    return value


def outputs_apart(outputs: Sequence[Any], extents: Iterable[tuple[int, int]]) -> None:
    """ValueError if an output is in a group twice, or if two of their extents (first address and end) overlap."""
    ordered = sorted(extent for extent in extents if extent[0] < extent[1])
    overlap = any(second[0] < first[1] for first, second in zip(ordered, ordered[1:]))
    if overlap or len({id(output) for output in outputs}) < len(outputs):
        raise ValueError("outputs of a group share memory, which cannot hold two results: each may be in it once")


def process_set_number(process_set: Any) -> int:
    """The runtime's number for a process set. ValueError if it is not registered."""
    try:
        number: int | None = process_set.process_set_id
    except AttributeError:
        expected = "a ProcessSet, as hvd.add_process_set() returns one"
        raise TypeError(_wrong("process_set", process_set, expected)) from None
    if number is None:
        raise ValueError(not_registered(process_set))
    return number


def not_registered(process_set: Any) -> str:
    return (
        f"{process_set} is not registered: call hvd.add_process_set() with it on all ranks, or pass it to "
        "hvd.init(process_sets=[...])"
    )


def on_several_devices(function: str, members: str, devices: Iterable[Any]) -> str:
    names = ", ".join(map(str, dict.fromkeys(devices)))
    return (
        f"{function}: the {members} of a group are on several devices ({names}): move them to one, or make a call for "
        "each device"
    )


def layers_of(value: Any) -> list[Any]:
    """Keras layers, given as one, as a collection of them, or as None."""
    if value is None:
        return []
    if hasattr(type(value), "trainable_weights"):  # not of the layer itself: a model that is not built has none yet
        return [value]
    layers = list(value.values() if hasattr(value, "values") else value) if isinstance(value, Iterable) else [value]
    for layer in layers:
        if not hasattr(type(layer), "trainable_weights"):
            raise ValueError(f"local_layers must be Keras layers, not {type(layer).__name__}")
    return layers


def compressor(value: Any) -> Any:
    if callable(getattr(value, "compress", None)) and callable(getattr(value, "decompress", None)):
        return value
    expected = "hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16, or a class with their functions"
    raise TypeError(_wrong("compression", value, expected))
