"""What scripts may give a function, by position and by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def require_signature(function: Callable[..., Any], wanted: str, names: Mapping[str, Any]) -> None:
    """The function takes these parameters, "tensor, name=None" for instance, in this order and with these defaults,
    which may be `names`. Further ones may follow, if they need not be given."""
    expected = inspect.signature(eval(f"lambda {wanted}: None", dict(names))).parameters.values()
    given = list(inspect.signature(function).parameters.values())
    assert [(one.name, one.default) for one in given[: len(expected)]] == [(one.name, one.default) for one in expected]
    assert all(
        one.default is not one.empty or one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        for one in given[len(expected) :]
    )
