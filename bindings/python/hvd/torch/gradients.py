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

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Callable

import torch

from hvd import _native, basics
from hvd.exceptions import HorovodInternalError
from hvd.process_set import ProcessSet
from hvd.reduce_op import Average
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


@dataclass(eq=False)
class _Gradient:
    """One parameter's gradient: its name, with which others it travels, and in what form. Sets and dicts of gradients
    are quicker than of parameters, whose hash is a function in Python."""

    parameter: torch.nn.Parameter
    name: str
    passes_left: int
    group: int | None = None  # its number; None: it travels alone
    view: torch.Tensor | None = None  # where it lies, if that is in shared memory
    sparse_dimensions: int | None = None  # None: it has not been sparse so far
    travels_dense: bool = False  # although it is sparse


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
        add_new: calls add_parameters() for those that are trained by now and not known here; called as a pass ends.
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
        add_new: Callable[[], None],
    ) -> None:
        self._prefix = prefix
        self._gradients: list[_Gradient] = []
        self._compression = compression
        self._arguments = (op, prescale_factor, postscale_factor, process_set)
        self._sparse_as_dense = sparse_as_dense
        self._as_bucket_view = as_bucket_view
        self._collects = False  # in this step
        self._collected: list[list[_Gradient]] = []  # those that travel together
        self._started: list[tuple[_native.Work, PutBack]] = []
        self._ready: set[_Gradient] = set()  # submitted, or waiting for their groups
        self._handed_over: set[_Gradient] = set()  # of those, the ones that do not wait for their groups
        self._returned: dict[_Gradient, weakref.ref[torch.Tensor]] = {}  # what was put back
        self._waits_in_backward = waits_in_backward
        self._add_new = add_new
        self._end_is_queued = False
        self._passes_made = 0  # in this step; not those within no_sync()
        self._given_up: set[_Gradient] = set()  # submitted without having been reached, or not as often as others
        self._late: set[_Gradient] = set()  # which further passes reach
        self._learnt_in = basics.initializations()  # the job in which _late and travels_dense were learnt
        self._passes = passes
        self.paused = False  # gradients are only added up
        self.add_parameters(names)
        self._groups = self._grouped(groups)

    def add_parameters(self, names: dict[torch.nn.Parameter, str]) -> None:
        """Reduces these too from now on, each by itself. ValueError for those whose gradients cannot be."""
        for parameter, name in names.items():
            if parameter.layout not in (torch.strided, torch.sparse_coo):
                raise ValueError(
                    f"parameter {name} has the layout {parameter.layout}, whose gradients are not supported: "
                    "train its to_dense() or to_sparse_coo()"
                )
        new = [_Gradient(parameter, f"{self._prefix}.{name}", self._passes) for parameter, name in names.items()]
        if self._as_bucket_view:
            _place_in_shared_memory(new)
        this = weakref.ref(self)
        for gradient in new:
            gradient.parameter.register_post_accumulate_grad_hook(_hook_of(gradient, this))
        self._gradients += new

    def _grouped(self, groups: Sequence[Sequence[torch.nn.Parameter]]) -> list[list[_Gradient]]:
        gradient_of = {id(gradient.parameter): gradient for gradient in self._gradients}
        grouped = [[gradient_of[id(parameter)] for parameter in group] for group in groups]
        for number, group in enumerate(grouped):
            for gradient in group:
                gradient.group = number
        return grouped

    def set_passes(self, passes: int) -> None:
        self._passes = passes
        for gradient in self._gradients:
            gradient.passes_left = passes

    @property
    def parameters(self) -> Iterator[torch.nn.Parameter]:
        return (gradient.parameter for gradient in self._gradients)

    @property
    def process_set(self) -> ProcessSet:
        return self._arguments[3]

    @property
    def under_way(self) -> bool:
        """Whether there are gradients that were submitted, wait for their group or for further passes, and are not
        back yet."""
        if self._collected or self._started or len(self._returned) < len(self._ready):
            return True
        return any(0 < one.passes_left < self._passes and one not in self._ready for one in self._gradients)

    def forget(self) -> None:
        """Begins anew, whatever has been done for the next step."""
        self._collected.clear()
        _collecting.remove(self)
        self._started.clear()
        self._ready.clear()
        self._handed_over.clear()
        self._returned.clear()
        self._given_up.clear()
        self._end_is_queued = False
        self._passes_made = 0
        self.set_passes(self._passes)

    def add_pass(self, gradient: _Gradient) -> None:
        """A backward pass has added to the gradient. Submits it if that was the last one."""
        if gradient in self._given_up and not self._was_cleared(gradient):
            self._given_up.discard(gradient)
            self._late.add(gradient)
            self._take_back(gradient)
        elif gradient in self._ready:
            self._require_cleared(gradient)
            self._begin_again()
        if self.paused:
            return
        if self._waits_in_backward and not self._end_is_queued:
            self._end_is_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        gradient.passes_left -= 1
        if gradient.passes_left == 0:
            self._submit(gradient)

    def _take_back(self, gradient: _Gradient) -> None:
        """It is to be submitted once more."""
        self._ready.discard(gradient)
        self._handed_over.discard(gradient)
        self._returned.pop(gradient, None)

    def _begin_again(self) -> None:
        """Reduced gradients were dropped instead of used: all that were cleared are for another step, so that none of
        them counts as ready for its group."""
        for gradient in list(self._returned):
            if self._was_cleared(gradient):
                self._given_up.discard(gradient)
                self._take_back(gradient)
                gradient.passes_left = self._passes
        self._passes_made = 0

    def _was_cleared(self, gradient: _Gradient) -> bool:
        """Whether it is back, and was dropped since."""
        returned = self._returned.get(gradient)
        return returned is not None and returned() is not gradient.parameter.grad

    def _require_cleared(self, gradient: _Gradient) -> None:
        """Where the reduced gradient was cleared, one that comes after the last expected pass is for another step."""
        if not self._was_cleared(gradient):
            raise AssertionError(
                f"the gradient of {gradient.name} was computed again after its last expected backward pass "
                "and before step() or zero_grad(); to add up gradients locally, raise backward_passes_per_step or use "
                "no_sync()"
            )

    @torch._disable_dynamo
    def _end_of_backward(self) -> None:
        self._end_is_queued = False
        self._passes_made += 1
        was_last = self._passes_made == self._passes
        if not self._ready and not was_last:
            return
        # The pass may have reached parameters that nobody watched. If their gradients stayed this rank's own until
        # step(), each rank would clip by another norm, and the ranks' parameters would differ from then on. So they
        # would where all complete gradients wait for members of their groups that this rank's pass has not reached.
        self._add_new()
        # After as many passes as are expected none is left that could complete the gradients which only some of them
        # have reached. After more passes there are some for each part of a model.
        # If a further pass reaches one after all, its sum is reduced twice, which leaves only an average as it is.
        is_average = self._arguments[0] == Average
        for gradient in self._gradients:
            untouched = gradient.passes_left == self._passes
            missing = gradient not in self._ready and (untouched or (was_last and is_average))
            if missing and gradient.parameter.requires_grad and gradient not in self._late:
                self._given_up.add(gradient)
                self._submit(gradient)
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
        for gradient in self._gradients:
            if gradient not in self._ready and gradient.parameter.requires_grad:
                self._submit(gradient)

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

    def _submit(self, gradient: _Gradient) -> None:
        if not self._ready:
            self._collects = self._waits_in_backward and _computes_on_all_cores()
            self._forget_other_jobs()
        self._ready.add(gradient)
        group = (gradient,) if gradient.group is None else self._groups[gradient.group]
        if not all(member in self._ready or not member.parameter.requires_grad for member in group):
            return
        # None is reduced twice where a further pass has reached others of its group.
        ready = [member for member in group if member in self._ready and member not in self._handed_over]
        self._handed_over.update(ready)
        if self._collects and all(member.parameter.is_cpu for member in ready):
            self._collected.append(ready)
            _collecting.add(self)
        else:
            for call, put_back in self._calls(ready):
                self.add_started(_native.submit(*call), put_back)

    def _forget_other_jobs(self) -> None:
        """Forgets what earlier steps have shown if they were in another job, or epoch of an elastic one: a rank that is
        new in this one has not seen them, and all must submit the same."""
        if self._learnt_in == basics.initializations():
            return
        self._learnt_in = basics.initializations()
        self._late.clear()
        for gradient in self._gradients:
            gradient.travels_dense = False

    def take_collected(self) -> list[tuple[Call, PutBack]]:
        """The operations of what has been collected. They are prepared here, in one loop: beside the computation of the
        backward pass, nothing that preparing needs would be in the core's caches."""
        collected, self._collected = self._collected, []
        return [prepared for gradients in collected for prepared in self._calls(gradients)]

    def add_started(self, work: _native.Work, put_back: PutBack) -> None:
        self._started.append((work, put_back))

    def _calls(self, gradients: Sequence[_Gradient]) -> Iterator[tuple[Call, PutBack]]:
        """The operations for gradients that travel together. Those that travel as sparse ones are submitted here."""
        dense = []
        for gradient in gradients:
            if not self._is_sparse(gradient):
                dense.append(gradient)
            elif gradient.travels_dense:
                yield self._call(gradient)
            else:
                self._submit_sparse(gradient)
        if len(dense) == 1:
            yield self._call(dense[0])
        elif dense:
            yield self._group_call(dense)

    def _is_sparse(self, gradient: _Gradient) -> bool:
        if self._sparse_as_dense:
            return False
        values = gradient.parameter.grad
        return gradient.sparse_dimensions is not None or (values is not None and values.is_sparse)

    def _call(self, gradient: _Gradient) -> tuple[Call, PutBack]:
        tensor, context = self._compression.compress(_dense(gradient))
        call, received = allreduce_call(tensor, True, gradient.name, *self._arguments)

        def put_back() -> Sequence[torch.nn.Parameter]:
            self._put_back(gradient, delivered(received, tensor, True), context)
            return (gradient.parameter,)

        return call, put_back

    def _group_call(self, gradients: Sequence[_Gradient]) -> tuple[Call, PutBack]:
        compressed = [self._compression.compress(_dense(gradient)) for gradient in gradients]
        tensors = [tensor for tensor, _ in compressed]
        call, received = grouped_allreduce_call(tensors, True, gradients[0].name, *self._arguments)

        def put_back() -> Sequence[torch.nn.Parameter]:
            for gradient, result, (tensor, context) in zip(gradients, received, compressed):
                self._put_back(gradient, delivered(result, tensor, True), context)
            return [gradient.parameter for gradient in gradients]

        return call, put_back

    def _put_back(self, gradient: _Gradient, received: torch.Tensor, context: object) -> None:
        received = self._compression.decompress(received, context)
        values = gradient.parameter.grad
        if values is None:
            raise RuntimeError(
                f"the gradient of {gradient.name} was set to None while it was being reduced: call zero_grad() after "
                "step(), or synchronize() before it"
            )
        if values.is_sparse:
            rows = received.to_sparse(_sparse_dimensions(gradient, values))
            self._put_back_sparse(gradient, rows.indices(), rows.values())
            return
        if received is not values:
            with torch.no_grad():
                values.copy_(received)
        self._returned[gradient] = weakref.ref(values)

    def _submit_sparse(self, gradient: _Gradient) -> None:
        """Once the ranks' rows were as many as the dense gradient has, it travels as a dense one from then on. All
        ranks have seen how many there were, and decide alike."""
        parameter = gradient.parameter
        if parameter.grad is None:
            parameter.grad = _zeros(gradient)
        dimensions = _sparse_dimensions(gradient, parameter.grad)
        op, prescale, postscale, process_set = self._arguments
        rows = parameter.grad.coalesce() * prescale
        values, context = self._compression.compress(rows.values())
        to_send = torch.sparse_coo_tensor(rows.indices(), values, rows.shape, is_coalesced=True)
        # The name that it would have if it were dense: ranks that take it for dense get an error, and do not wait.
        work, finish = start_sparse_allreduce(to_send, "allreduce", gradient.name, op, process_set)

        def put_back() -> Sequence[torch.nn.Parameter]:
            result = finish(work)
            if result._nnz() >= parameter.shape[:dimensions].numel():
                gradient.travels_dense = True
            received = self._compression.decompress(result._values(), context) * postscale
            self._put_back_sparse(gradient, result._indices(), received)
            return (parameter,)

        self.add_started(work, put_back)

    def _put_back_sparse(self, gradient: _Gradient, indices: torch.Tensor, values: torch.Tensor) -> None:
        parameter = gradient.parameter
        parameter.grad = torch.sparse_coo_tensor(indices, values, parameter.shape).coalesce()
        self._returned[gradient] = weakref.ref(parameter.grad)


