"""Parameter servers in PyTorch: everything in `hvd.ps`, embeddings whose rows live on servers, and an optimizer for
dense parameters that do.

Large tables on servers, the layers above them averaged over the ranks as always, in one script::

    import hvd.torch as hvd

    hvd.init()
    servers = hvd.ps.connect()
    embedding = hvd.ps.EmbeddingBag(servers.table("items", width=64, optimizer=hvd.ps.Adagrad(0.05)))
    dense = torch.nn.Linear(64, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(dense.parameters(), lr=0.1), named_parameters=dense.named_parameters()
    )
    hvd.broadcast_parameters(dense.state_dict(), root_rank=0)
    for keys, labels in data:
        optimizer.zero_grad()
        loss = loss_of(dense(embedding(keys)), labels)
        loss.backward()  # pushes the rows' gradients, and averages those of `dense`
        optimizer.step()
        servers.clock()
    servers.close()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple

import torch
from torch.nn import functional

from hvd import basics
from hvd.ps import (
    SGD,
    Adagrad,
    Adam,
    Add,
    Assign,
    Consistency,
    Constant,
    Custom,
    DenseTable,
    Ftrl,
    Handle,
    Normal,
    Optimizer,
    ParameterServers,
    Table,
    Uniform,
    connect,
    register_update,
)

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Add",
    "Assign",
    "Constant",
    "Custom",
    "DenseOptimizer",
    "DenseTable",
    "Embedding",
    "EmbeddingBag",
    "Ftrl",
    "Handle",
    "Normal",
    "ParameterServers",
    "Table",
    "Uniform",
    "connect",
    "register_update",
]

_AHEAD = 8  # batches that may have been prefetched and not used; older ones are forgotten


class _Batch(NamedTuple):
    keys: torch.Tensor  # as given
    unique: torch.Tensor  # on the CPU
    places: torch.Tensor  # in `unique`, in the shape of `keys`
    pull: Handle


class _Rows(torch.nn.Module):
    """Looks batches of keys up in a table, each key once."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        if not isinstance(table, Table):
            raise ValueError(f"a table made by ParameterServers.table() is needed, not {type(table).__name__}")
        self.table = table
        self._prefetched: deque[_Batch] = deque(maxlen=_AHEAD)
        self._pushes: deque[Handle] = deque()

    def prefetch(self, keys: torch.Tensor) -> None:
        """Starts to pull the rows of a batch, so that they are there when `forward` gets the same keys, on the same
        device. Returns at once.

        Call it before the backward pass of the batch before, to hide the time that the rows need. They are then as they
        were before that pass: one step older than without. With a synchronous table call it after `clock()`.
        """
        _require_keys(keys)
        self._prefetched.append(self._start(keys.detach().clone()))  # the caller may fill the same tensor anew

    def extra_repr(self) -> str:
        return f"{self.table.name!r}, width={self.table.width}"

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the same table, and nothing of what is under way."""
        return {**self.__dict__, "_prefetched": deque(maxlen=_AHEAD), "_pushes": deque()}

    def _start(self, keys: torch.Tensor) -> _Batch:
        unique, places = torch.unique(keys.detach(), return_inverse=True)
        unique = unique.cpu()
        return _Batch(keys.detach(), unique, places, self.table.pull(unique, wait=False))

    def _rows(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows that a batch needs, and for each of its keys which of them. Their gradients will be pushed."""
        _require_keys(keys)
        batch = self._take(keys) or self._start(keys)
        rows: torch.Tensor = batch.pull.wait()
        self._check_pushes()
        if torch.is_grad_enabled():
            unique = batch.unique  # a hook that held the batch would hold the rows, which hold the hook
            rows.requires_grad_()
            rows.register_hook(lambda gradients: self._push(unique, gradients))
        return rows.to(batch.places.device), batch.places

    def _take(self, keys: torch.Tensor) -> _Batch | None:
        for number, batch in enumerate(self._prefetched):
            alike = (batch.keys.shape, batch.keys.device) == (keys.shape, keys.device)
            if batch.keys is keys or (alike and torch.equal(batch.keys, keys)):
                del self._prefetched[number]
                return batch
        return None

    def _push(self, keys: torch.Tensor, gradients: torch.Tensor) -> None:
        self._pushes.append(self.table.push(keys, gradients.contiguous(), wait=False))

    def _check_pushes(self) -> None:
        """Raises the error of an earlier push, if it is known."""
        while self._pushes and self._pushes[0].poll():
            self._pushes.popleft().wait()


def _require_keys(keys: object) -> None:
    if not isinstance(keys, torch.Tensor):
        raise ValueError(f"keys are a tensor of integers, not {type(keys).__name__}")
    if keys.is_floating_point() or keys.is_complex() or keys.dtype == torch.bool:
        raise ValueError(f"keys are integers, not {keys.dtype}")


class Embedding(_Rows):
    """As torch.nn.Embedding, for a table on parameter servers: it has no parameters, and belongs to no optimizer.

    `forward(keys)` takes integers of any shape and returns their rows, of shape (*keys.shape, width), on the device of
    the keys. It pulls each different row once. The backward pass pushes the rows' gradients, those of a key that comes
    several times added up, and waits for nothing: with a full server, the error is raised by a later `forward`, or by
    `flush()`. Under no_grad nothing is pushed.

    The table's optimizer gets the gradient as it is. Asynchronous workers each push their own: N of them take N steps
    where one would take one, so that a learning rate that was right for one worker is to be divided by N.

    Args:
        table: of `ParameterServers.table`.

    Raises:
        ValueError: in `forward` and `prefetch`: keys that are not integers.
    """

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        rows, places = self._rows(keys)
        return functional.embedding(places, rows)


