"""Parameter servers: tables of rows that workers pull from and push gradients to, beside the same collectives.

Workers are the ranks of the job. Servers are further processes of it::

    hvdrun -np 4 --servers 2 python train.py

or the tasks of type "ps" of TF_CONFIG. All of them run the same script: `hvd.init()` in a server serves until the
workers are done, and then ends the process. In a job without servers every worker serves a part of the tables as well.
::

    hvd.init()
    servers = hvd.ps.connect()
    table = servers.table("words", width=64, optimizer=hvd.ps.Adagrad(0.05), initializer=hvd.ps.Normal(0, 0.01, seed=1))
    for keys, batch in data:
        rows = table.pull(keys)  # (len(keys), 64)
        table.push(keys, gradients(rows, batch), wait=False)
        servers.clock()
    servers.close()

Workers need not call anything together: each goes on as fast as its tables' consistency allows. Keys are integers, in
an array of any library or a sequence of Python's. Rows are float32, in a tensor of PyTorch where the keys are one, else
in an array of NumPy.

Errors: ValueError for a call that makes no sense, and for a push that a full server refuses (HVD_SERVER_MEMORY);
HorovodInternalError if a server is lost and does not come back, or comes back without its rows.
"""

from __future__ import annotations

import dataclasses
import numbers
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union

import numpy as np

from hvd import _native
from hvd._native import TableCall
from hvd.arrays import Memory, kind_of

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Add",
    "Assign",
    "Constant",
    "Custom",
    "DenseTable",
    "Ftrl",
    "Handle",
    "Normal",
    "ParameterServers",
    "Table",
    "Uniform",
    "connect",
    "register_update",
]

_BLOCK = 4096  # values in a row of a dense table


@dataclasses.dataclass(frozen=True)
class Assign:
    """A row becomes what is pushed."""


@dataclasses.dataclass(frozen=True)
class Add:
    """What is pushed is added to the row."""


@dataclasses.dataclass(frozen=True)
class SGD:
    """Gradient descent, with the bits of torch.optim.SGD on a CPU that has fused multiply-add."""

    learning_rate: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Adagrad:
    """As torch.optim.Adagrad. `row_wise`: one sum of squares for each row, of the means over its values, which halves
    the memory of a row."""

    learning_rate: float = 0.01
    accumulator: float = 0.0
    epsilon: float = 1e-10
    weight_decay: float = 0.0
    row_wise: bool = False


@dataclasses.dataclass(frozen=True)
class Adam:
    """As torch.optim.Adam, its steps counted for each row. `row_wise`: one second moment for each row."""

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    row_wise: bool = False


@dataclasses.dataclass(frozen=True)
class Ftrl:
    """FTRL-Proximal (McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013); l1 makes weights 0."""

    learning_rate: float = 0.1
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    accumulator: float = 0.0


@dataclasses.dataclass(frozen=True)
class Custom:
    """The function that servers have registered as `update` (`register_update`). `state`: values that it keeps for each
    row, besides the row, 0 at first."""

    update: str
    learning_rate: float = 0.01
    state: int = 0


