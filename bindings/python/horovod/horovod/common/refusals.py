"""Where Horovod refuses what hvd can do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hvd.arguments import OPERATIONS, reduce_op
from hvd.reduce_op import Average, Sum


def averages_and_sums_only(collective: Callable[..., Any], refuse: Callable[[str], Any]) -> Callable[..., Any]:
    """The collective, for these two operations; with another one what `refuse` does, which is told why."""
    signature = inspect.signature(collective)

    @functools.wraps(collective)
    def checked(*args: Any, **kwargs: Any) -> Any:
        op = signature.bind(*args, **kwargs).arguments.get("op")
        if op in (None, Average, Sum):
            return collective(*args, **kwargs)
        complete = collective.__module__.rpartition(".")[0]
        name = OPERATIONS[reduce_op(op)]
        return refuse(
            f"{collective.__name__} supports Average and Sum here, as Horovod's does, and not {name}: use "
            f"{complete}.{collective.__name__}, which has Min, Max and Product as well"
        )

    return checked
