"""Spark ML estimators for PyTorch Lightning: `LightningEstimator`, and its `LightningModel`."""

from __future__ import annotations

import copy
import importlib
import io
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch

from hvd.data import Reader
from hvd.lightning import HvdStrategy, _strategies
from hvd.spark import data_module
from hvd.spark.estimator import HvdEstimator
from hvd.spark.params import with_params
from hvd.spark.torch import TorchModel, _cast, _writable
from hvd.spark.training import Columns, Work, can_log, gpu_of_this_rank, reshaped, stacked

__all__ = ["LightningEstimator", "LightningModel"]


@with_params(
    trainer_args="further arguments of the Trainer",
    num_gpus="without effect: a rank has one GPU or none",
    logger="of the Trainer, in place of a TensorBoardLogger; False: none",
    log_every_n_steps="of the Trainer",
    loader_num_epochs="without effect",
    terminate_on_nan="without effect",
    profiler="of the Trainer",
    train_async_data_loader_queue_size="without effect: hvd.data prefetches",
    val_async_data_loader_queue_size="without effect: hvd.data prefetches",
    debug_data_loader="without effect",
)
class LightningEstimator(HvdEstimator):
    """Trains a LightningModule, which has its own optimizers and losses; see `HvdEstimator`. Its steps get a batch as a
    dictionary of tensors by column, of input_shapes and label_shapes if they are given; floating-point columns come in
    the type of its parameters. A run does not go on from a checkpoint.
    """

    _prefix = "pytorch_lightning"
    defaults: ClassVar[Mapping[str, Any]] = {
        **HvdEstimator.defaults,
        **dict.fromkeys(("num_gpus", "loader_num_epochs", "logger", "profiler")),
        "trainer_args": {},
        "log_every_n_steps": 50,
        "terminate_on_nan": False,
        "train_async_data_loader_queue_size": None,
        "val_async_data_loader_queue_size": None,
        "debug_data_loader": None,
    }

    def _training(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        names = "callbacks input_shapes label_shapes transformation_fn gradient_compression"
        names += " trainer_args logger log_every_n_steps profiler"
        return _train, (self.getModel(), {name: self.getOrDefault(name) for name in names.split()})

    def _trained(self, work: Work, result: Any) -> LightningModel:
        history, weights = result
        model = copy.deepcopy(self.getModel())
        # Rank 0 of this fit has written it, and a module's extra state may be any object.
        model.load_state_dict(torch.load(io.BytesIO(weights), weights_only=False))
        return LightningModel(
            history=history,
            model=model,
            input_shapes=self.getInputShapes(),
            feature_columns=list(work.features),
            label_columns=list(work.labels),
            run_id=work.run_id,
        )


class LightningModel(TorchModel):
    """A model that LightningEstimator has trained; see `HvdModel`. history: what it has logged, by epoch."""


def _train(work: Work, model: Any, settings: Mapping[str, Any]) -> tuple[list[dict[str, float]], bytes] | None:
    """On a rank. Rank 0 returns the history and the model's state."""
    import hvd.torch as hvd

    hvd.init()
    if work.seed is not None:
        torch.manual_seed(work.seed)
    lightning = __import__(_strategies().__name__.rpartition(".")[0], fromlist=["Trainer"])
    gpu = gpu_of_this_rank(work.use_gpu, torch.cuda.device_count())
    history: list[dict[str, float]] = []

    def loader(reader: Reader, steps: int) -> Any:
        return torch.utils.data.DataLoader(_Steps(reader, steps, model, work, settings), batch_size=None)

    with tempfile.TemporaryDirectory() as logs, data_module.opened(work, loader) as (loaders, _):
        trainer = _trainer(lightning, work, settings, gpu, history, logs)
        trainer.fit(model, *loaders)
        if hvd.rank() == 0:
            work.save_logs(logs)
    return (history, _weights(model)) if hvd.rank() == 0 else None


def _trainer(
    lightning: Any, work: Work, settings: Mapping[str, Any], gpu: int | None, history: list[dict[str, float]], logs: str
) -> Any:
    import hvd.torch as hvd

    logger = settings["logger"]
    if logger is None:
        is_kept = work.store.saving_runs() and can_log("tensorboard", "tensorboardX")
        loggers = importlib.import_module(f"{lightning.__name__}.loggers")
        logger = loggers.TensorBoardLogger(logs, name="", version="") if is_kept else False
    keeping = _keeping(lightning.Callback)(work, history, logs)
    environments = importlib.import_module(f"{lightning.__name__}.plugins.environments")
    strategy = HvdStrategy(
        compression=settings["gradient_compression"] or hvd.Compression.none,
        cluster_environment=_one_rank_a_node(environments.LightningEnvironment)(),
    )
    return lightning.Trainer(
        **{
            "max_epochs": work.epochs,
            "accelerator": "cpu" if gpu is None else "gpu",
            "devices": 1 if gpu is None else [gpu],
            "num_nodes": hvd.size(),
            "strategy": strategy,
            "callbacks": [*(settings["callbacks"] or []), keeping],
            "logger": logger,
            "log_every_n_steps": settings["log_every_n_steps"],
            "profiler": settings["profiler"],
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            **(settings["trainer_args"] or {}),
        }
    )


def _one_rank_a_node(base: Any) -> Any:
    """The class of Lightning's environment in which each rank is a node with one device: Lightning wants equally many
    devices on all nodes, but Spark may place unequal numbers of ranks on its hosts, and a rank knows only its GPU."""

    class OneRankANode(base):  # type: ignore[misc]
        creates_processes_externally = True

        def local_rank(self) -> int:
            return 0

        def node_rank(self) -> int:
            import hvd.torch as hvd

            return hvd.rank()

    return OneRankANode


class _Steps(torch.utils.data.IterableDataset[Columns]):
    """As many batches in each epoch, whatever the reader has."""

    def __init__(self, reader: Reader, steps: int, model: Any, work: Work, settings: Mapping[str, Any]) -> None:
        self._reader, self._steps, self._model, self._work, self._settings = reader, steps, model, work, settings

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Columns]:
        left = self._steps
        while left > 0:
            for batch in itertools.islice(self._reader.batches(self._converted), left):
                left -= 1
                yield batch

    def _converted(self, columns: Columns) -> Columns:
        columns = stacked(columns, self._settings["transformation_fn"])
        columns = _cast({name: torch.as_tensor(_writable(values)) for name, values in columns.items()}, self._model)
        for names, kind in ((self._work.features, "input_shapes"), (self._work.labels, "label_shapes")):
            columns.update(zip(names, reshaped(columns, names, self._settings[kind])))
        return columns


def _keeping(base: Any) -> Any:
    """The class of a callback that multiplies the learning rates, and keeps the history and a checkpoint by epoch."""

    class Keeping(base):  # type: ignore[misc]
        def __init__(self, work: Work, history: list[dict[str, float]], logs: str) -> None:
            self._work, self._history, self._logs = work, history, logs

        def on_fit_start(self, trainer: Any, module: Any) -> None:
            import hvd.torch as hvd

            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= hvd.size()
                    group["initial_lr"] = group.get("initial_lr", group["lr"] / hvd.size()) * hvd.size()
            for config in trainer.lr_scheduler_configs:
                if hasattr(config.scheduler, "base_lrs"):
                    config.scheduler.base_lrs = [rate * hvd.size() for rate in config.scheduler.base_lrs]

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self._history.append({"epoch": trainer.current_epoch, **logged})
            if trainer.is_global_zero:
                self._work.save(lambda: _weights(module))
                self._work.save_logs(self._logs)

    return Keeping


def _weights(model: Any) -> bytes:
    written = io.BytesIO()
    torch.save(model.state_dict(), written)
    return written.getvalue()