@dataclasses.dataclass(frozen=True)
class Constant:
    """Rows that nobody has pushed to have this value."""

    a: float = 0.0


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Uniformly distributed in [a, b): a function of seed, key and column."""

    a: float = 0.0
    b: float = 1.0
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Normal:
    """Normally distributed with mean a and standard deviation b: a function of seed, key and column."""

    a: float = 0.0
    b: float = 1.0
    seed: int = 0


Optimizer = Union[Assign, Add, SGD, Adagrad, Adam, Ftrl, Custom]
Initializer = Union[Constant, Uniform, Normal]
Consistency = Union[Literal["asynchronous", "synchronous"], int]
Keys = Any

_RULES: tuple[type, ...] = (Assign, Add, SGD, Adagrad, Adam, Ftrl, Custom)  # in the order of hvd_ps_rule
_INITIALIZERS: tuple[type, ...] = (Constant, Uniform, Normal)


def _number_of(value: object, classes: tuple[type, ...], what: str) -> int:
    for number, cls in enumerate(classes):
        if isinstance(value, cls):
            return number
    names = ", ".join(cls.__name__ for cls in classes)
    raise TypeError(f"{what} is one of hvd.ps's {names}, not {value!r}")


def _spec(optimizer: Optimizer, initializer: Initializer, consistency: Consistency, average: bool) -> dict[str, Any]:
    rule = _number_of(optimizer, _RULES, "an optimizer")
    kind = _number_of(initializer, _INITIALIZERS, "an initializer")
    fields: dict[str, Any] = dataclasses.asdict(optimizer) | dataclasses.asdict(initializer)
    fields |= {"rule": rule, "initializer": kind}
    if consistency == "asynchronous":
        fields["consistency"] = 0
    elif consistency == "synchronous":
        fields["consistency"] = 2
    elif isinstance(consistency, numbers.Integral) and not isinstance(consistency, bool) and consistency >= 0:
        fields |= {"consistency": 1, "bound": consistency}
    else:
        raise ValueError(
            "consistency is 'asynchronous', 'synchronous', or by how many clocks a worker may be ahead, not "
            f"{consistency!r}"
        )
    return {name: int(value) if isinstance(value, bool) else value for name, value in fields.items()} | {
        "average": int(average)
    }


def _read_keys(keys: Keys) -> np.ndarray[Any, Any]:
    array = np.asarray(keys)
    if array.dtype.kind in "fO" and isinstance(keys, Sequence) and all(isinstance(key, int) for key in keys):
        # NumPy has no type for numbers below 0 and from 2^63 on together.
        if any(not -(2**63) <= key < 2**64 for key in keys):
            raise ValueError("keys have 64 bits: they are at least -2^63 and below 2^64")
        array = np.array([key % 2**64 for key in keys], dtype=np.uint64)
    if array.dtype.kind not in "iu" and array.size > 0:
        raise ValueError(f"keys are integers, not {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"keys have one dimension, not {array.ndim}: flatten them")
    return np.ascontiguousarray(array, dtype=np.int64 if array.dtype.kind == "i" else np.uint64)


def _read_values(values: Any, what: str) -> Memory:
    memory = kind_of(values).read(values)
    if memory.type.name != "float32" or memory.device != -1:
        where = "the CPU" if memory.device == -1 else f"GPU {memory.device}"
        conversion = ".float().cpu()" if _is_torch(values) else "numpy.asarray(..., numpy.float32)"
        raise ValueError(
            f"{what} must be float32 on the CPU, not {memory.type.name} on {where}: convert them, for instance with "
            f"{conversion}"
        )
    return memory


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _new_rows(shape: tuple[int, ...], like: Any) -> Any:
    if _is_torch(like):
        torch: Any = sys.modules["torch"]
        return torch.empty(shape, dtype=torch.float32)
    return np.empty(shape, dtype=np.float32)


def _late(timeout: float | None) -> str:
    return (
        f"the parameter servers have not answered within {timeout or 0:g} s; the call goes on: wait again, or look at "
        "servers.stats()"
    )


class Handle:
    """A pull or push in progress. The arrays that were given must not change until it is done."""

    def __init__(self, work: _native.TableWork, result: Any) -> None:
        self._work = work
        self._result = result

    def poll(self) -> bool:
        """Whether it is done, so that `wait()` returns at once."""
        return self._work.poll()

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the call is done.

        Args:
            timeout: in seconds; None: without limit.

        Returns:
            The rows of a pull, and None for a push.

        Raises:
            TimeoutError: it is not done after `timeout` seconds, and goes on.
            ValueError, HorovodInternalError: as the call would have, had it waited.
        """
        if not self._work.wait(timeout):
            raise TimeoutError(_late(timeout))
        return self._result

    @property
    def version(self) -> int:
        """Once done: how many updates the table had had, on the server with the fewest; 0 if none was asked."""
        return self._work.version


class _AnyTable:
    """A table is not copied with the objects that refer to it: a copy is the same table."""

    def __init__(self, native: _native.ParameterServers, name: str, number: int) -> None:
        self._native = native
        self._number = number
        self.name = name

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"the table {self.name!r} is on parameter servers, and cannot be pickled: servers.snapshot() writes its "
            "rows, and servers.table() or servers.dense() opens it in another process"
        )

    def set_learning_rate(self, rate: float) -> None:
        """Sets the learning rate of all pushes that reach the servers from now on. One worker calls it for all; returns
        when all servers have it.

        Raises:
            ValueError: the connections are closed.
            HorovodInternalError: a server was lost and did not come back.
        """
        self._native.set_learning_rate(self._number, rate).wait()


