"""hvd for PyTorch Lightning: a strategy for its Trainer. Lightning 2 is needed, as `lightning` or `pytorch_lightning`.

>>> from hvd.lightning import HvdStrategy
>>> trainer = Trainer(accelerator="cpu", devices=4, strategy=HvdStrategy())
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

import hvd.torch as hvd
from hvd import _native

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # the same code twice, whose classes are different ones
_OPS = {"mean": hvd.Average, "avg": hvd.Average, "sum": hvd.Sum, "min": hvd.Min, "max": hvd.Max, "product": hvd.Product}


def _strategies() -> Any:
    """The package that the script uses: the one that is imported, or else the one that is installed."""
    for name in sorted(_PACKAGES, key=lambda name: name not in sys.modules):
        if name in sys.modules or importlib.util.find_spec(name.partition(".")[0]) is not None:
            return importlib.import_module(f"{name}.strategies")
    raise ModuleNotFoundError("hvd.lightning needs PyTorch Lightning: pip install lightning", name="lightning")


def _launched_size() -> int | None:
    """How many ranks a launcher has started; None if it is for Lightning to start them."""
    try:
        launcher, _, size, _ = _native.launch()
    except ValueError:  # Lightning has, and its variables leave out RANK
        return None
    return None if launcher == "none" else size


if TYPE_CHECKING:
    from lightning.pytorch.strategies import DDPStrategy
else:
    DDPStrategy = _strategies().DDPStrategy


class HvdStrategy(DDPStrategy):
    """Lightning's data parallelism without DDP: `hvd.torch` averages the gradients, and the model is not wrapped.

    The processes are Lightning's own, or a launcher's, as with DDPStrategy; `devices` is the number of ranks of each
    host. When training begins, the ranks take over rank 0's parameters and buffers, and every optimizer becomes a
    DistributedOptimizer. torch.distributed runs over hvd as well, for what is built on it (torchmetrics, samplers).

    Args:
        op, compression, gradient_predivide_factor, gradient_as_bucket_view: see `hvd.torch.DistributedOptimizer`.
        options: DDPStrategy's of the same name: accelerator, parallel_devices, cluster_environment, checkpoint_io,
            precision_plugin, timeout, start_method.

    Raises:
        ModuleNotFoundError: at import, where there is no Lightning.
        TypeError: for an option that is not among these, as DDP's are not.
        ValueError: when training begins, where the Trainer has another number of ranks than the launcher has started.
    """

    strategy_name = "hvd"

    def __init__(
        self,
        *,
        op: int = hvd.Average,
        compression: Any = hvd.Compression.none,
        gradient_predivide_factor: float = 1.0,
        gradient_as_bucket_view: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(process_group_backend="hvd", **options)
        if self._ddp_kwargs:
            raise TypeError(f"HvdStrategy has no option {', '.join(self._ddp_kwargs)}: there is no DDP in it")
        self._reduction = {
            "op": op,
            "compression": compression,
            "gradient_predivide_factor": gradient_predivide_factor,
            "gradient_as_bucket_view": gradient_as_bucket_view,
        }

    def setup_environment(self) -> None:
        started = _launched_size()
        if started not in (None, self.num_nodes * self.num_processes):
            raise ValueError(
                f"Trainer(devices={self.num_processes}, num_nodes={self.num_nodes}) in a job of {started} ranks: "
                "devices must be the number of ranks on each host, and num_nodes the number of hosts"
            )
        super().setup_environment()

    def configure_ddp(self) -> None:
        """Instead of wrapping the model."""
        module: Any = self.lightning_module
        tensors = {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
        hvd.broadcast_parameters(tensors, root_rank=0)  # not what get_extra_state() returns

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        module: Any = self.lightning_module
        names = list(module.named_parameters())
        distributed = {id(one): hvd.DistributedOptimizer(one, names, **self._reduction) for one in self.optimizers}
        for scheduler in (config.scheduler for config in self.lr_scheduler_configs):
            scheduler.optimizer = distributed.get(id(scheduler.optimizer), scheduler.optimizer)
        self.optimizers = [distributed[id(one)] for one in self.optimizers]

    def teardown(self) -> None:
        """The model may go on to another Trainer, with other optimizers."""
        optimizers: list[Any] = self.optimizers
        for optimizer in optimizers:
            if hasattr(optimizer, "release"):  # not yet, where setup_optimizers has failed
                optimizer.release()
        super().teardown()

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Around the backward passes of `accumulate_grad_batches` that no step follows."""
        optimizers: list[Any] = self.optimizers
        with ExitStack() as paused:
            for optimizer in optimizers:
                paused.enter_context(optimizer.no_sync())
            yield

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        if hvd.is_initialized():
            hvd.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return hvd.broadcast_object(obj, src) if hvd.is_initialized() else obj

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """In place, as Lightning's own. Over a group of some of the ranks it is torch.distributed's."""
        if group is not None or not isinstance(tensor, torch.Tensor) or not isinstance(reduce_op, str):
            return super().reduce(tensor, group, reduce_op)
        if reduce_op.lower() not in _OPS:
            raise ValueError(f"reduce_op is {reduce_op!r}: expected one of {', '.join(_OPS)}")
        return hvd.allreduce_(tensor, op=_OPS[reduce_op.lower()])
