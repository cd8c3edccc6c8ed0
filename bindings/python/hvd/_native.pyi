"""The C interface (hvd.h). Statuses come as exceptions: ValueError for a wrong call, else HorovodInternalError."""

import enum
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Buffer

ALLREDUCE: int
ALLGATHER: int
BROADCAST: int
ALLTOALL: int
REDUCESCATTER: int
BARRIER: int
JOIN: int

ANY_RANK: int

UINT8: int
INT8: int
INT16: int
INT32: int
INT64: int
FLOAT16: int
BFLOAT16: int
FLOAT32: int
FLOAT64: int
BOOL: int
UINT16: int
UINT32: int
UINT64: int

def version() -> str: ...
def crc32c(data: bytes | memoryview) -> int:
    """Of contiguous bytes, as in TFRecord files (there it is masked)."""

def environment_documentation() -> str: ...
def init() -> None: ...
def init_standby(joined: Callable[[], None], /) -> None:
    """As `init`, but a newcomer of an elastic job that has begun without it gets no place: it stands by, and joins with
    `init` or its first operation, which calls `joined` before. Until then its place is the one that it would have
    now."""

def init_with(rank: int, size: int, local_size: int, broadcast: Callable[[bytes | None], bytes], /) -> None:
    """In a job of which Python knows. `broadcast`, called once on every rank, takes rank 0's bytes, None on the others,
    and returns rank 0's. A local_size of 0 says that it is not known."""

def epoch() -> tuple[int, bool, int, int]:
    """Of an elastic job: the epoch's number (0: the job is not elastic), whether ranks need the state from others, the
    change for which it is to be left, as the launcher says now: 0, 1 (ranks are removed), 2 (added) or 3, and how many
    processes have been started and have not come yet."""

def stands_by() -> bool:
    """Whether this process is a newcomer that has no place yet."""

def report_synchronized() -> None:
    """Tells the launcher of an elastic job that this rank has the state of the training."""

def watch_preemption() -> None:
    """From now on a SIGTERM says that this process is about to be taken away, unless the launcher sends it."""

def report_preemption() -> None:
    """Tells the launcher of an elastic job of such a SIGTERM, if there was one: it lets this process leave the job."""

def report_leaving() -> None:
    """Tells the launcher of an elastic job that this process leaves it, with what is to be kept saved."""

def launch() -> tuple[str, int, int, int]:
    """Who has started this process, its rank, the number of ranks, and that of this host, as the environment says."""

def shutdown() -> None: ...
def fail(cause: str, /) -> None:
    """Ends the job as a failure of this rank; `cause` follows the rank's name: "raised ValueError: bad data"."""

def call_uninterrupted(function: Callable[..., Any], /, *arguments: Any) -> Any:
    """Calls a function that Ctrl-C does not interrupt, not even where it begins. On the main thread."""

def is_initialized() -> bool: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...
def local_cpus() -> int: ...
def algorithm_table() -> str: ...
def gpu_libraries() -> str:
    """A line each for the CUDA driver and NCCL: what was found, or why there is none. Opens them."""

def metrics() -> dict[str, float]: ...
def add_process_set(ranks: Sequence[int], /) -> int:
    """The number of a new set, the same on all ranks, which all call."""

def remove_process_set(process_set: int, /) -> None: ...
def start_timeline(path: bytes, mark_cycles: bool, /) -> None: ...
def stop_timeline() -> None: ...
def empty(shape: tuple[int, ...], dtype: int, bytes: int, /) -> object:
    """Uninitialised memory of the shared arena as a DLPack capsule."""

def allocate(shape: tuple[int, ...], dtype: int, bytes: int, type: tuple[int, int] | None, /) -> object:
    """Uninitialised memory as a DLPack capsule. `type`: as for `Work.output`."""

def arena_usage() -> tuple[int, int, int]:
    """Limit, used and peak, in bytes."""

class OperationSpec:
    """All of an operation but the addresses of its tensors and the stream: immutable, for any number of operations.
    Made by `hvd.specs`, which checks what scripts give. A tensor is its shape and its type code; `device` is -1 for the
    CPU, else all tensors lie on that GPU. `output_rows`: the outputs' first dimensions, where they are not those of the
    tensors."""

    def __init__(
        self,
        collective: int,
        name: str | None,
        process_set: int,
        tensors: Sequence[tuple[Sequence[int], int]],
        op: int = 1,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        splits: Sequence[int] | None = None,
        device: int = -1,
        output_rows: Sequence[int] | None = None,
    ) -> None: ...
    @property
    def device(self) -> int: ...

class Work:
    """An operation under way. Dropping it early is safe: what it uses is kept until it has ended."""

    def start(self) -> None:
        """Of `prepare`: starts it, once the last start has ended."""
    def start_and_wait(self) -> None: ...
    def poll(self) -> bool: ...
    def wait(self, timeout_seconds: float | None = None) -> bool:
        """True when done, False when the time was up before. Ctrl-C interrupts it; the operation goes on."""
    def wait_on_stream(self, stream: int, /) -> None:
        """Until the operation is in a stream of its GPU; `stream` goes on when it is over. Ctrl-C interrupts it."""
    @property
    def device(self) -> int:
        """Where the tensors lie: a GPU's ordinal, or -1, the CPU."""
    def output(self, i: int, type: tuple[int, int] | None = None, dimensions: int | None = None) -> object:
        """Result i as a DLPack capsule, if the call gave no outputs. Can be taken once. For elements that the runtime
        moves as others: `type` is DLPack's code and bits for them, and only the first `dimensions` are theirs."""
    def received_splits(self) -> list[int]: ...
    def last_joined(self) -> int: ...
    def source(self) -> int:
        """Of a receive that is done: the rank of the job that the message came from."""

