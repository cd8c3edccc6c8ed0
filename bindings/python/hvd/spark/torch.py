"""Spark ML estimators for PyTorch: `TorchEstimator`, and its `TorchModel`."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from hvd.spark import data_module
from hvd.spark.estimator import HvdEstimator, HvdModel, Predict
from hvd.spark.params import with_params
from hvd.spark.training import Columns, Work, endless, gpu_of_this_rank, reshaped, stacked

__all__ = ["TorchEstimator", "TorchModel"]


@with_params(
    loss_constructors="functions that make the losses on the ranks, instead of loss",
    train_minibatch_fn="a function that does a step, (model, optimizer, transform_outputs, loss_fn, inputs, labels, "
    "sample_weights) -> (outputs, loss), instead of the usual one",
    backward_passes_per_step="batches whose gradients are averaged for a step; train_minibatch_fn sees to that itself",
)
class TorchEstimator(HvdEstimator):
    """Trains a torch.nn.Module; see `HvdEstimator`.

    The model is called with the tensors of feature_cols, of input_shapes if they are given; floating-point columns
    come in the type of its parameters. loss is a function or module of (output, label), or a list of one for each
    label; with sample_weight_col it takes `reduction="none"` besides. A label with as many numbers as the output gets
    the output's shape. Without loss_weights the losses of several labels are averaged. metrics are functions of
    (output, label), or lists of one for each label. transformation_fn gets a row as a dictionary.
    """

    _prefix = "pytorch"
    _needed = (*HvdEstimator._needed, "optimizer")
    defaults: ClassVar[Mapping[str, Any]] = {
        **HvdEstimator.defaults,
        "loss_constructors": None,
        "train_minibatch_fn": None,
        "backward_passes_per_step": 1,
    }

    def _check(self) -> None:
        super()._check()
        if not self.getLoss() and not self.getLossConstructors():
            raise ValueError("TorchEstimator needs the param loss, or loss_constructors")
        if self.getLoss() and self.getLossConstructors():
            raise ValueError("loss and loss_constructors are both given")
        if self.getCallbacks():
            warnings.warn("callbacks have no effect in TorchEstimator; train_minibatch_fn has", stacklevel=3)

    def _training(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        names = "loss loss_constructors loss_weights metrics input_shapes label_shapes transformation_fn"
        names += " train_minibatch_fn backward_passes_per_step gradient_compression"
        settings = {name: self.getOrDefault(name) for name in names.split()}
        return _train, (self.getModel(), self.getOptimizer(), settings)  # pickled together: they share the parameters

    def _trained(self, work: Work, result: Any) -> TorchModel:
        history, checkpoint = result
        model, optimizer = copy.deepcopy((self.getModel(), self.getOptimizer()))
        _load(checkpoint, model, optimizer, weights_only=False)  # rank 0 of this fit has written it
        return TorchModel(
            history=history,
            model=model,
            optimizer=optimizer,
            loss=self.getLoss(),
            loss_constructors=self.getLossConstructors(),
            input_shapes=self.getInputShapes(),
            feature_columns=list(work.features),
            label_columns=list(work.labels),
            run_id=work.run_id,
        )


@with_params(
    optimizer="with the state at the end of the training",
    loss="that it was trained with",
    loss_constructors="that it was trained with, instead of loss",
    input_shapes="of each feature, with -1 for the rows",
)
class TorchModel(HvdModel):
    """A model that TorchEstimator has trained; see `HvdModel`. history: a dictionary for each epoch, with "epoch",
    "train" and, if it was validated, "validation", each with "loss" and "all_metrics"."""

    defaults: ClassVar[Mapping[str, Any]] = {
        **HvdModel.defaults,
        **dict.fromkeys(("optimizer", "loss", "loss_constructors", "input_shapes")),
    }

    def _loader(self) -> Callable[[], Predict]:
        return functools.partial(_load_predict, self.getModel(), self.getInputShapes())


def _load_predict(model: torch.nn.Module, input_shapes: Any) -> Predict:
    model = model.to("cpu").eval()

    def predict(features: Sequence[Any]) -> Sequence[Any]:
        columns = {str(number): torch.as_tensor(_writable(values)) for number, values in enumerate(features)}
        inputs = reshaped(_cast(columns, model), list(columns), input_shapes)
        with torch.inference_mode():
            return [output.numpy() for output in _as_list(model(*inputs))]

    return predict


def _train(
    work: Work, model: torch.nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], bytes] | None:
    """On a rank. Rank 0 returns the history and the last checkpoint."""
    import hvd.torch as hvd

    hvd.init()
    return _Training(work, model, optimizer, settings).run()


class _Training:
    """The training of one rank."""

    def __init__(self, work: Work, model: Any, optimizer: Any, settings: Mapping[str, Any]) -> None:
        import hvd.torch as hvd

        self.work, self.settings = work, settings
        if work.seed is not None:
            torch.manual_seed(work.seed)
        saved = work.checkpoint()
        self.first_epoch = _load(saved, model, optimizer) if saved else 0
        gpu = gpu_of_this_rank(work.use_gpu, torch.cuda.device_count())
        self.device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
        self.model = model.to(self.device)
        _state_to(optimizer, self.device)
        for group in optimizer.param_groups:
            group["lr"] *= hvd.size()
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=settings["gradient_compression"] or hvd.Compression.none,
            backward_passes_per_step=settings["backward_passes_per_step"],
        )
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        constructors = settings["loss_constructors"]
        self.losses = [make() for make in _as_list(constructors)] if constructors else _as_list(settings["loss"])
        self.step = settings["train_minibatch_fn"] or _Step(settings["backward_passes_per_step"])

    def run(self) -> tuple[list[dict[str, Any]], bytes] | None:
        import hvd.torch as hvd

        work = self.work
        history = []
        checkpoint = self._checkpoint(self.first_epoch)
        with data_module.opened(work, lambda reader, _: endless(lambda: reader.batches(self._converted))) as found:
            train, *val = ((endless(functools.partial(iter, loader)), steps) for loader, steps in zip(*found))
            for epoch in range(self.first_epoch, self.first_epoch + work.epochs):
                done: dict[str, Any] = {"epoch": epoch, "train": self._epoch(itertools.islice(*train), True)}
                for each in val:
                    with torch.no_grad():
                        done["validation"] = self._epoch(itertools.islice(*each), False)
                history.append(done)
                if hvd.rank() == 0:
                    checkpoint = self._checkpoint(epoch + 1)
                    work.save(lambda: checkpoint)  # noqa: B023
                    if work.verbose:
                        print(done, flush=True)
        return (history, checkpoint) if hvd.rank() == 0 else None

    def _converted(self, columns: Columns) -> Columns:
        columns = stacked(columns, self.settings["transformation_fn"])
        return {name: torch.as_tensor(_writable(values)) for name, values in columns.items()}

    def _epoch(self, batches: Iterator[Any], is_training: bool) -> dict[str, Any]:
        """Averages over the rows of all ranks."""
        import hvd.torch as hvd

        self.model.train(is_training)
        metrics = [_for_each(metric, len(self.work.labels)) for metric in self.settings["metrics"]]
        sums = torch.zeros(1 + sum(map(len, metrics)) + 1, dtype=torch.float64)
        for columns in batches:
            if isinstance(columns, (tuple, list)):  # features, and the label
                columns = {**columns[0], **dict.fromkeys(self.work.labels, columns[1])}
            columns = _cast({name: values.to(self.device) for name, values in columns.items()}, self.model)
            inputs = reshaped(columns, self.work.features, self.settings["input_shapes"])
            labels = reshaped(columns, self.work.labels, self.settings["label_shapes"])
            weights = columns[self.work.weight] if self.work.weight else None
            outputs, loss = self._batch(inputs, labels, weights, is_training)
            outputs, labels = _alike(outputs, labels)
            rows = len(labels[0])
            found = [float(metric(*pair)) for group in metrics for metric, *pair in zip(group, outputs, labels)]
            sums += torch.tensor([float(loss), *found, 1.0], dtype=torch.float64) * rows
        if is_training and isinstance(self.step, _Step):
            self.step.finish(self.optimizer)
        total = hvd.allreduce(sums, op=hvd.Sum, name=f"hvd.spark.metrics.{is_training}")
        loss, *found, rows = total.tolist()
        return {"loss": loss / max(rows, 1), "all_metrics": [value / max(rows, 1) for value in found]}

    def _batch(self, inputs: Any, labels: Any, weights: Any, is_training: bool) -> tuple[list[Any], Any]:
        if is_training:
            step = self.step
            outputs, loss = step(self.model, self.optimizer, _alike, self._loss, inputs, labels, weights)
            return [output.detach() for output in _as_list(outputs)], loss.detach()
        outputs = _as_list(self.model(*inputs))
        return outputs, self._loss(*_alike(outputs, labels), weights)

    def _loss(self, outputs: Sequence[Any], labels: Sequence[Any], weights: Any = None) -> Any:
        losses = _for_each(self.losses, len(labels))
        shares = self.settings["loss_weights"] or [1.0 / len(labels)] * len(labels)  # as with Horovod
        if not len(outputs) == len(labels) == len(losses) == len(shares):
            raise ValueError(
                f"{len(outputs)} outputs, {len(labels)} labels, {len(losses)} losses and {len(shares)} loss_weights: "
                "they must be equally many"
            )
        return sum(
            share * _weighted(loss, output, label, weights)
            for share, loss, output, label in zip(shares, losses, outputs, labels)
        )

    def _checkpoint(self, epochs: int) -> bytes:
        """Epochs that were done, and the states, with the learning rate of one rank."""
        import hvd.torch as hvd

        state = self.optimizer.state_dict()
        groups = [{**group, "lr": group["lr"] / hvd.size()} for group in state["param_groups"]]
        groups = [{name: _without_numpy(value) for name, value in group.items()} for group in groups]
        content = {
            "model": self.model.state_dict(),
            "optimizer": {**state, "param_groups": groups},
            "epoch": epochs,
        }
        written = io.BytesIO()
        torch.save(content, written)
        return written.getvalue()


def _without_numpy(value: Any) -> Any:
    """Replaces NumPy's scalars, which an optimizer's options may contain: weights_only refuses to load them."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_without_numpy, value))
    return value.item() if isinstance(value, np.generic) else value


