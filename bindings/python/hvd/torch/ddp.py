"""hvd under DistributedDataParallel: a communication hook that reduces DDP's buckets through hvd."""

# Without `from __future__ import annotations`: DDP looks at those of a hook, and wants types there.

from collections.abc import Callable

import torch
import torch.distributed as dist

from hvd import _native, arguments
from hvd.process_set import ProcessSet, global_process_set, numbered_name
from hvd.reduce_op import Average
from hvd.torch.collectives import allreduce_call
from hvd.torch.compression import Compression, Compressor
from hvd.torch.works import GroupWork


def ddp_hook(
    op: int = Average,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A communication hook for one DDP model, whatever the backend of its process group::

        hvd.init()
        model = DistributedDataParallel(model)
        model.register_comm_hook(None, hvd.ddp_hook())

    Every rank must make the same hooks, in the same order. A bucket is reduced as soon as DDP has filled it, while the
    backward pass goes on; an error between ranks is raised by `backward()`, as RuntimeError with hvd's text.

    Args:
        op: Average (as DDP without a hook), Sum, Min, Max, Product or Adasum, of a whole bucket.
        compression: the smaller type that is used on the wire; see `Compression`.
        process_set: the ranks that take part, which must be those of the model's process group.

    Returns:
        The hook, for `register_comm_hook`; its first argument, the state, is not used.

    Raises:
        ValueError, TypeError: op is no operation, or compression no compressor; or hvd is not initialised.
    """
    op = arguments.reduce_op(op)
    arguments.compressor(compression)
    prefix = numbered_name(process_set, "ddp")

    def reduce(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients = bucket.buffer()
        sent, context = compression.compress(gradients)
        call, _ = allreduce_call(sent, True, f"{prefix}.{bucket.index()}", op, 1.0, 1.0, process_set)
        work = _native.submit(*call)

        def put_back() -> None:
            if sent is not gradients:
                gradients.copy_(compression.decompress(sent, context))

        return GroupWork(f"DDP's bucket {bucket.index()}", [work], None, gradients, put_back).get_future()

    return reduce
