"""Estimators and models of Spark ML pipelines, whatever the framework."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.ml import Estimator, Model

from hvd.spark import frames
from hvd.spark.params import EstimatorParams, ModelParams
from hvd.spark.run_function import run
from hvd.spark.training import Work

Predict = Callable[[Sequence[Any]], Sequence[Any]]  # features to outputs: arrays of shape (rows, ...)


class _Ranks:
    """The backend of num_proc ranks on the active session."""

    def __init__(self, num_proc: int | None) -> None:
        from hvd.spark import engine

        self._num_proc = num_proc or engine.active().default_parallelism()

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, env: Mapping[str, str] | None = None) -> list[Any]:
        return run(fn, args, kwargs, self._num_proc, env=env)

    def num_processes(self) -> int:
        return self._num_proc


class HvdEstimator(Estimator[Any], EstimatorParams):
    """Trains a model on the ranks of a barrier stage, on rows that Spark has written as Parquet files.

    `fit(df)` writes the columns to the store, trains, and returns a model for `transform`. `fit_on_parquet()` trains on
    files that are there. The learning rate is multiplied by the number of ranks while the model trains. After each
    epoch rank 0 writes a checkpoint to the store; a fit with the same run_id goes on from it.

    Raises:
        ValueError: params are missing or make no sense, a column is not there, there are fewer rows than ranks, or only
            some of the ranks have a GPU.
        Exception: as from `hvd.spark.run`.
    """

    _prefix = "run"
    _uneven = "drop"
    _needed: Sequence[str] = ("store", "model", "feature_cols", "label_cols")

    def fit_on_parquet(self, params: Mapping[Any, Any] | None = None, dataset_idx: int | None = None) -> Any:
        """Trains on the Parquet files at the store's train path, and validates on those at its val path if the param
        validation is set. Called on the driver.

        Args:
            params: values by Param that replace this estimator's for this fit.
            dataset_idx: the number behind the store's paths, as `prepare_data` gives it; None: the paths without one.

        Returns:
            The trained model, for `transform`.

        Raises:
            ValueError: a param is missing, a column is not there, or there are fewer rows than ranks.
            FileNotFoundError: there are no files at the train or val path.
            Exception: as from `hvd.spark.run`.
        """
        chosen = self.copy(dict(params)) if params else self
        chosen._check()
        store = chosen.getStore()
        val_path = store.get_val_data_path(dataset_idx) if chosen.getValidation() else None
        return chosen._fit_on(store.get_train_data_path(dataset_idx), val_path, chosen._backend())

    def _fit(self, dataset: Any) -> Any:
        self._check()
        backend, store = self._backend(), self.getStore()
        weight = self.getSampleWeightCol()
        columns = [*self.getFeatureCols(), *self.getLabelCols(), *([weight] if weight else [])]
        files = max(backend.num_processes() * self.getPartitionsPerProcess(), 1)
        with store.data_index() as index:
            seed = self.getRandomSeed() or 0
            paths = frames.write(dataset, columns, self.getValidation(), store, index, files, seed)
            return self._fit_on(*paths, backend)

    def _fit_on(self, train_path: str, val_path: str | None, backend: Any) -> Any:
        rows = self._count(train_path)
        size = backend.num_processes()
        if rows < size:
            raise ValueError(f"there are {rows} rows to train on ({train_path}), fewer than the {size} ranks")
        if val_path:
            self._count(val_path)
        uneven = "repeat" if rows < size * self.getBatchSize() else self._uneven
        work = Work(
            store=self.getStore(),
            run_id=self.getRunId() or f"{self._prefix}_{int(time.time())}_{uuid.uuid4().hex[:8]}",
            train_path=train_path,
            val_path=val_path,
            features=self.getFeatureCols(),
            labels=self.getLabelCols(),
            weight=self.getSampleWeightCol(),
            batch_size=self.getBatchSize(),
            val_batch_size=self.getValBatchSize() or self.getBatchSize(),
            epochs=self.getEpochs(),
            shuffle=self.getShuffle(),
            seed=self.getRandomSeed(),
            train_steps=self.getTrainStepsPerEpoch(),
            val_steps=self.getValidationStepsPerEpoch(),
            uneven=uneven,
            verbose=self.getVerbose(),
            use_gpu=self.getUseGpu(),
            data_module=self.getDataModule(),
            data_module_options={
                "transform_fn": self.getTransformationFn(),
                "inmemory_cache_all": self.getInMemoryCacheAll(),
                "reader_pool_type": self.getReaderPoolType(),
                "train_reader_worker_count": self.getTrainReaderNumWorker(),
                "val_reader_worker_count": self.getValReaderNumWorker(),
                "continuous_cols": self.getContinuousCols(),
                "categorical_cols": self.getCategoricalCols(),
            },
        )
        function, arguments = self._training()
        results = backend.run(function, args=(work, *arguments), env=self.getBackendEnv())
        return self._trained(work, results[0])

    def _count(self, path: str) -> int:
        """Rows of Parquet files. ValueError: there are none, or a column is missing."""
        from hvd import data

        weight, store = self.getSampleWeightCol(), self.getStore()
        columns = [*self.getFeatureCols(), *self.getLabelCols(), *([weight] if weight else [])]
        reader = data.parquet(store.readable(path), 1, columns=columns, storage_options=store.storage_options)
        return len(reader)

    def _check(self) -> None:
        if missing := [name for name in self._needed if not self.getOrDefault(name)]:
            raise ValueError(f"{type(self).__name__} needs the params {', '.join(missing)}")
        if self.getBackend() is not None and self.getNumProc() is not None:
            raise ValueError("num_proc and backend are both given: the backend knows how many ranks it has")

    def _backend(self) -> Any:
        return self.getBackend() or _Ranks(self.getNumProc())

    def _training(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        """The function that trains, called with the Work and these arguments on every rank."""
        raise NotImplementedError

    def _trained(self, work: Work, result: Any) -> Any:
        """The model, of what the function has returned on rank 0."""
        raise NotImplementedError


class HvdModel(Model, ModelParams):
    """A trained model: `transform(df)` adds a column `label__output` for each label (or those of `setOutputCols`).

    Outputs of one number a row are float if the label is, or else double; others are dense vectors. The model is loaded
    once in each task, and runs there on the CPU. To learn the size of its outputs, it runs once on the driver, on the
    frame's first row.
    """

    def _transform(self, dataset: Any) -> Any:
        from pyspark.ml.linalg import VectorUDT
        from pyspark.sql.types import DoubleType, FloatType, StructField, StructType

        features, labels = self.getFeatureColumns(), self.getLabelColumns()
        if missing := [name for name in features if name not in dataset.columns]:
            raise ValueError(f"no column {', '.join(missing)}: the frame has {', '.join(dataset.columns)}")
        outputs = self.getOutputCols() or [f"{label}__output" for label in labels]
        load = self._loader()
        sizes = _output_sizes(dataset, features, load)
        if len(sizes) != len(outputs):
            raise ValueError(f"the model has {len(sizes)} outputs, but {len(outputs)} output columns")
        fields = list(dataset.schema.fields)
        types = {field.name: field.dataType for field in fields}
        for label, name, size in zip(labels, outputs, sizes):
            is_float = isinstance(types.get(label), FloatType)
            kind = VectorUDT() if size > 1 else FloatType() if is_float else DoubleType()
            fields.append(StructField(name, kind, True))
        is_single = [isinstance(field.dataType, FloatType) for field in fields[-len(outputs) :]]
        return dataset.mapInArrow(_predicting(load, features, outputs, sizes, is_single), StructType(fields))

    def _loader(self) -> Callable[[], Predict]:
        """A function, called once in each task, that returns what predicts. It can be pickled."""
        raise NotImplementedError


def _output_sizes(dataset: Any, features: Sequence[str], load: Callable[[], Predict]) -> list[int]:
    """Numbers a row, of each output."""
    import numpy as np
    from pyspark.ml.linalg import Vector

    first = dataset.select(*features).limit(1).collect()
    if not first:
        raise ValueError("the frame has no rows")
    values = [np.asarray([value.toArray() if isinstance(value, Vector) else value]) for value in first[0]]
    # Decimals and nulls are float64 in the tasks, which read them from Arrow.
    values = [value.astype(np.float64) if value.dtype == object else value for value in values]
    return [int(np.prod(output.shape[1:])) for output in load()(values)]


def _predicting(
    load: Callable[[], Predict],
    features: Sequence[str],
    outputs: Sequence[str],
    sizes: Sequence[int],
    is_single: Sequence[bool],
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def predict_batches(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from hvd.spark import arrow

        predict = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            predict = predict or load()
            names = batch.schema.names
            found = predict([arrow.to_numpy(batch.column(names.index(name)), name) for name in features])
            added = [
                arrow.vectors(values.reshape(batch.num_rows, size))
                if size > 1
                else pa.array(values.reshape(-1).astype("float32" if single else "float64"))
                for values, size, single in zip(found, sizes, is_single)
            ]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], names=[*names, *outputs])

    return predict_batches