def _load(checkpoint: bytes, model: Any, optimizer: Any, weights_only: bool = True) -> int:
    """Returns the epochs that were done. A checkpoint from the store is loaded with weights_only: others may be able to
    write there."""
    content = torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=weights_only)
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    return int(content["epoch"])


def _state_to(optimizer: Any, device: torch.device) -> None:
    for state in optimizer.state.values():
        state.update({name: value.to(device) for name, value in state.items() if isinstance(value, torch.Tensor)})


class _Step:
    """The usual train_minibatch_fn: a step of the optimizer for so many batches, whose gradients are averaged."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._done = 0

    def __call__(
        self, model: Any, optimizer: Any, transform_outputs: Any, loss_fn: Any, inputs: Any, labels: Any, weights: Any
    ) -> Any:
        if self._done == 0:
            optimizer.zero_grad()
        outputs = _as_list(model(*inputs))
        outputs, labels = transform_outputs(outputs, labels)
        loss = loss_fn(outputs, labels, weights)
        (loss / self._batches).backward()  # the optimizer adds the passes up
        self._done += 1
        if self._done == self._batches:
            self.finish(optimizer)
        return outputs, loss

    def finish(self, optimizer: Any) -> None:
        """Makes the step of the batches that an epoch's end has left."""
        if self._done > 0:
            optimizer.step()
        self._done = 0


def _for_each(given: Any, labels: int) -> list[Any]:
    """The functions for the labels, of one for all of them or a list."""
    functions = _as_list(given)
    return functions * labels if len(functions) == 1 else functions


def _alike(outputs: Any, labels: Any) -> tuple[list[Any], list[Any]]:
    """Labels have the shape of the outputs where they have as many numbers."""
    outputs = _as_list(outputs)
    pairs = zip(outputs, labels)
    return outputs, [label.reshape(out.shape) if label.numel() == out.numel() else label for out, label in pairs]


def _weighted(loss: Any, output: Any, label: Any, weights: Any) -> Any:
    if weights is None:
        return loss(output, label)
    if isinstance(loss, torch.nn.Module):
        loss = copy.copy(loss)
        loss.reduction = "none"
        each = loss(output, label)
    else:
        each = loss(output, label, reduction="none")
    return (each.reshape(len(weights), -1).mean(dim=1) * weights).mean()


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _writable(values: Any) -> Any:
    return values if values.flags.writeable else values.copy()


def _cast(columns: Columns, model: Any) -> Columns:
    """Floating-point tensors in the type of the parameters."""
    dtype = next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), torch.float32)
    return {name: values.to(dtype) if values.is_floating_point() else values for name, values in columns.items()}
