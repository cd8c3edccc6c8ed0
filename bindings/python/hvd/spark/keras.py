"""Spark ML estimators for Keras 3 and tf_keras: `KerasEstimator`, and its `KerasModel`."""

from __future__ import annotations

import functools
import importlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import cloudpickle
import numpy as np

from hvd.keras import framework
from hvd.spark import data_module
from hvd.spark.estimator import HvdEstimator, HvdModel, Predict
from hvd.spark.params import with_params
from hvd.spark.training import Columns, Work, can_log, endless, gpu_of_this_rank

__all__ = ["KerasEstimator", "KerasModel"]


@with_params(
    backward_passes_per_step="as of hvd.keras.DistributedOptimizer",
    custom_objects="what Keras does not know, by name",
    checkpoint_callback="a ModelCheckpoint for rank 0: the model that it wrote last is the result, and in the store",
    tensorflow_dataset_prefetch_buffer_size="without effect: hvd.data prefetches",
)
class KerasEstimator(HvdEstimator):
    """Trains a model of Keras 3, on whichever backend Keras runs, or of tf_keras; see `HvdEstimator`.

    The features come in the order of feature_cols, in the shapes of the model's inputs. Without the param optimizer, it
    takes the one that the model was compiled with; without loss, also the loss and its metrics, and loss_weights and
    metrics where these params are not set. A learning rate that is a schedule is not multiplied by the
    number of ranks. transformation_fn gets a batch as a pandas.DataFrame. What the model is made of and Keras does not
    know belongs in custom_objects; the functions and classes of loss and metrics need not be there. A model with
    Lambda layers of Python code does not go on from a checkpoint: code from the store is not run.
    """

    _prefix = "keras"
    _uneven = "repeat"
    defaults: ClassVar[Mapping[str, Any]] = {
        **HvdEstimator.defaults,
        "backward_passes_per_step": 1,
        "custom_objects": {},
        "checkpoint_callback": None,
        "tensorflow_dataset_prefetch_buffer_size": 0,
        "backend_env": {"LIBHDFS_OPTS": "-Xms2048m -Xmx2048m"},
    }

    def _check(self) -> None:
        super()._check()
        _keras_of(self.getModel())
        if not self.getLoss():
            _compile_config(self.getModel())  # raises if there is none

    def _training(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        names = "loss loss_weights metrics callbacks checkpoint_callback label_shapes transformation_fn"
        names += " backward_passes_per_step gradient_compression"
        settings = {name: self.getOrDefault(name) for name in names.split()}
        custom_objects = self._custom_objects()
        optimizer = self.getOptimizer() or getattr(self.getModel(), "optimizer", None) or "rmsprop"
        keras = _keras_of(self.getModel())
        settings["optimizer"] = keras.optimizers.serialize(keras.optimizers.get(optimizer))
        settings["compiled"] = {} if self.getLoss() else _compile_config(self.getModel())
        return _train, (to_bytes(self.getModel()), cloudpickle.dumps(settings), keras.__name__, custom_objects)

    def _trained(self, work: Work, result: Any) -> KerasModel:
        history, content = result
        custom_objects = self._custom_objects()
        return KerasModel(
            history=history,
            model=from_bytes(content, _keras_of(self.getModel()), custom_objects),
            custom_objects=custom_objects,
            feature_columns=list(work.features),
            label_columns=list(work.labels),
            run_id=work.run_id,
        )

    def _custom_objects(self) -> dict[str, Any]:
        """With the loss and the metrics, without which Keras does not load the model that was trained with them."""
        return {**_by_name([self.getLoss(), self.getMetrics()]), **self.getCustomObjects()}

    def _to_save(self) -> dict[str, Any]:
        return _with_objects(super()._to_save(), self._custom_objects())


@with_params(custom_objects="what Keras does not know, by name")
class KerasModel(HvdModel):
    """A model that KerasEstimator has trained; see `HvdModel`. history: see `keras.callbacks.History`."""

    defaults: ClassVar[Mapping[str, Any]] = {**HvdModel.defaults, "custom_objects": {}}

    def _loader(self) -> Callable[[], Predict]:
        model = self.getModel()
        return functools.partial(_load_predict, to_bytes(model), _keras_of(model).__name__, self.getCustomObjects())

    def _to_save(self) -> dict[str, Any]:
        return _with_objects(super()._to_save(), self.getCustomObjects())


class _Pickled:
    """Becomes the value when it is unpickled, by `_unpickled`."""

    def __init__(self, value: Any, keras: str, custom_objects: Mapping[str, Any]) -> None:
        self._value, self._keras, self._custom_objects = value, keras, custom_objects

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (cloudpickle.dumps(self._value), self._keras, self._custom_objects)


def _unpickled(data: bytes, keras: str, custom_objects: Mapping[str, Any]) -> Any:
    """Keras's models, losses and metrics are in pickles as their configurations."""
    with importlib.import_module(keras).saving.custom_object_scope(dict(custom_objects)):
        return cloudpickle.loads(data)


def _with_objects(params: dict[str, Any], custom_objects: Mapping[str, Any]) -> dict[str, Any]:
    """Params to be saved, so that they can be loaded where Keras does not know the objects yet."""
    if "model" not in params:
        return params
    keras = _keras_of(params["model"]).__name__
    return {name: _Pickled(value, keras, custom_objects) for name, value in params.items()}


def _by_name(given: Any) -> dict[str, Any]:
    """The functions and classes in lists and dictionaries of functions, instances and Keras's names."""
    if isinstance(given, (list, tuple, dict)):
        each = given.values() if isinstance(given, dict) else given
        return {name: found for one in each for name, found in _by_name(one).items()}
    if given is None or isinstance(given, str):
        return {}
    found = given if hasattr(given, "__name__") else type(given)
    return {found.__name__: found}


def _load_predict(content: bytes, keras: str, custom_objects: Mapping[str, Any]) -> Predict:
    model = from_bytes(content, importlib.import_module(keras), custom_objects, compile=False)

    def predict(features: Sequence[Any]) -> Sequence[Any]:
        inputs = _shaped(features, _shapes(model, "input_shape"))
        found = model.predict_on_batch(inputs if len(inputs) > 1 else inputs[0])
        return [np.asarray(output) for output in _as_list(found)]

    return predict


def _keras_of(model: Any) -> Any:
    """The package of its class: Keras 3 or tf_keras. ValueError if it is of neither."""
    return importlib.import_module(framework.name_of_keras(model))


def _compile_config(model: Any) -> Mapping[str, Any]:
    """The arguments of the model's `compile()`, as Keras writes them to files."""
    if not (getattr(model, "compiled", False) or getattr(model, "_is_compiled", False)):  # Keras 3; tf_keras
        raise ValueError("KerasEstimator needs the param loss, or a model that is compiled")
    config: Mapping[str, Any] | None = model.get_compile_config()
    if not config or "loss" not in config:
        raise ValueError(
            "the model does not say how it was compiled (get_compile_config()): give the params loss, loss_weights and "
            "metrics"
        )
    return config


def to_bytes(model: Any) -> bytes:
    """A model as a file of Keras's format."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def from_bytes(
    content: bytes, keras: Any, custom_objects: Mapping[str, Any], safe_mode: bool = False, **options: Any
) -> Any:
    """safe_mode: not to run code that is in the content, of Lambda layers. For what others may have written."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(content)
        return keras.models.load_model(path, custom_objects=dict(custom_objects), safe_mode=safe_mode, **options)


def _train(
    work: Work, content: bytes, pickled_settings: bytes, keras_name: str, custom_objects: Mapping[str, Any]
) -> tuple[dict[str, Any], bytes] | None:
    """On a rank. Rank 0 returns the history and the model."""
    import hvd.keras as hvd

    hvd.init()
    keras = importlib.import_module(keras_name)
    if work.seed is not None:
        keras.utils.set_random_seed(work.seed)
    _choose_gpu(work, keras.backend.backend())
    # Not before: metrics have variables, and once TensorFlow has made one, its GPU cannot be chosen any more.
    settings = _unpickled(pickled_settings, keras_name, custom_objects)
    settings |= {"keras": keras_name, "custom_objects": custom_objects}
    model = _compiled(work, content, settings)
    batches = _Batches(model, work, settings)
    with (
        tempfile.TemporaryDirectory() as logs,
        tempfile.TemporaryDirectory() as folder,
        data_module.opened(work, lambda reader, _: endless(lambda: reader.batches(batches.converted))) as (
            found,
            steps,
        ),
    ):
        result = _Result(settings, folder)
        history = model.fit(
            found[0],
            steps_per_epoch=steps[0],
            epochs=work.epochs,
            verbose=(2 if work.verbose else 0) if hvd.rank() == 0 else 0,
            callbacks=_callbacks(work, settings, result, logs),
            shuffle=False,  # the reader has
            validation_data=found[1] if work.val_path else None,
            validation_steps=steps[1] if work.val_path else None,
        )
        if hvd.rank() != 0:
            return None
        values_by_name = {name: [float(value) for value in values] for name, values in history.history.items()}
        return values_by_name, result.content(model)


def _choose_gpu(work: Work, backend: str) -> None:
    if backend == "tensorflow":
        import tensorflow as tf

        found = tf.config.list_physical_devices("GPU")
        gpu = gpu_of_this_rank(work.use_gpu, len(found))
        try:
            tf.config.set_visible_devices([] if gpu is None else found[gpu], "GPU")
        except RuntimeError as error:  # Spark gives a process to one task after the other
            raise RuntimeError(
                "an earlier task in this process of Spark's has used TensorFlow with another GPU, or with other GPUs: "
                "give each task a process of its own (spark.python.worker.reuse=false)"
            ) from error
    elif backend == "torch":
        import torch

        gpu = gpu_of_this_rank(work.use_gpu, torch.cuda.device_count())
        if gpu is not None:
            torch.cuda.set_device(gpu)


def _compiled(work: Work, content: bytes, settings: Mapping[str, Any]) -> Any:
    """The model, or that of the run's checkpoint, with a distributed optimizer."""
    import hvd.keras as hvd
    from hvd.keras.callbacks import learning_rate_of, set_learning_rate

    keras = importlib.import_module(settings["keras"])
    saved = work.checkpoint()
    model = from_bytes(saved or content, keras, settings["custom_objects"], safe_mode=bool(saved))
    if saved:
        optimizer = model.optimizer
    else:
        optimizer = keras.optimizers.deserialize(settings["optimizer"], custom_objects=settings["custom_objects"])
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        compression=settings["gradient_compression"] or hvd.Compression.none,
        backward_passes_per_step=settings["backward_passes_per_step"],
    )
    if not _has_schedule(optimizer):
        set_learning_rate(optimizer, learning_rate_of(optimizer) * hvd.size())
    model.compile(optimizer=optimizer, **_objective(keras, settings))
    return model


