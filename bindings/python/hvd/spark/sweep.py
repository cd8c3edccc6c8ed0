"""`hvd.spark.experiments`: a sweep of independent jobs, several at a time, on one cluster."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, Union

import numpy as np

from hvd.spark import engine, run_function

Space = Union[Mapping[str, Sequence[Any]], Iterable[Mapping[str, Any]]]


def experiments(
    train: Callable[..., Any],
    space: Space,
    parallel: int | None = None,
    num_proc: int = 1,
    *,
    metric: str = "value",
    maximize: bool = False,
    log_dir: str | None = None,
    env: Mapping[str, str] | None = None,
    start_timeout: float | None = None,
) -> Any:
    """Tries a function with many parameters, and returns how well it did with each.

    A trial is a job of its own, see `hvd.spark.run`. One that fails does not end the sweep.

    Args:
        train: called as `train(**parameters)` on each rank of a trial. What rank 0 returns counts: a number, or a dict
            of several.
        space: values by parameter, of which all combinations are tried; or an iterable of dicts of parameters.
        parallel: trials at a time; by default as many as the slots allow. Must be given with Spark Connect.
        num_proc: ranks of a trial.
        metric: if `train` returns a dict, its entry by which trials are compared.
        maximize: the largest is the best; by default the smallest.
        log_dir: a folder on the driver's file system. Each trial has a folder in it, with its parameters
            (`parameters.json`), what its ranks print (`output`) and how it ended (`result.json`); its path is passed to
            `train` as `log_dir`. Without it, what ranks print appears on the driver, behind the number of the trial.
        env: variables for all ranks.
        start_timeout: see `hvd.spark.run`; it must cover the time that a trial waits for slots which others hold.

    Returns:
        A Spark DataFrame with a row for each trial, the best first, those that failed last: `trial`, the parameters,
        `value` (the metric), `results` (all that was returned, as JSON), `error`, `seconds` and `log_dir`.

    Raises:
        RuntimeError: there is no active session.
        ValueError: arguments that make no sense, or fewer slots than one trial needs.
    """
    trials = [Trial(number, parameters) for number, parameters in enumerate(_combinations(space))]
    if not trials:
        raise ValueError("the space is empty: there is nothing to try")
    spark = engine.active()
    count = _trials_at_once(spark, parallel, num_proc, run_function.start_timeout_s(start_timeout))
    job = spark.job()

    def run(trial: Trial) -> None:
        with trial.logged(log_dir) as (stdout, stderr):
            keywords = trial.parameters if log_dir is None else {**trial.parameters, "log_dir": trial.log_dir}
            results = run_function.run_on(
                spark, train, (), keywords, num_proc, start_timeout, env=env, stdout=stdout, stderr=stderr
            )
            trial.note(results[0], metric)

    with ThreadPoolExecutor(count, thread_name_prefix="hvd-trial") as pool:
        futures = [pool.submit(job.run, functools.partial(run, trial), f"trial {trial.number}") for trial in trials]
        try:
            for future in futures:
                future.result()
        except BaseException:  # Ctrl-C
            for future in futures:
                future.cancel()
            job.cancel()
            raise
    trials.sort(key=lambda trial: trial.order(maximize))
    return spark.sql_session().createDataFrame(*_table(trials)).coalesce(1)


def _combinations(space: Space) -> list[dict[str, Any]]:
    if isinstance(space, Mapping):
        return [dict(zip(space, values)) for values in itertools.product(*space.values())]
    return [dict(parameters) for parameters in space]


def _trials_at_once(
    spark: engine.Classic | engine.Connect, parallel: int | None, num_proc: int, timeout_s: float
) -> int:
    if num_proc < 1 or (parallel is not None and parallel < 1):
        raise ValueError(f"num_proc is {num_proc}, parallel is {parallel}: at least one rank, and one trial at a time")
    spark.require_slots(num_proc * (parallel or 1), timeout_s)
    if parallel is not None:
        return parallel
    if isinstance(spark, engine.Connect):
        raise ValueError("parallel must be given: Spark Connect does not say how many slots there are")
    return spark.slots() // num_proc


@dataclass
class Trial:
    number: int
    parameters: dict[str, Any]
    value: float | None = None
    results: Any = None
    error: str | None = None
    seconds: float = 0.0
    log_dir: str | None = None

    @contextlib.contextmanager
    def logged(self, log_dir: str | None) -> Iterator[tuple[TextIO | None, TextIO | None]]:
        """Measures, keeps the error, and gives the streams for what the ranks print."""
        start = time.monotonic()
        with contextlib.ExitStack() as stack:
            out: Any = _Numbered(self.number, sys.stdout)
            err: Any = _Numbered(self.number, sys.stderr)
            if log_dir is not None:
                folder = Path(log_dir, f"trial-{self.number:04}")
                folder.mkdir(parents=True, exist_ok=True)
                self.log_dir = str(folder)
                (folder / "parameters.json").write_text(_json(self.parameters))
                out = err = stack.enter_context((folder / "output").open("w"))
            try:
                yield out, err
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
            self.seconds = time.monotonic() - start
            if self.log_dir is not None:
                end = {"value": self.value, "results": self.results, "error": self.error, "seconds": self.seconds}
                Path(self.log_dir, "result.json").write_text(_json(end))

    def note(self, results: Any, metric: str) -> None:
        self.results = results
        if isinstance(results, Mapping) and metric not in results:
            raise ValueError(f"train returned no {metric!r}, but {', '.join(map(repr, results))}: say which by metric=")
        found = results[metric] if isinstance(results, Mapping) else results
        try:
            self.value = float(found)
        except (TypeError, ValueError):
            raise ValueError(f"train returned {found!r} on rank 0: expected a number, or a dict with one") from None

    def order(self, maximize: bool) -> tuple[bool, float, int]:
        is_bad = self.value is None or self.value != self.value  # not a number
        return is_bad, 0.0 if is_bad else (-1 if maximize else 1) * float(self.value or 0), self.number


class _Numbered:
    """A stream that begins each line with the number of a trial."""

    def __init__(self, number: int, stream: TextIO) -> None:
        self._tag = f"trial {number} "
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write("".join(f"{self._tag}{line}" for line in text.splitlines(keepends=True)))

    def flush(self) -> None:
        self._stream.flush()


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda one: one.item() if isinstance(one, np.generic) else str(one))


def _table(trials: Sequence[Trial]) -> tuple[list[tuple[Any, ...]], Any]:
    """Rows and their schema."""
    from pyspark.sql import types

    names = list(dict.fromkeys(name for trial in trials for name in trial.parameters))
    parameters = [{name: _plain(value) for name, value in trial.parameters.items()} for trial in trials]
    kinds = {name: _kind([each.get(name) for each in parameters]) for name in names}
    of_kind = {int: types.LongType(), float: types.DoubleType(), bool: types.BooleanType(), str: types.StringType()}
    fields = [("trial", int), *kinds.items(), ("value", float), ("results", str), ("error", str), ("seconds", float)]
    schema = types.StructType([types.StructField(name, of_kind[kind]) for name, kind in [*fields, ("log_dir", str)]])
    rows = []
    for trial, each in zip(trials, parameters):
        given = [each.get(name) for name in names]
        columns = [None if value is None else kinds[name](value) for name, value in zip(names, given)]
        results = None if trial.results is None else _json(trial.results)
        rows.append((trial.number, *columns, trial.value, results, trial.error, trial.seconds, trial.log_dir))
    return rows, schema


def _plain(value: Any) -> Any:
    """A number of NumPy (np.arange, np.float32) as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _kind(values: Sequence[Any]) -> type:
    """The narrowest of the types that a column may have."""
    present = [value for value in values if value is not None]
    for kind, accepted in ((bool, bool), (int, int), (float, (int, float))):
        if present and all(isinstance(one, accepted) and isinstance(one, bool) == (kind is bool) for one in present):
            return kind
    return str