class EmbeddingBag(_Rows):
    """As torch.nn.EmbeddingBag, for a table on parameter servers; `Embedding` says how.

    `forward(keys, offsets=None, per_sample_weights=None)` returns a row for each bag, of shape (bags, width). Bags are
    the rows of 2-D keys, or lie one after the other in 1-D keys, from where `offsets` say.

    Args:
        table: of `ParameterServers.table`.
        mode: "sum", "mean" or "max".
    """

    def __init__(self, table: Table, mode: str = "mean") -> None:
        super().__init__(table)
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"mode is 'sum', 'mean' or 'max', not {mode!r}")
        self.mode = mode

    def forward(
        self,
        keys: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        rows, places = self._rows(keys)
        return functional.embedding_bag(places, rows, offsets, mode=self.mode, per_sample_weights=per_sample_weights)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


class DenseOptimizer(torch.optim.Optimizer):
    """Trains parameters that live on servers: `step()` pushes gradients, and brings the new values.

    ::

        optimizer = hvd.ps.DenseOptimizer(model.named_parameters(), servers, hvd.ps.SGD(0.1, momentum=0.9))
        for inputs, labels in data:
            optimizer.zero_grad()
            loss_of(model(inputs), labels).backward()
            optimizer.step()

    Made by every worker, with the same arguments. The parameters get rank 0's values at once, so that nothing else need
    be broadcast but a module's buffers. Those that require no gradient are left alone. A parameter without a gradient
    counts as one whose gradient is zero.

    A step is a clock: `step()` ends with `servers.clock()`, and scripts do not call that themselves. What the backward
    pass has pushed to other tables of these servers belongs to the same clock.

    Schedulers work. The learning rate is the servers', one for all workers: rank 0's is sent to them by its `step()`
    when it has changed; those of other ranks have no effect. The other settings stay as given.

    `state_dict()` has the learning rate and nothing else, because momentum and the like are on the servers:
    `servers.snapshot()` writes them.

    Args:
        named_parameters: of a module; float32, on any device.
        servers: of `connect()`.
        optimizer: of `hvd.ps`, not of torch.optim.
        consistency: as for `ParameterServers.table`. "synchronous": averages the gradients of all workers, with the
            bits of `DistributedOptimizer` on one host; every worker makes every step. "asynchronous", or a number of
            clocks: applies each worker's as they come, N steps where one worker would make one.
        name: of the table; for several of these in one job.
        compensation: as for `ParameterServers.dense`.

    Raises:
        ValueError: no parameters, names that come twice, parameters that are not float32; in `step()` a gradient that
            is sparse.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]],
        servers: ParameterServers,
        optimizer: Optimizer,
        consistency: Consistency = "asynchronous",
        name: str = "dense",
        compensation: float = 0.0,
    ) -> None:
        self._named = _trained(named_parameters)
        rate = getattr(optimizer, "learning_rate", None)
        if rate is None:
            raise ValueError(
                f"an optimizer of hvd.ps that has a learning rate is needed, such as SGD or Adam, not "
                f"{type(optimizer).__name__}"
            )
        super().__init__(list(self._named.values()), {"lr": rate})
        self._servers = servers
        self._is_synchronous = consistency == "synchronous"
        self._table = servers.dense(name, self._named, optimizer, consistency, compensation=compensation)
        self._rate = rate
        self._table.pull(self._named)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self.param_groups:
            raise ValueError("parameters on servers are one group: make another DenseOptimizer for others")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Pushes this worker's gradients, brings the new values into the parameters, and advances the clock.

        Synchronous: waits until all workers have come so far. With a bound: while another is more clocks behind.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = [_gradient_of(name, parameter) for name, parameter in self._named.items()]
        self._send_learning_rate()
        if self._is_synchronous:
            pushed = self._table.push(gradients, wait=False)
            self._servers.clock()
            self._table.pull(self._named)
            pushed.wait()
        else:
            self._table.push_pull(gradients, self._named)
            self._servers.clock()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the learning rate.

        Raises:
            ValueError: there is more, of another optimizer.
        """
        if state_dict["state"]:
            raise ValueError("the state of this optimizer is on the servers, and comes from there: servers.restore()")
        super().load_state_dict(state_dict)

    def _send_learning_rate(self) -> None:
        rate = float(self.param_groups[0]["lr"])
        if rate != self._rate and basics.rank() == 0:
            self._table.set_learning_rate(rate)
        self._rate = rate


def _trained(named_parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> dict[str, torch.nn.Parameter]:
    found: dict[str, torch.nn.Parameter] = {}
    for entry in named_parameters:
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], torch.Tensor)):
            raise ValueError("named_parameters are pairs of name and parameter: model.named_parameters()")
        name, parameter = entry
        if not parameter.requires_grad:
            continue
        if name in found:
            raise ValueError(f"two parameters have the name {name!r}")
        if parameter.dtype != torch.float32:
            raise ValueError(f"the parameter {name!r} is {parameter.dtype}: those on servers are float32")
        found[name] = parameter
    if not found:
        raise ValueError("there are no parameters that require a gradient")
    return found


def _gradient_of(name: str, parameter: torch.nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    if parameter.grad.layout != torch.strided:
        raise ValueError(f"the gradient of {name!r} is sparse: keep its rows on servers by hvd.ps.Embedding")
    return parameter.grad