def buffer_address(view: Buffer, /) -> int:
    """The address of what a memoryview shows; valid as long as the memoryview is."""

def plain_address(array: object, for_writing: bool, /) -> int:
    """The address of an object with NumPy's __array_struct__; 0 if its elements do not lie aligned, in the machine's
    byte order and without gaps in the order of their indices, or are to be written and cannot be."""

def capsule_address(capsule: object, /) -> int:
    """The address of the tensor in a capsule of `allocate`, which nobody has taken."""

class ManagedTensor(Buffer):
    """The owner of a DLPack tensor, taken out of a capsule; on the CPU also a buffer, of this format (see struct)."""

    def __init__(self, capsule: Any, format: str | None = None) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> tuple[int, int]:
        """Code and bits of an element, as in DLPack."""
    @property
    def device(self) -> tuple[int, int]:
        """Type and number, as in DLPack."""
    @property
    def is_contiguous(self) -> bool: ...
    @property
    def is_read_only(self) -> bool: ...

def submit(
    spec: OperationSpec, inputs: Sequence[int], outputs: Sequence[int] | None, owners: object, stream: int = 0
) -> Work:
    """Starts an operation on tensors at these addresses, one for each of the spec's. `outputs` have the spec's shapes,
    and None leaves the results with the Work. `owners` is whatever keeps the memory alive. Tensors on a GPU are ready
    when what is in `stream` by now is over."""

def run(spec: OperationSpec, inputs: Sequence[int], outputs: Sequence[int], owners: object, stream: int = 0) -> None:
    """submit() and wait() in one, or for tensors on a GPU wait_on_stream(stream)."""

def run_all(calls: Sequence[tuple[OperationSpec, Sequence[int], Sequence[int], object, int]]) -> list[Work]:
    """Starts operations on the CPU, in one process set, all at once, each with the arguments of run(), and waits until
    all have ended. ValueError if a call is wrong, and then none is started; each Work has its own outcome."""

def prepare(
    spec: OperationSpec, inputs: Sequence[int], outputs: Sequence[int] | None, owners: object, stream: int = 0
) -> Work:
    """An operation that is checked and not started. Tensors on a GPU are ready when what is in `stream` by the time of
    each start is over."""

def send(peer: int, channel: int, tag: int, data: int, bytes: int, owners: object, /) -> Work:
    """A message to a rank of the job. Channels are numbers of 64 bits that the ranks agree on, tags signed ones."""

def receive(peer: int, channel: int, tag: int, data: int, bytes: int, owners: object, /) -> Work:
    """A message from a rank of the job, or from ANY_RANK."""

def is_server() -> bool:
    """Whether this process is one of its job's parameter servers."""

def register_update(name: str, function: Callable[[memoryview, memoryview, memoryview, float], None], /) -> None:
    """For the rest of the process. The function gets rows, gradients (read-only) and state, each of two dimensions, and
    the learning rate; servers call it in threads of their own."""

def serve_tables() -> None:
    """Serves until all workers have left, or SIGTERM."""

class TableCall(enum.Enum):
    PULL = ...
    PUSH = ...
    PUSH_PULL = ...

class TableWork:
    """A call under way. Dropping it early is safe: what it uses is kept until it has ended."""

    def poll(self) -> bool: ...
    def wait(self, timeout_seconds: float | None = None) -> bool:
        """True when done, False when the time was up before. Ctrl-C interrupts it; the call goes on."""
    @property
    def version(self) -> int: ...
    @property
    def stats(self) -> str:
        """Lines "<server> <table> <what> <number>" of `ParameterServers.stats()` that are done."""

class ParameterServers:
    """A worker's connections with all parameter servers."""

    def __init__(self) -> None: ...
    def open(self, name: str, **fields: Any) -> int:
        """The number of a table of these fields of hvd_ps_table."""
    def cache_counts(self, table: int, /) -> tuple[int, int]:
        """How many rows pulls have found in the table's cache, and for how many they have asked servers."""
    def start(
        self, call: TableCall, table: int, keys: int, count: int, gradients: int, rows: int, owners: object, /
    ) -> TableWork:
        """Starts a call on memory at these addresses, 0 for none: no keys are all rows of a dense table, of which
        `count` values are given. `owners` is whatever keeps the memory alive."""
    def fill(self, table: int, values: int, count: int, owners: object, /) -> TableWork: ...
    def clock(self) -> None: ...
    @property
    def clocks(self) -> tuple[int, int]: ...
    def flush(self, timeout_seconds: float | None = None) -> bool: ...
    def set_learning_rate(self, table: int, rate: float, /) -> TableWork: ...
    def stats(self) -> TableWork: ...
    def snapshot(self, folder: str, /) -> TableWork: ...
    def restore(self, folder: str, /) -> TableWork: ...
    @property
    def servers(self) -> tuple[int, bool]:
        """How many, and whether they are other processes than the workers."""
    def close(self) -> None: ...
    @property
    def is_closed(self) -> bool: ...