class Table(_AnyTable):
    """Rows by key, made by `ParameterServers.table`."""

    def __init__(self, native: _native.ParameterServers, name: str, number: int, width: int) -> None:
        super().__init__(native, name, number)
        self.width = width

    def pull(self, keys: Keys, out: Any = None, wait: bool = True) -> Any:
        """Returns the rows of these keys, of shape (len(keys), width). A row that nobody has pushed to has its initial
        values, and takes no memory.

        Args:
            keys: integers; a key may come several times.
            out: a contiguous float32 array of that shape, which gets the rows.
            wait: False: returns a `Handle` at once, whose `wait()` returns the rows or raises what the call would.

        Raises:
            ValueError: keys that are no integers of 64 bits, or an `out` of another kind.
            HorovodInternalError: a server was lost and did not come back, or came back without its rows.
        """
        return self._call(TableCall.PULL, keys, None, out, wait)

    def push(self, keys: Keys, gradients: Any, wait: bool = True) -> Any:
        """Applies gradients of shape (len(keys), width) by the table's optimizer. Those of a key that comes several
        times are added up. With wait=False returns a `Handle`; one that is dropped goes on, and `flush()` raises its
        error.

        Raises:
            TypeError: gradients is None.
            ValueError: keys or gradients of another type or shape; a server has no room for new rows
                (HVD_SERVER_MEMORY); or the function of a `Custom` optimizer has raised.
            HorovodInternalError: a server was lost and did not come back, or came back without its rows.
        """
        return self._call(TableCall.PUSH, keys, gradients, None, wait)

    @property
    def cache_counts(self) -> tuple[int, int]:
        """How many rows pulls of this worker have found in the table's cache, and for how many they asked servers."""
        return self._native.cache_counts(self._number)

    def push_pull(self, keys: Keys, gradients: Any, out: Any = None, wait: bool = True) -> Any:
        """`push`, and the rows after it, in one round trip. Not for synchronous tables. Arguments, result and errors
        are those of `push` and `pull`."""
        return self._call(TableCall.PUSH_PULL, keys, gradients, out, wait)

    def _call(self, call: TableCall, keys: Keys, gradients: Any, out: Any, wait: bool) -> Any:
        numbers = _read_keys(keys)
        shape = (len(numbers), self.width)
        given = None
        if gradients is not None:
            given = _read_values(gradients, "gradients")
            if tuple(given.shape) != shape:
                raise ValueError(f"gradients have the shape {tuple(given.shape)}, not {shape}: a row for each key")
        elif call is not TableCall.PULL:
            raise TypeError(
                "push and push_pull need gradients, an array of shape (len(keys), width); to read rows only, call pull"
            )
        room = None
        if call is not TableCall.PUSH:
            rows = _new_rows(shape, keys) if out is None else out
            room = kind_of(rows).write(rows)
            if room.type.name != "float32" or tuple(room.shape) != shape or room.finish is not None:
                raise ValueError(f"out is a contiguous float32 array of shape {shape}")
        asked = kind_of(numbers).read(numbers)
        work = self._native.start(
            call,
            self._number,
            asked.address if len(numbers) else 8,  # any but NULL, which means all rows
            len(numbers),
            given.address if given else 0,
            room.address if room else 0,
            (asked, given, room),
        )
        handle = Handle(work, room.owner if room else None)
        return handle.wait() if wait else handle


class DenseTable(_AnyTable):
    """Arrays that exist as a whole, made by `ParameterServers.dense`. A call's arrays are in one of the forms that
    `dense()` takes, with the same shapes."""

    def __init__(self, native: _native.ParameterServers, name: str, number: int, shapes: list[tuple[int, ...]]) -> None:
        super().__init__(native, name, number)
        self._sizes = [int(np.prod(shape)) for shape in shapes]
        self._shapes = shapes

    def pull(self, out: Any, wait: bool = True) -> Any:
        """Copies the servers' values into `out`; of a synchronous table as of this worker's clock, which all workers
        must reach first.

        Args:
            out: arrays of the shapes given to `dense()`, which can be changed.
            wait: False: returns a `Handle` at once, whose `wait()` fills `out` and returns it.

        Returns:
            `out`.

        Raises:
            ValueError: `out` has other shapes.
            HorovodInternalError: a server was lost and did not come back, or came back without its rows.
        """
        flat = np.empty(sum(self._sizes), dtype=np.float32)
        return self._start(TableCall.PULL, None, flat, out, wait)

    def push(self, gradients: Any, wait: bool = True) -> Any:
        """Applies gradients by the table's optimizer.

        Args:
            gradients: arrays of the shapes given to `dense()`; copied, as float32, before the call returns.
            wait: False: returns a `Handle` at once; the error of one that is dropped is raised by `flush()`.

        Raises:
            ValueError: gradients of other shapes, or refused by a `Custom` optimizer.
            HorovodInternalError: a server was lost and did not come back, or came back without its rows.
        """
        return self._start(TableCall.PUSH, self._flattened(gradients), None, None, wait)

    def push_pull(self, gradients: Any, out: Any, wait: bool = True) -> Any:
        """`push`, and the values after it, in one round trip. Arguments, result and errors are those of `push` and
        `pull`; ValueError for a synchronous table."""
        flat = self._flattened(gradients)
        return self._start(TableCall.PUSH_PULL, flat, flat, out, wait)

    def _flattened(self, arrays: Any) -> np.ndarray[Any, Any]:
        return _flattened(_arrays_of(arrays), self._shapes)

    def _start(self, call: TableCall, gradients: Any, rows: Any, out: Any, wait: bool) -> Any:
        targets = _arrays_of(out) if rows is not None else []
        if rows is not None:
            _require_shapes(targets, self._shapes)
        flat = gradients if gradients is not None else rows
        work = self._native.start(
            call,
            self._number,
            0,
            flat.size,
            0 if gradients is None else gradients.ctypes.data,
            0 if rows is None else rows.ctypes.data,
            (gradients, rows),
        )
        handle = _DenseHandle(work, rows, targets, self._shapes, out)
        return handle.wait() if wait else handle