def _objective(keras: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The params, and for those that are not set what the model was compiled with, as arguments of `compile()`."""
    found = {name: settings.get(name) for name in ("loss", "loss_weights", "metrics", "weighted_metrics")}
    for name, compiled in settings["compiled"].items():
        if name in found and not found[name]:
            found[name] = keras.saving.deserialize_keras_object(compiled, custom_objects=settings["custom_objects"])
    return {name: value or None for name, value in found.items()}


def _has_schedule(optimizer: Any) -> bool:
    schedule = _keras_of(optimizer).optimizers.schedules.LearningRateSchedule
    return isinstance(getattr(optimizer, "_learning_rate", None), schedule)


def _callbacks(work: Work, settings: Mapping[str, Any], result: _Result, logs: str) -> list[Any]:
    """hvd's first; on rank 0, TensorBoard's and the checkpoint's last. logs: a local folder for TensorBoard's files."""
    import hvd.keras as hvd

    found = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    found += settings["callbacks"] or []
    if hvd.rank() == 0:
        found += result.callbacks
        keras = importlib.import_module(settings["keras"])
        if keras.backend.backend() == "tensorflow" and can_log("tensorboard"):
            found.append(keras.callbacks.TensorBoard(logs))
        found.append(_Checkpoint(work, result, logs))
    return found


class _Result:
    """What `fit` has trained: the model as it is, or as the param checkpoint_callback has written it last.

    Args:
        folder: a local one, where that callback writes.
    """

    def __init__(self, settings: Mapping[str, Any], folder: str) -> None:
        self._settings = settings
        self._path = ""
        self._written, self._read_at = b"", 0
        callback = settings["checkpoint_callback"]
        self.callbacks = [] if callback is None else [callback]
        for each in self.callbacks:
            is_whole = not getattr(each, "save_weights_only", False)
            each.filepath = self._path = os.path.join(folder, "model.keras" if is_whole else "model.weights.h5")

    def content(self, model: Any) -> bytes:
        """As a file, with the learning rate of one rank."""
        if not os.path.exists(self._path):
            return _with_rate_of_one(model)
        changed = os.stat(self._path).st_mtime_ns
        if changed != self._read_at:
            self._written, self._read_at = _with_rate_of_one(self._load(model)), changed
        return self._written

    def _load(self, model: Any) -> Any:
        keras, custom_objects = importlib.import_module(self._settings["keras"]), self._settings["custom_objects"]
        if self._path.endswith(".keras"):
            return keras.models.load_model(self._path, custom_objects=dict(custom_objects), safe_mode=False)
        other = from_bytes(to_bytes(model), keras, custom_objects)
        other.load_weights(self._path)
        return other


class _Checkpoint(framework.ForEitherKeras, framework.keras.callbacks.Callback):
    def __init__(self, work: Work, result: _Result, folder: str) -> None:
        super().__init__()
        self._work, self._result, self._folder = work, result, folder

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._work.save(lambda: self._result.content(self.model))
        self._work.save_logs(self._folder)

    def on_train_end(self, logs: Any = None) -> None:
        self._work.save_logs(self._folder)


def _with_rate_of_one(model: Any) -> bytes:
    """The model, with the learning rate of one rank."""
    import hvd.keras as hvd
    from hvd.keras.callbacks import learning_rate_of, set_learning_rate

    if _has_schedule(model.optimizer):
        return to_bytes(model)
    rate = learning_rate_of(model.optimizer)
    set_learning_rate(model.optimizer, rate / hvd.size())
    try:
        return to_bytes(model)
    finally:
        set_learning_rate(model.optimizer, rate)


class _Batches:
    """Makes of columns what `fit` takes: inputs, labels, and weights if there are any."""

    def __init__(self, model: Any, work: Work, settings: Mapping[str, Any]) -> None:
        self._work, self._settings = work, settings
        self._inputs = _shapes(model, "input_shape")
        self._outputs = settings["label_shapes"] or _shapes(model, "output_shape")

    def converted(self, columns: Columns) -> tuple[Any, ...]:
        columns = _transformed(columns, self._settings["transformation_fn"])
        inputs = _shaped([columns[name] for name in self._work.features], self._inputs)
        labels = _shaped([columns[name] for name in self._work.labels], self._outputs)
        found = (_alone(inputs), _alone(labels))
        return (*found, columns[self._work.weight]) if self._work.weight else found


def _transformed(columns: Columns, transform: Callable[[Any], Any] | None) -> Columns:
    if transform is None:
        return columns
    import pandas  # type: ignore[import-untyped]

    frame = pandas.DataFrame({name: list(values) if values.ndim > 1 else values for name, values in columns.items()})
    made = transform(frame)
    arrays = {name: made[name].to_numpy() for name in made}
    return {name: np.stack(values) if values.dtype == object else values for name, values in arrays.items()}


def _shapes(model: Any, attribute: str) -> list[Any] | None:
    """Of each input or output; None if the model does not know them yet."""
    found = getattr(model, attribute, None)
    if found is None:
        return None
    if isinstance(found, dict):
        return list(found.values())
    return list(found) if found and isinstance(found[0], (list, tuple)) else [found]


def _shaped(values: Sequence[Any], shapes: Sequence[Any] | None) -> list[Any]:
    """In these shapes, where the numbers are as many: a class number stays what it is."""
    if shapes is None or len(shapes) != len(values):
        return list(values)
    return [_in_shape(value, tuple(shape[1:])) for value, shape in zip(values, shapes)]


def _in_shape(value: Any, per_row: tuple[Any, ...]) -> Any:
    if None in per_row or -1 in per_row or int(np.prod(per_row)) != int(np.prod(value.shape[1:])):
        return value
    return value.reshape(len(value), *per_row)


def _alone(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
