"""The params of estimators and models, as Spark ML has them: with setX, getX, defaults, and a form to be saved in."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import cloudpickle
import pyspark
from pyspark.ml.param import Param, Params
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

C = TypeVar("C", bound=type)

_NOT_SAVED = ("store", "backend")

# Names in setters and getters that do not follow from the param's.
_ACCESSORS = {
    "inmemory_cache_all": "InMemoryCacheAll",
    "num_gpus": "NumGPUs",
    "shuffle_buffer_size": "ShufflingBufferSize",
    "train_reader_num_workers": "TrainReaderNumWorker",
    "val_reader_num_workers": "ValReaderNumWorker",
}


def with_params(**docs: str) -> Callable[[C], C]:
    """Gives a class of params a Param, a setter and a getter for each name: `setNumProc`, `getNumProc` for num_proc."""

    def add(cls: C) -> C:
        for name, doc in docs.items():
            camel = _ACCESSORS.get(name) or "".join(part.capitalize() for part in name.split("_"))
            setattr(cls, name, Param(Params._dummy(), name, doc))
            setattr(cls, f"set{camel}", _setter(name))
            setattr(cls, f"get{camel}", _getter(name))
        return cls

    return add


def _setter(name: str) -> Callable[[Any, Any], Any]:
    def set_param(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    return set_param


def _getter(name: str) -> Callable[[Any], Any]:
    def get_param(self: Any) -> Any:
        return self.getOrDefault(name)

    return get_param


class SavedParams(Params, MLWritable, MLReadable[Any]):
    """Params that are written as pickles, since models and functions are among them: load only what you trust. Store
    and backend are not saved."""

    defaults: ClassVar[Mapping[str, Any]] = {}

    if TYPE_CHECKING:  # what with_params adds

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._setDefault(**self.defaults)
        self.setParams(**given)

    def setParams(self, **given: Any) -> Any:
        if unknown := [name for name in given if not self.hasParam(name)]:
            raise TypeError(f"{type(self).__name__} has no param {', '.join(unknown)}")
        return self._set(**{name: value for name, value in given.items() if value is not None})

    def _to_save(self) -> dict[str, Any]:
        """Values by name, to be pickled."""
        return {param.name: value for param, value in self._paramMap.items() if param.name not in _NOT_SAVED}

    def write(self) -> MLWriter:
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        return _Reader(cls)


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        values = {name: _encoded(value) for name, value in self._instance._to_save().items()}
        plain = self._instance.copy()
        plain._defaultParamMap = {}  # the class has them, and JSON has not all of their types
        DefaultParamsWriter.saveMetadata(plain, path, _session_or_context(self), paramMap=values)


class _Reader(MLReader[Any]):
    def __init__(self, cls: Any) -> None:
        super().__init__()
        self._class = cls

    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, _session_or_context(self))
        instance = self._class()
        instance._resetUid(metadata["uid"])
        return instance._set(**{name: _decoded(value) for name, value in metadata["paramMap"].items()})


def _session_or_context(saver: MLWriter | MLReader[Any]) -> Any:
    """What PySpark's functions for metadata take: the session, or before Spark 4 its context."""
    return saver.sparkSession if int(pyspark.__version__.partition(".")[0]) >= 4 else saver.sc


def _without_value(names: str) -> dict[str, None]:
    return dict.fromkeys(names.split())


def _encoded(value: Any) -> str:
    return base64.b64encode(cloudpickle.dumps(value)).decode()


def _decoded(text: str) -> Any:
    return cloudpickle.loads(base64.b64decode(text))


@with_params(
    num_proc="number of ranks; or else give a backend",
    backend="what runs a function on the ranks: anything with run(fn, args, kwargs, env) and num_processes()",
    store="where data and checkpoints are kept",
    model="the model to train",
    optimizer="the optimizer; its learning rate is that of one rank",
    loss="the loss",
    loss_weights="of each label",
    metrics="what is computed beside the loss",
    feature_cols="columns that the model takes",
    label_cols="columns that the loss takes",
    sample_weight_col="a column with the weight of each row in the loss",
    continuous_cols="for data_module",
    categorical_cols="for data_module",
    label_shapes="of each label, with -1 for the rows",
    input_shapes="of each feature, with -1 for the rows",
    validation="the ratio of rows for validation, or the column that is positive in those",
    batch_size="rows of one rank",
    val_batch_size="the same in validation",
    epochs="how many",
    verbose="0: silent",
    callbacks="the framework's",
    random_seed="of the framework and of the order of rows",
    run_id="the name of the run in the store; one that has a checkpoint goes on from it",
    shuffle="whether rows come in another order in each epoch",
    shuffle_buffer_size="without effect: rows of several row groups are mixed",
    partitions_per_process="files that are written, by rank",
    train_steps_per_epoch="instead of as many as there are batches",
    validation_steps_per_epoch="instead of as many as there are batches",
    data_module="a class that reads the files on the ranks, in place of hvd.data; see `hvd.spark.data_module`",
    transformation_fn="what is done to the rows that are read",
    transformation_edit_fields="without effect: columns are what transformation_fn makes",
    transformation_removed_fields="without effect",
    train_reader_num_workers="for data_module",
    val_reader_num_workers="for data_module",
    reader_pool_type="for data_module",
    inmemory_cache_all="for data_module; without it files are in the page cache",
    gradient_compression="one of hvd.Compression",
    compress_sparse_cols="without effect: sparse vectors are written densely",
    use_gpu="whether ranks use GPUs if they have some",
    mp_start_method="without effect",
    backend_env="variables for the ranks",
)
class EstimatorParams(SavedParams):
    """What the estimators of all frameworks have."""

    defaults: ClassVar[Mapping[str, Any]] = {
        **_without_value(
            "num_proc backend store model optimizer loss loss_weights feature_cols label_cols sample_weight_col "
            "continuous_cols categorical_cols label_shapes input_shapes validation val_batch_size random_seed run_id "
            "shuffle_buffer_size train_steps_per_epoch validation_steps_per_epoch data_module transformation_fn "
            "transformation_edit_fields transformation_removed_fields gradient_compression mp_start_method"
        ),
        "metrics": [],
        "batch_size": 32,
        "epochs": 1,
        "verbose": 1,
        "callbacks": [],
        "shuffle": True,
        "partitions_per_process": 10,
        "train_reader_num_workers": 2,
        "val_reader_num_workers": 2,
        "reader_pool_type": "thread",
        "inmemory_cache_all": False,
        "compress_sparse_cols": False,
        "use_gpu": True,
        "backend_env": {},
    }


@with_params(
    history="of the losses and metrics",
    model="the trained model",
    feature_columns="that the model takes",
    label_columns="that it was trained on",
    output_cols="the columns that transform adds; by default label__output for each label",
    run_id="of the run that trained it",
    _metadata="without effect",
)
class ModelParams(SavedParams):
    """What the models of all frameworks have."""

    defaults: ClassVar[Mapping[str, Any]] = _without_value(
        "history model feature_columns label_columns output_cols run_id _metadata"
    )
