"""The backend "hvd" of torch.distributed: a process group whose collectives are hvd's.

    torch.distributed.init_process_group("hvd")

Each group is an hvd process set of the same ranks. Every operation has the group's name and a number, so that groups of
the same ranks do not disturb each other, and ranks that disagree about an operation hear of it. torch calls the methods
below by the names of its own C++ class; where releases differ, the older names are aliases of the newer ones.

docs/torch-distributed.md says what works, and what does not.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp, Store

from hvd import _native
from hvd.arguments import process_set_number as set_id
from hvd.process_set import ProcessSet, numbered_name
from hvd.reduce_op import Average, Max, Min, Product, Sum
from hvd.specs import make_spec
from hvd.torch.tensors import CODE_OF_DTYPE, CPU_PLACE, describe, place_of, refuse_without_memory
from hvd.torch.works import Awaited, GroupWork

Tensors = Sequence[torch.Tensor]

_OPS = {
    ReduceOp.SUM: Sum,
    ReduceOp.AVG: Average,
    ReduceOp.MIN: Min,
    ReduceOp.MAX: Max,
    ReduceOp.PRODUCT: Product,
}
# A sum is whether any is True, as over NCCL and gloo: DTensor asks for it so.
_OPS_OF_BOOL = {
    ReduceOp.BAND: Min,
    ReduceOp.BOR: Max,
    ReduceOp.MIN: Min,
    ReduceOp.MAX: Max,
    ReduceOp.PRODUCT: Min,
    ReduceOp.SUM: Max,
}


class HvdProcessGroup(dist.ProcessGroup):
    """A process group of torch.distributed. Made by `init_process_group` and `new_group`, not by scripts.

    Args:
        process_set: its ranks, of which this process is one.
        name: torch's name for the group, the same on every rank.
        store: torch's store for the group.
        timeout: of operations that name none.
        create: makes the process set of these ranks for a group of this name; called on all ranks of the job.
    """

    def __init__(
        self,
        process_set: ProcessSet,
        name: str,
        store: Store,
        timeout: datetime.timedelta,
        create: Callable[[Sequence[int], str], ProcessSet],
    ) -> None:
        self._ranks = list(process_set.ranks or ())
        self._rank = self._ranks.index(_native.rank())
        super().__init__(self._rank, len(self._ranks))  # type: ignore[call-arg]
        self._process_set, self._name, self._store, self._timeout = process_set, name, store, timeout
        self._create = create
        self._numbers = itertools.count()
        self._channel = _channel_of(name, process_set)
        self._coalesced: list[GroupWork] | None = None
        self._description = "undefined"

    def name(self) -> str:
        return "hvd"

    getBackendName = name

    def rank(self) -> int:
        return self._rank

    getRank = rank

    def size(self) -> int:
        return len(self._ranks)

    getSize = size

    # torch looks for these among its own backends, of which this group has none. Where it finds no device, it refuses
    # asynchronous checkpoints, and cannot send state dictionaries to other ranks.

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]

    def _get_backend(self, device: torch.device) -> HvdProcessGroup:
        return self

    # By its name DTensor and functional collectives find the group.

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def get_group_store(self) -> Store:
        return self._store

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout

    def new_group(
        self,
        ranks: Sequence[int],
        timeout: datetime.timedelta | None = None,
        pg_options: object = None,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> HvdProcessGroup | None:
        """What torch.distributed.new_group() calls on every rank of the default group. None on ranks not in it."""
        name = str(group_name)
        process_set = self._create(ranks, name)
        if not process_set.included():
            return None
        store = dist.PrefixStore(f"{name}/", self._store)
        group = HvdProcessGroup(process_set, name, store, timeout or self._timeout, self._create)
        group.setGroupDesc(group_desc or "undefined")
        return group

    # What the collectives are made of

    def _submit(
        self,
        collective: int,
        tensors: Tensors,
        reduction: tuple[int, float] = (Sum, 1.0),
        root: int = 0,
        in_place: bool = False,
        splits: Sequence[int] | None = None,
        output: torch.Tensor | None = None,
    ) -> _native.Work:
        """Starts a collective on contiguous tensors. `output`: whose rows get the result of one tensor."""
        op, prescale = reduction
        described = [describe(tensor, collective, op) for tensor in tensors]
        device, stream = place_of(tensors[0]) if tensors else CPU_PLACE
        spec = make_spec(  # not remembered: names do not come again
            collective,
            f"torch.{self._name}.{next(self._numbers)}",
            set_id(self._process_set),
            [description for _, _, description in described],
            op,
            self._ranks[root],
            prescale,
            splits=splits,
            device=device,
            output_rows=None if output is None else [output.shape[0]],
        )
        addresses = [address for _, address, _ in described]
        given = addresses if in_place else None if output is None else [output.data_ptr()]
        return _native.submit(spec, addresses, given, (tensors, output), stream)

    def _under_way(
        self,
        what: str,
        awaited: Sequence[Awaited],
        opts: Any,
        outputs: Tensors,
        finish: Callable[[], object] | None = None,
    ) -> GroupWork:
        given = getattr(opts, "timeout", None)
        timeout = self._timeout if given is None or given <= datetime.timedelta(0) else given
        work = GroupWork(
            f"{what} of torch group {self._name} (ranks {self._ranks})",
            awaited,
            timeout.total_seconds(),
            list(outputs),
            finish,
        )
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _gather(self, inputs: Tensors, outputs: Sequence[Tensors], opts: Any) -> GroupWork:
        """Of each input all ranks' data, which are spread over the tensors of its outputs."""
        for tensor, parts in zip(inputs, outputs):
            _require_dtype("allgather", parts, tensor)
            if len(parts) == self.size():  # ranks' tensors may be of different sizes
                _require_size("allgather", parts[self._rank].numel(), tensor.numel())
            else:
                _require_size("allgather", sum(part.numel() for part in parts), self.size() * tensor.numel())
        works = []
        for tensor, parts in zip(inputs, outputs):
            sent = _wire(tensor)
            output = _room(parts, _wire, sent)
            works.append((self._submit(_native.ALLGATHER, [sent], output=output), [] if output is not None else parts))
        return self._unpacked("allgather", works, opts, [part for parts in outputs for part in parts])

    def _unpacked(
        self, what: str, works: Sequence[tuple[_native.Work, Tensors]], opts: Any, outputs: Tensors
    ) -> GroupWork:
        """Each work with the tensors over which its result is to be spread; none if it has written it where it goes."""

        def spread() -> None:
            for work, parts in works:
                _unpack(work, parts)

        return self._under_way(what, [work for work, _ in works], opts, outputs, spread)

    def _exchange(self, what: str, sent: Tensors, received: Tensors, dtype: torch.dtype, opts: Any) -> GroupWork:
        """sent[i] goes to rank i; what comes is spread over the tensors of `received`."""
        splits = [tensor.numel() for tensor in sent]
        flat = torch.cat([_plain(tensor).reshape(-1) for tensor in sent]) if sent else torch.empty(0, dtype=dtype)
        return self._exchange_rows(what, flat, splits or [0] * self.size(), received, opts)

    def _exchange_rows(
        self, what: str, rows: torch.Tensor, splits: Sequence[int] | None, received: Tensors, opts: Any
    ) -> GroupWork:
        sent = _wire_rows(rows)
        output = _room(received, _wire_rows, sent)
        work = self._submit(_native.ALLTOALL, [sent], splits=splits, output=output)
        return self._unpacked(what, [(work, received if output is None else [])], opts, received)

    # Reductions

    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> GroupWork:
        tensors = _listed(tensors)
        sent = [_plain(tensor) for tensor in tensors]
        work = self._submit(_native.ALLREDUCE, sent, _reduction("allreduce", opts, tensors), in_place=True)
        return self._under_way("allreduce", [work], opts, tensors, lambda: _put_back(sent, tensors))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> GroupWork:
        """An allreduce of copies, which the root keeps."""
        tensors = _listed(tensors)
        sent = [_plain(tensor).clone() for tensor in tensors]
        work = self._submit(_native.ALLREDUCE, sent, _reduction("reduce", opts, tensors), in_place=True)
        keep = (lambda: _put_back(sent, tensors)) if opts.rootRank == self._rank else None
        return self._under_way("reduce", [work], opts, tensors, keep)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> GroupWork:
        whole = []
        for output, parts in zip(outputs, inputs):
            for part in parts:
                _require_size("reduce_scatter", part.numel(), output.numel())
            whole.append(torch.cat([_plain(part).reshape(-1) for part in parts]))
        return self.reduce_scatter_single_coalesced(outputs, whole, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> GroupWork:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        for output, tensor in zip(outputs, inputs):
            _require_dtype("reduce_scatter", [output], tensor)
            _require_size("reduce_scatter", tensor.numel(), self.size() * output.numel())
        reduction = _reduction("reduce_scatter", opts, inputs)
        works = []
        for tensor, output in zip(inputs, outputs):
            sent = _plain(tensor).view(self.size(), tensor.numel() // self.size())
            room = _room([output], lambda whole: _plain(whole).view(1, -1), sent)
            work = self._submit(_native.REDUCESCATTER, [sent], reduction, output=room)
            works.append((work, [output] if room is None else []))
        return self._unpacked("reduce_scatter", works, opts, outputs)

    # Collectives that move data

    def broadcast(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> GroupWork:
        tensors = _listed(tensors)
        sent = [_wire(tensor) for tensor in tensors]
        work = self._submit(_native.BROADCAST, sent, root=getattr(opts, "rootRank", 0), in_place=True)
        return self._under_way("broadcast", [work], opts, tensors, lambda: _put_back(sent, tensors))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> GroupWork:
        return self._gather(inputs, outputs, opts)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> GroupWork:
        """outputs[rank][i] is that rank's inputs[i]."""
        return self._gather(inputs, list(zip(*outputs)), opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> GroupWork:
        return self._gather([input], [[output]], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        return self._gather(inputs, [[output] for output in outputs], opts)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> GroupWork:
        (tensor,) = inputs
        nothing = tensor.new_empty(0)
        sent = [tensor if rank == opts.rootRank else nothing for rank in range(self.size())]
        return self._exchange("gather", sent, outputs[0] if outputs else [], tensor.dtype, opts)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> GroupWork:
        return self._exchange("scatter", inputs[0] if inputs else [], outputs, outputs[0].dtype, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        return self._exchange("alltoall", inputs, outputs, inputs[0].dtype, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> GroupWork:
        splits = list(input_split_sizes) or None
        if output_split_sizes and output.dim() > 0:
            _require_size("alltoall", sum(output_split_sizes), output.shape[0])
        return self._exchange_rows("alltoall", input, splits, [output], opts)

    def barrier(self, opts: Any = None) -> GroupWork:
        return self._under_way("barrier", [self._submit(_native.BARRIER, [])], opts, [])

    # Names of earlier releases

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]
    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]
    alltoall_base = all_to_all_single  # type: ignore[assignment]

    # Between two ranks

    def send(self, tensors: Tensors, destination: int, tag: int = 0) -> GroupWork:
        (tensor,) = tensors
        work = self._message(_native.send, self._ranks[destination], tag, _plain(tensor))
        return self._under_way(f"send to rank {destination}", [work], None, tensors)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> GroupWork:
        return self._receive(f"recv from rank {source}", tensors, self._ranks[source], tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> GroupWork:
        return self._receive("recv from any rank", tensors, _native.ANY_RANK, tag)

    def _receive(self, what: str, tensors: Tensors, peer: int, tag: int) -> GroupWork:
        (tensor,) = tensors
        received = _plain(tensor)
        work = self._message(_native.receive, peer, tag, received)
        group_work = self._under_way(what, [work], None, tensors, lambda: _put_back([received], [tensor]))
        group_work.source_of = lambda: self._ranks.index(work.source())
        return group_work

    def _message(self, start: Callable[..., _native.Work], peer: int, tag: int, tensor: torch.Tensor) -> _native.Work:
        if not tensor.is_cpu:
            raise ValueError(
                f'a message of a tensor on {tensor.device}: the backend "hvd" has messages between two ranks for '
                "tensors in the CPU's memory; send tensor.cpu()"
            )
        return start(peer, self._channel, tag, tensor.data_ptr(), tensor.nbytes, tensor)

    # All that is started between the two is one work.

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device | None = None) -> GroupWork:
        works, self._coalesced = self._coalesced or [], None
        outputs = [output for work in works for output in work.result()]
        awaited = [operation for work in works for operation in work.awaited]
        return self._under_way("coalesced", awaited, None, outputs, lambda: [work.wait() for work in works])


def _channel_of(name: str, process_set: ProcessSet) -> int:
    """The number under which the ranks of a new group exchange messages: another one for each group, also for those
    that follow each other under one name. Only groups of the same ranks are counted together: all of them make each."""
    words = f"{numbered_name(process_set, f'torch group {name}/')} of {process_set.ranks}"
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")


def _listed(tensors: Tensors | torch.Tensor) -> Tensors:
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def _require_size(what: str, given: int, needed: int) -> None:
    if given != needed:
        raise ValueError(f"{what} needs a tensor of {needed} elements where one of {given} was given")


def _require_dtype(what: str, outputs: Tensors, tensor: torch.Tensor) -> None:
    """torch compares the types of some collectives' tensors itself, and leaves the others to its backends."""
    for output in outputs:
        if output.dtype != tensor.dtype:
            raise ValueError(f"{what} of {tensor.dtype} needs an output of that type, not of {output.dtype}")


def _reduction(what: str, opts: Any, tensors: Tensors) -> tuple[int, float]:
    """The reduce operation and the factor before it, of torch's options, or of its operation itself."""
    given: Any = ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)
    kind = getattr(given, "op", given)
    if kind == ReduceOp.PREMUL_SUM:
        return Sum, float(given.__getstate__()[1])
    is_bool = bool(tensors) and tensors[0].dtype is torch.bool
    op = (_OPS_OF_BOOL if is_bool else _OPS).get(kind)
    if op is None:
        raise ValueError(
            f'{what} with {kind} of {tensors[0].dtype if tensors else "nothing"}: the backend "hvd" has SUM, AVG, '
            "MIN, MAX, PRODUCT and PREMUL_SUM, and for bool SUM, MIN, MAX, PRODUCT, BAND and BOR"
        )
    return op, 1.0


def _require_strided(tensor: torch.Tensor) -> None:
    """ValueError for sparse tensors and the like. torch itself raises another error where it meets one, perhaps only
    when the operation has ended."""
    if tensor.layout is not torch.strided:
        refuse_without_memory(tensor)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its memory holds its elements in row-major order, else a copy. ValueError if it is sparse or
    the like."""
    _require_strided(tensor)
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _wire_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements to be moved, in its rows; as bytes, one dimension more, if hvd does not know their type."""
    rows = _plain(tensor)
    return rows if rows.dtype in CODE_OF_DTYPE else rows.view(*rows.shape, 1).view(torch.uint8)


def _wire(tensor: torch.Tensor) -> torch.Tensor:
    """As _wire_rows(), flat."""
    return _wire_rows(tensor).reshape(-1)


def _room(outputs: Tensors, rows_of: Callable[[torch.Tensor], torch.Tensor], sent: torch.Tensor) -> torch.Tensor | None:
    """The memory of the only output, in rows like those sent, if a result can be written there at once. ValueError if
    one of the outputs is sparse or the like."""
    for output in outputs:
        _require_strided(output)
    if len(outputs) != 1 or outputs[0].numel() == 0:
        return None
    memory = rows_of(outputs[0])
    if memory.data_ptr() != outputs[0].data_ptr() or memory.dim() == 0:
        return None
    if (memory.dtype, memory.device, memory.shape[1:]) != (sent.dtype, sent.device, sent.shape[1:]):
        return None
    begin, begin_of_sent = memory.data_ptr(), sent.data_ptr()
    is_apart = begin + memory.nbytes <= begin_of_sent or begin_of_sent + sent.nbytes <= begin
    return memory if is_apart else None


def _put_back(received: Tensors, tensors: Tensors) -> None:
    """Into tensors that could not travel themselves."""
    for tensor, copy in zip(tensors, received):
        if copy.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(copy.view(tensor.dtype).view(tensor.shape))


def _unpack(work: _native.Work, outputs: Tensors) -> None:
    """Spreads the runtime's result over the outputs, which hold as many elements together."""
    if not outputs:
        return
    flat = torch.utils.dlpack.from_dlpack(work.output(0)).reshape(-1)
    flat = flat if flat.dtype == outputs[0].dtype else flat.view(outputs[0].dtype)
    _require_size("what was received", sum(output.numel() for output in outputs), flat.numel())
    start = 0
    for output in outputs:
        output.detach().copy_(flat[start : start + output.numel()].view(output.shape))
        start += output.numel()