def _dense(gradient: _Gradient) -> torch.Tensor:
    """What travels. The gradient itself stays sparse if it is: its optimizer may know no others (SparseAdam)."""
    parameter, view = gradient.parameter, gradient.view
    values = parameter.grad
    if values is None:
        parameter.grad = values = _zeros(gradient)
    if values.is_sparse:
        _sparse_dimensions(gradient, values)
        dense = values.to_dense()
        return dense if view is None else view.copy_(dense)
    if view is not None and values is not view:
        parameter.grad = values = view.copy_(values)
    return values


def _sparse_dimensions(gradient: _Gradient, values: torch.Tensor) -> int:
    if gradient.sparse_dimensions is None:
        gradient.sparse_dimensions = values.sparse_dim()
    return gradient.sparse_dimensions


def _zeros(gradient: _Gradient) -> torch.Tensor:
    parameter, dimensions = gradient.parameter, gradient.sparse_dimensions
    if dimensions is None:
        return torch.zeros_like(parameter)
    values = parameter.new_empty((0, *parameter.shape[dimensions:]), requires_grad=False)
    indices = torch.empty((dimensions, 0), dtype=torch.int64, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape)


def _place_in_shared_memory(gradients: Iterable[_Gradient]) -> None:
    """Makes room for them there, a bucket for each dtype. GPUs have none of it."""
    by_dtype: dict[torch.dtype, list[_Gradient]] = {}
    for gradient in gradients:
        if gradient.parameter.is_cpu:
            by_dtype.setdefault(gradient.parameter.dtype, []).append(gradient)
    for alike in by_dtype.values():
        for gradient, view in zip(alike, bucket_views([gradient.parameter for gradient in alike])[1]):
            gradient.view = view


def _hook_of(gradient: _Gradient, reducer: weakref.ref[GradientReducer]) -> Callable[[torch.nn.Parameter], None]:
    """What autograd calls, as long as both are alive: the parameter that the gradient refers to keeps it."""
    this = weakref.ref(gradient)

    def on_gradient(_: torch.nn.Parameter) -> None:
        watched, alive = this(), reducer()
        if watched is not None and alive is not None and not _is_in_compiled_backward():
            alive.add_pass(watched)

    return torch.compiler.disable(on_gradient)


def _is_in_compiled_backward() -> bool:
    """Whether compiled autograd runs the backward pass, which calls nobody back at its end: `step()` reduces then."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return getattr(module, "in_compiled_autograd_region", False)