class _DenseHandle(Handle):
    def __init__(
        self, work: _native.TableWork, flat: Any, targets: list[Any], shapes: list[tuple[int, ...]], out: Any
    ) -> None:
        super().__init__(work, out)
        self._flat, self._targets, self._shapes = flat, targets, shapes

    def wait(self, timeout: float | None = None) -> Any:
        result = super().wait(timeout)
        if self._flat is not None:
            _scatter(self._flat, self._targets, self._shapes)
            self._flat = None
        return result


def _arrays_of(arrays: Any) -> list[Any]:
    """One array, a sequence or iterable of them, a mapping, or torch's named_parameters()."""
    if isinstance(arrays, Mapping):
        return list(arrays.values())
    if hasattr(arrays, "shape"):
        return [arrays]
    found = list(arrays) if isinstance(arrays, Iterable) else [arrays]
    return [one[1] if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) else one for one in found]


def _shape_of(array: Any) -> tuple[int, ...]:
    if not hasattr(array, "shape"):
        raise TypeError(
            f"{array!r} is no array: expected an array, several, a mapping of them, or a module's named_parameters()"
        )
    return tuple(int(size) for size in array.shape)


def _require_shapes(arrays: list[Any], shapes: list[tuple[int, ...]]) -> None:
    given = [_shape_of(array) for array in arrays]
    if given != shapes:
        raise ValueError(f"arrays of the shapes {shapes} are needed, not {given}")


def _flattened(arrays: list[Any], shapes: list[tuple[int, ...]]) -> np.ndarray[Any, Any]:
    _require_shapes(arrays, shapes)
    flat = np.empty(sum(int(np.prod(shape)) for shape in shapes), dtype=np.float32)
    begin = 0
    for array in arrays:
        # NumPy has no bfloat16.
        values = array.detach().float().cpu().numpy() if _is_torch(array) else np.asarray(array)
        flat[begin : begin + values.size] = values.reshape(-1)
        begin += values.size
    return flat


def _scatter(flat: np.ndarray[Any, Any], targets: list[Any], shapes: list[tuple[int, ...]]) -> None:
    begin = 0
    for target, shape in zip(targets, shapes):
        size = int(np.prod(shape))
        values = flat[begin : begin + size].reshape(shape)
        begin += size
        if _is_torch(target):
            torch: Any = sys.modules["torch"]
            with torch.no_grad():
                target.copy_(torch.from_numpy(values))
        else:
            target[...] = values


