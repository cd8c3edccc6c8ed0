"""Moves the gradients of one optimizer: knows which parameters become ready together, starts their reduction when they
have, and puts the results back where autograd left the gradients. Called from autograd's hooks and by the optimizer, on
whichever thread runs the backward pass; never on two at once.

A backward pass ends when the gradients that it has submitted are back, as in PyTorch's own data parallelism, so that
whatever reads gradients between the pass and the step (clipping, GradScaler) reads reduced ones. What the last pass of
a step did not reach it submits as well, so that no rank waits for another's step. Where a further pass reaches it after
all (a loss for each part of a model), it is reduced again, and from then on waited for.

Where the backward passes keep all cores of the only host busy, a reduction beside them would take their time and gain
nothing: gradients are then collected, and handed over in one call at the end of the pass, on the thread that waits.
Each rank may decide that for itself.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Callable

import torch

from hvd import _native, basics
from hvd.exceptions import HorovodInternalError
from hvd.process_set import ProcessSet
from hvd.torch.collectives import Call, allreduce_call, grouped_allreduce_call
from hvd.torch.compression import Compressor
from hvd.torch.memory import bucket_views
from hvd.torch.sparse import start_sparse_allreduce
from hvd.torch.tensors import delivered, wait_for

PutBack = Callable[[], Sequence[torch.nn.Parameter]]  # returns those whose gradients are back


class _CollectingReducers(threading.local):
    """Those that have collected gradients in this thread's backward passes. All of one pass hand over together: two
    that waited one after the other could wait for another rank that does it the other way round."""

    def __init__(self) -> None:
        self._passes: weakref.WeakKeyDictionary[GradientReducer, int] = weakref.WeakKeyDictionary()

    def add(self, reducer: GradientReducer) -> None:
        self._passes[reducer] = torch._C._current_graph_task_id()

    def remove(self, reducer: GradientReducer) -> None:
        self._passes.pop(reducer, None)

    def hand_over(self, waiting: GradientReducer) -> None:
        """Submits what has been collected in the present pass, and by `waiting` on any thread, and returns when it has
        ended. If it cannot be submitted, none of them has anything any more."""
        present = torch._C._current_graph_task_id()
        reducers = [one for one, number in self._passes.items() if number == present and one is not waiting]
        reducers.append(waiting)
        for reducer in reducers:
            self.remove(reducer)
        try:
            taken = [(reducer, *collected) for reducer in reducers for collected in reducer.take_collected()]
            calls = [call for _, call, _ in taken]
            in_one_set = len({reducer.process_set for reducer, _, _ in taken}) == 1
            works = _native.run_all(calls) if in_one_set else [_native.submit(*call) for call in calls]
        except BaseException:
            for reducer in reducers:
                reducer.forget()
            raise
        for (reducer, _, put_back), work in zip(taken, works):
            reducer.add_started(work, put_back)


_collecting = _CollectingReducers()


def _computes_on_all_cores() -> bool:
    """Whether this host is the only one, and the computation of its ranks keeps all of its cores busy."""
    ranks = basics.local_size()
    return ranks == basics.size() and ranks * torch.get_num_threads() >= _native.local_cpus()


class GradientReducer:
    """Reduces gradients by name.

    Args:
        names: each parameter's name, the same on every rank.
        groups: parameters whose gradients are submitted as one, once all of them are ready; the rest go alone.
        prefix: goes before each name, to tell this reducer's from another's.
        passes: backward passes that a gradient adds up before it is reduced.
        as_bucket_view: gradients live in shared memory.
        waits_in_backward: a pass ends as said above. Otherwise finish() is all that waits, and submits what is missing.
    """

    def __init__(
        self,
        names: dict[torch.nn.Parameter, str],
        groups: Sequence[Sequence[torch.nn.Parameter]],
        prefix: str,
        passes: int,
        compression: type[Compressor],
        op: int,
        prescale_factor: float,
        postscale_factor: float,
        sparse_as_dense: bool,
        as_bucket_view: bool,
        waits_in_backward: bool,
        process_set: ProcessSet,
    ) -> None:
        self._prefix = prefix
        self._names: dict[torch.nn.Parameter, str] = {}
        self._passes_left: dict[torch.nn.Parameter, int] = {}
        self._groups = {parameter: group for group in groups for parameter in group}
        self._compression = compression
        self._arguments = (op, prescale_factor, postscale_factor, process_set)
        self._sparse_as_dense = sparse_as_dense
        # Whose gradients are sparse: the number of sparse dimensions; and those of them that travel as dense ones.
        self._sparse_dimensions: dict[torch.nn.Parameter, int] = {}
        self._travels_dense: set[torch.nn.Parameter] = set()
        self._as_bucket_view = as_bucket_view
        self._views: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._collects = False  # in this step
        self._collected: list[list[torch.nn.Parameter]] = []  # those that travel together
        self._started: list[tuple[_native.Work, PutBack]] = []
        self._ready: set[torch.nn.Parameter] = set()  # submitted, or waiting for their groups
        self._returned: dict[torch.nn.Parameter, weakref.ref[torch.Tensor]] = {}  # the gradients put back
        self._waits_in_backward = waits_in_backward
        self._end_is_queued = False
        self._given_up: set[torch.nn.Parameter] = set()  # submitted without having been reached
        self._late: set[torch.nn.Parameter] = set()  # which further passes reach
        self._passes = passes
        self.paused = False  # gradients are only added up
        self.add_parameters(names)

    def add_parameters(self, names: dict[torch.nn.Parameter, str]) -> None:
        """Reduces these too from now on, each by itself. ValueError for those whose gradients cannot be."""
        for parameter, name in names.items():
            if parameter.layout not in (torch.strided, torch.sparse_coo):
                raise ValueError(
                    f"parameter {name} has the layout {parameter.layout}, whose gradients are not supported: "
                    "train its to_dense() or to_sparse_coo()"
                )
        self._names.update((parameter, f"{self._prefix}.{name}") for parameter, name in names.items())
        self._passes_left.update(dict.fromkeys(names, self._passes))
        if self._as_bucket_view:
            self._views.update(_views_for(names))

    def set_passes(self, passes: int) -> None:
        self._passes = passes
        self._passes_left = dict.fromkeys(self._names, passes)

    @property
    def parameters(self) -> Collection[torch.nn.Parameter]:
        return self._names.keys()

    @property
    def process_set(self) -> ProcessSet:
        return self._arguments[3]

    @property
    def under_way(self) -> bool:
        """Whether there are gradients that were submitted, wait for their group or for further passes, and are not
        back yet."""
        if self._collected or self._started or len(self._returned) < len(self._ready):
            return True
        return any(0 < left < self._passes for left in self._passes_left.values())

    def forget(self) -> None:
        """Begins anew, whatever has been done for the next step."""
        self._collected.clear()
        _collecting.remove(self)
        self._started.clear()
        self._ready.clear()
        self._returned.clear()
        self._given_up.clear()
        self._end_is_queued = False
        self.set_passes(self._passes)

    def add_pass(self, parameter: torch.nn.Parameter) -> None:
        """A backward pass has added to the parameter's gradient. Submits it if that was the last one."""
        if parameter in self._given_up:
            self._given_up.discard(parameter)
            self._late.add(parameter)
            self._begin_again(parameter)
        elif parameter in self._ready:
            self._require_cleared(parameter)
            self._begin_again(parameter)
        if self.paused:
            return
        self._passes_left[parameter] -= 1
        if self._passes_left[parameter] == 0:
            self._submit(parameter)
            under_way = self._collected or self._started
            if under_way and self._waits_in_backward and not self._end_is_queued:
                self._end_is_queued = True
                torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)

    def _begin_again(self, parameter: torch.nn.Parameter) -> None:
        self._ready.discard(parameter)
        self._returned.pop(parameter, None)
        self._passes_left[parameter] = self._passes

    def _require_cleared(self, parameter: torch.nn.Parameter) -> None:
        """Where the reduced gradient was cleared, one that comes after the last expected pass is for another step."""
        returned = self._returned.get(parameter)
        if returned is None or returned() is parameter.grad:
            raise AssertionError(
                f"the gradient of {self._names[parameter]} was computed again after its last expected backward pass "
                "and before step() or zero_grad(); to add up gradients locally, raise backward_passes_per_step or use "
                "no_sync()"
            )

    @torch._disable_dynamo
    def _end_of_backward(self) -> None:
        self._end_is_queued = False
        for parameter in self._names:
            untouched = self._passes_left[parameter] == self._passes and parameter not in self._ready
            if untouched and parameter.requires_grad and parameter not in self._late:
                self._given_up.add(parameter)
                self._submit(parameter)
        # After the ends of other reducers: what they have collected is handed over then, too.
        torch.autograd.Variable._execution_engine.queue_callback(self._wait)

    def finish(self) -> None:
        """Submits what no backward pass has reached (other ranks' may have), and waits until all gradients are back."""
        try:
            self._submit_missing()
            self._wait()
        finally:
            self.forget()

    def finish_in_parts(self) -> Iterator[Sequence[torch.nn.Parameter]]:
        """As finish(), but yields parameters as soon as their gradients are back, while others still travel."""
        try:
            self._submit_missing()
            yield from self._put_back_in_turn(in_parts=True)
        finally:
            self.forget()

    def _submit_missing(self) -> None:
        for parameter in [p for p in self._names if p not in self._ready and p.requires_grad]:
            self._submit(parameter)

    @torch._disable_dynamo
    def _wait(self) -> None:
        try:
            for _ in self._put_back_in_turn():
                pass
        except BaseException:
            self.forget()
            raise
        self._started.clear()

    def _put_back_in_turn(self, in_parts: bool = False) -> Iterator[Sequence[torch.nn.Parameter]]:
        """Until all that was submitted has ended, also where something has failed, here or in whoever iterates: names
        are free again then. In parts, each of which has what has ended when its first operation has."""
        _collecting.hand_over(self)
        ended = 0
        failure: HorovodInternalError | None = None
        part: list[torch.nn.Parameter] = []
        try:
            for work, put_back in self._started:
                if in_parts and part and not work.poll():
                    yield part
                    part = []
                try:
                    wait_for(work)
                    part += put_back()
                except HorovodInternalError as error:
                    failure = failure or error
                    in_parts = False
                ended += 1
            if failure is not None:
                raise failure
            yield part
        finally:
            for work, _ in self._started[ended:]:
                with suppress(HorovodInternalError):
                    work.wait()

    def _submit(self, parameter: torch.nn.Parameter) -> None:
        if not self._ready:
            self._collects = self._waits_in_backward and _computes_on_all_cores()
        self._ready.add(parameter)
        group = self._groups.get(parameter, (parameter,))
        if not all(member in self._ready or not member.requires_grad for member in group):
            return
        ready = [member for member in group if member in self._ready]
        if self._collects and all(member.is_cpu for member in ready):
            self._collected.append(ready)
            _collecting.add(self)
        else:
            for call, put_back in self._calls(ready):
                self.add_started(_native.submit(*call), put_back)

    def take_collected(self) -> list[tuple[Call, PutBack]]:
        """The operations of what has been collected. They are prepared here, in one loop: beside the computation of the
        backward pass, nothing that preparing needs would be in the core's caches."""
        collected, self._collected = self._collected, []
        return [prepared for parameters in collected for prepared in self._calls(parameters)]

    def add_started(self, work: _native.Work, put_back: PutBack) -> None:
        self._started.append((work, put_back))

    def _calls(self, parameters: Sequence[torch.nn.Parameter]) -> Iterator[tuple[Call, PutBack]]:
        """The operations for gradients that travel together. Those that travel as sparse ones are submitted here."""
        dense = []
        for parameter in parameters:
            if not self._is_sparse(parameter):
                dense.append(parameter)
            elif parameter in self._travels_dense:
                yield self._call(parameter)
            else:
                self._submit_sparse(parameter)
        if len(dense) == 1:
            yield self._call(dense[0])
        elif dense:
            yield self._group_call(dense)

    def _is_sparse(self, parameter: torch.nn.Parameter) -> bool:
        if self._sparse_as_dense:
            return False
        return parameter in self._sparse_dimensions or (parameter.grad is not None and parameter.grad.is_sparse)

    def _call(self, parameter: torch.nn.Parameter) -> tuple[Call, PutBack]:
        tensor, context = self._compression.compress(self._dense_gradient(parameter))
        call, received = allreduce_call(tensor, True, self._names[parameter], *self._arguments)

        def put_back() -> Sequence[torch.nn.Parameter]:
            self._put_back(parameter, delivered(received, tensor, True), context)
            return (parameter,)

        return call, put_back

    def _group_call(self, parameters: Sequence[torch.nn.Parameter]) -> tuple[Call, PutBack]:
        compressed = [self._compression.compress(self._dense_gradient(parameter)) for parameter in parameters]
        tensors = [tensor for tensor, _ in compressed]
        call, received = grouped_allreduce_call(tensors, True, self._names[parameters[0]], *self._arguments)

        def put_back() -> Sequence[torch.nn.Parameter]:
            for parameter, result, (tensor, context) in zip(parameters, received, compressed):
                self._put_back(parameter, delivered(result, tensor, True), context)
            return parameters

        return call, put_back

    def _dense_gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """What travels. The gradient itself stays sparse if it is: its optimizer may know no others (SparseAdam)."""
        if parameter.grad is None:
            parameter.grad = self._no_gradient(parameter)
        gradient = parameter.grad
        view = self._views.get(parameter)
        if gradient.is_sparse:
            self._sparse_dimensions.setdefault(parameter, gradient.sparse_dim())
            dense = gradient.to_dense()
            return dense if view is None else view.copy_(dense)
        if view is not None and gradient is not view:
            parameter.grad = gradient = view.copy_(gradient)
        return gradient

    def _no_gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        dimensions = self._sparse_dimensions.get(parameter)
        return torch.zeros_like(parameter) if dimensions is None else _no_rows(parameter, dimensions)

    def _put_back(self, parameter: torch.nn.Parameter, received: torch.Tensor, context: object) -> None:
        received = self._compression.decompress(received, context)
        gradient = parameter.grad
        assert gradient is not None, f"the gradient of {self._names[parameter]} was dropped while it was being reduced"
        if gradient.is_sparse:
            rows = received.to_sparse(self._sparse_dimensions[parameter])
            self._put_back_sparse(parameter, rows.indices(), rows.values())
            return
        if received is not gradient:
            with torch.no_grad():
                gradient.copy_(received)
        self._returned[parameter] = weakref.ref(gradient)

    def _submit_sparse(self, parameter: torch.nn.Parameter) -> None:
        """Once the ranks' rows were as many as the dense gradient has, it travels as a dense one from then on. All
        ranks have seen how many there were, and decide alike."""
        if parameter.grad is None:
            parameter.grad = self._no_gradient(parameter)
        dimensions = self._sparse_dimensions.setdefault(parameter, parameter.grad.sparse_dim())
        op, prescale, postscale, process_set = self._arguments
        gradient = parameter.grad.coalesce() * prescale
        values, context = self._compression.compress(gradient.values())
        to_send = torch.sparse_coo_tensor(gradient.indices(), values, gradient.shape, is_coalesced=True)
        # The name that it would have if it were dense: ranks that take it for dense get an error, and do not wait.
        work, finish = start_sparse_allreduce(to_send, "allreduce", self._names[parameter], op, process_set)

        def put_back() -> Sequence[torch.nn.Parameter]:
            result = finish(work)
            if result._nnz() >= parameter.shape[:dimensions].numel():
                self._travels_dense.add(parameter)
            received = self._compression.decompress(result._values(), context) * postscale
            self._put_back_sparse(parameter, result._indices(), received)
            return (parameter,)

        self.add_started(work, put_back)

    def _put_back_sparse(self, parameter: torch.nn.Parameter, indices: torch.Tensor, values: torch.Tensor) -> None:
        parameter.grad = torch.sparse_coo_tensor(indices, values, parameter.shape).coalesce()
        self._returned[parameter] = weakref.ref(parameter.grad)


def _no_rows(parameter: torch.nn.Parameter, sparse_dimensions: int) -> torch.Tensor:
    values = parameter.new_empty((0, *parameter.shape[sparse_dimensions:]), requires_grad=False)
    indices = torch.empty((sparse_dimensions, 0), dtype=torch.int64, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape)


def _views_for(parameters: Iterable[torch.nn.Parameter]) -> dict[torch.nn.Parameter, torch.Tensor]:
    """Room for their gradients in shared memory, a bucket for each dtype. GPUs have none of it."""
    by_dtype: dict[torch.dtype, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.is_cpu:
            by_dtype.setdefault(parameter.dtype, []).append(parameter)
    return {parameter: view for alike in by_dtype.values() for parameter, view in zip(alike, bucket_views(alike)[1])}