class ParameterServers:
    """A worker's connections with all parameter servers; `connect()` makes them. A context manager: leaving it closes
    them, unless by an exception."""

    def __init__(self) -> None:
        self._native = _native.ParameterServers()
        self._tables: dict[str, Table] = {}
        _connections.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("connections with parameter servers cannot be copied or pickled: hvd.ps.connect() makes them")

    def table(
        self,
        name: str,
        width: int,
        optimizer: Optimizer = SGD(),
        initializer: Initializer = Constant(),
        consistency: Consistency = "asynchronous",
        rows: int = 0,
        average: bool = True,
        max_age: int = 0,
        cache: int = 0,
    ) -> Table:
        """A table of rows by 64-bit key, dealt to the servers by a hash of the key; opened where it exists already.

        Workers that open it pass the same arguments, at any time; `cache` may be another one for each. A row is created
        by its first push.

        Args:
            width: float32 values in a row, at most 65536.
            optimizer: what a push does: `Assign`, `Add`, `SGD`, `Adagrad`, `Adam`, `Ftrl`, `Custom`.
            initializer: of rows that nobody has pushed to: `Constant`, `Uniform`, `Normal`.
            consistency: "asynchronous": pushes take effect when they arrive, pulls return what is there. A number s:
                likewise, but a pull waits while another worker is more than s clocks behind this one. "synchronous": a
                pull waits until all workers have reached this one's clock; the pushes of a clock are added up in the
                order of ranks and take effect together, with the same bits in every run.
            rows: how many each server keeps: beyond, those go that were not used for the longest time, and begin anew
                when they are pushed to again. 0: all.
            average: synchronous: sums are divided by the number of workers.
            max_age: rows that nobody has pulled or pushed for so many clocks of the slowest worker go, before twice as
                many have passed, and begin anew. 0: none. Not for synchronous tables.
            cache: a pull may return rows that an earlier pull of this worker has brought, at most so many of its clocks
                ago; never from before its own last push to them. 0: none. Not for synchronous tables, and for workers
                that call `clock()`, which is what makes rows of the cache old.

        Raises:
            ValueError: an argument is out of its range, or this worker has opened the table with other arguments.
            TypeError: `optimizer` or `initializer` is none of those above, or a number is no integer.
            HorovodInternalError: another worker has opened it with other arguments, or a server was lost.
        """
        for what, value in {"width": width, "rows": rows, "max_age": max_age, "cache": cache}.items():
            if not isinstance(value, numbers.Integral):
                raise TypeError(f"{what} is {value!r}: expected an integer")
        fields = _spec(optimizer, initializer, consistency, average)
        number = self._native.open(name, dense=0, width=width, rows=rows, max_age=max_age, cache=cache, **fields)
        self._tables[name] = Table(self._native, name, number, width)
        return self._tables[name]

    def dense(
        self,
        name: str,
        values: Any,
        optimizer: Optimizer = SGD(),
        consistency: Consistency = "asynchronous",
        average: bool = True,
        compensation: float = 0.0,
    ) -> DenseTable:
        """Arrays on the servers, in parts of equal size: the parameters of a model. Opened where it exists already.

        The first values are those of rank 0: the other workers wait for them. Workers that open it pass arrays of the
        same shapes, and otherwise the same arguments.

        Args:
            values: an array, a sequence of arrays, a mapping, or a module's named_parameters(). Of rank 0, their first
                values; unchanged. float32, or what converts to it.
            optimizer, consistency, average: as for `table`.
            compensation: factor c of delay compensation, for tables that are not synchronous, with an optimizer that
                has a learning rate: a gradient g is replaced by g + c g g (w - w_pulled), where w is the present value,
                and w_pulled the value that this worker pulled last (DC-ASGD, Zheng et al., "Asynchronous Stochastic
                Gradient Descent with Delay Compensation", ICML 2017). Servers keep a copy of the table for each worker.
                0: none.

        Raises:
            ValueError: there are no values, an argument is out of its range, or this worker has opened the table with
                other arguments.
            TypeError: `values` has what is no array, or `optimizer` is none of hvd.ps.
            HorovodInternalError: another worker has opened it with other arguments, or a server was lost.
        """
        arrays = _arrays_of(values)
        shapes = [_shape_of(array) for array in arrays]
        size = sum(int(np.prod(shape)) for shape in shapes)
        if size == 0:
            raise ValueError(f"the table {name!r} has no values")
        fields = _spec(optimizer, Constant(), consistency, average)
        rows = -(-size // _BLOCK)
        fields |= {"dense": 1, "filled": 1, "compensation": compensation}
        number = self._native.open(name, width=_BLOCK, rows=rows, **fields)
        if _native.rank() == 0:
            flat = _flattened(arrays, shapes)
            self._native.fill(number, flat.ctypes.data, flat.size, flat).wait()
        return DenseTable(self._native, name, number, shapes)

    def clock(self) -> None:
        """This worker has finished a clock, usually a step. Returns at once."""
        self._native.clock()

    @property
    def clocks(self) -> tuple[int, int]:
        """This worker's clock, and the lowest one of all workers, as of the servers' last answers."""
        return self._native.clocks

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all calls of this worker are done; raises the first error of those whose handle was dropped.
        TimeoutError after `timeout` seconds."""
        if not self._native.flush(timeout):
            raise TimeoutError(_late(timeout))

    def stats(self, timeout: float | None = None) -> list[dict[str, dict[str, int]]]:
        """For each server (with HVD_SERVER_PARTS, each part) its tables' numbers by name: rows, bytes, updates, pushes,
        pulls, evicted, and by how many updates pushes were stale (staleness_median, staleness_worst). "-" is the whole
        server: bytes, min_clock. TimeoutError after `timeout` seconds."""
        result: list[dict[str, dict[str, int]]] = []
        asked = Handle(self._native.stats(), None)
        asked.wait(timeout)
        for line in asked._work.stats.split("\n")[:-1]:  # names may have other separators of lines
            server, rest = line.split(" ", 1)
            while len(result) <= int(server):
                result.append({})
            name, what, number = rest.rsplit(" ", 2)
            result[int(server)].setdefault(name, {})[what] = int(number)
        return result

    def snapshot(self, folder: str | os.PathLike[str], timeout: float | None = None) -> None:
        """Every server writes its state into this folder, as of one moment, while it goes on. Returns when all files
        are complete. One worker calls it for all.

        Args:
            folder: which all servers can reach.
            timeout: in seconds; None: without limit.

        Raises:
            TimeoutError: after `timeout` seconds; the servers go on with it, as after Ctrl-C.
            HorovodInternalError: a server cannot write its file, or was lost.
        """
        Handle(self._native.snapshot(os.path.abspath(folder)), None).wait(timeout)

    def restore(self, folder: str | os.PathLike[str], timeout: float | None = None) -> None:
        """Takes rows and optimizer states of such a folder, written by any number of servers. One worker calls it for
        all, after the tables were opened and before anything is pushed. It empties the caches of this worker only.

        Raises:
            ValueError: there is no snapshot, or it is damaged.
            HorovodInternalError: a server was lost, or the job ended.
            TimeoutError: after `timeout` seconds; the servers go on with it.
        """
        Handle(self._native.restore(os.path.abspath(folder)), None).wait(timeout)

    @property
    def count(self) -> int:
        """The number of servers."""
        return self._native.servers[0]

    def close(self) -> None:
        """This worker has no more to do: waits for its calls, and leaves. In a job whose workers serve, waits for the
        others, too. After Ctrl-C it may be called again.

        Raises:
            ValueError, HorovodInternalError: the first error of calls whose handle was dropped.
        """
        self._native.close()

    def __enter__(self) -> ParameterServers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()


def connect() -> ParameterServers:
    """Connects this worker with all parameter servers of its job, after `hvd.init()`. Waits for servers that are still
    starting.

    Raises:
        ValueError: this process is connected already: use that connection, or `close()` it first.
        HorovodInternalError: a server has not come within HVD_START_TIMEOUT.
    """
    return ParameterServers()


_connections: weakref.WeakSet[ParameterServers] = weakref.WeakSet()


def find_table(name: str) -> Table:
    """The table of this name that this process has opened by `ParameterServers.table`, for what is loaded from a file.

    Raises:
        ValueError: there is none.
    """
    for connection in _connections:
        if not connection._native.is_closed and name in connection._tables:
            return connection._tables[name]
    raise ValueError(f"no table {name!r} is open: open it by servers.table() before what refers to it is loaded")


Update = Callable[[Any, Any, Any, float], None]


def register_update(name: str, function: Update) -> None:
    """Makes a function the optimizer of tables whose optimizer is `Custom(name)`.

    Every process that serves calls it: in the script of the job before `hvd.init()`, which does not return in servers.
    A function of the same name is replaced, for tables that are opened afterwards.

    Args:
        function: called with rows (count, width), their gradients (count, width), their state (count, `Custom.state`),
            and the learning rate; arrays of NumPy, float32, that are valid during the call. It changes rows and state
            in place. Each row comes once: gradients of a key that comes several times are added up before. It must not
            call hvd. If it raises, the server prints the exception, nothing is changed, and the push raises ValueError.

    >>> def sign_descent(rows, gradients, state, learning_rate):
    ...     rows -= learning_rate * np.sign(gradients)
    >>> hvd.ps.register_update("sign", sign_descent)
    """

    def on_arrays(rows: memoryview, gradients: memoryview, state: memoryview, learning_rate: float) -> None:
        function(np.asarray(rows), np.asarray(gradients), np.asarray(state), learning_rate)

    _native.register_update(name, on_arrays)
