"""The estimators of horovod.spark in Spark ML pipelines, and their stores, with the real PySpark on two ranks."""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
import threading
import time
from decimal import Decimal
from unittest import mock

import cloudpickle
import numpy as np
import pytest

os.environ["PYSPARK_PYTHON"] = sys.executable  # of the executors' processes

import pyarrow.parquet
import pyspark
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession

import hvd.data
import hvd.spark
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store
from horovod.spark.common.util import prepare_data
from hvd.spark import arrow, data_module
from hvd.spark.data_module import DataModule
from hvd.spark.estimator import _output_sizes
from launching import ROOT

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::FutureWarning")]

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

WEIGHTS = np.array([1.0, 2.0, -1.0])
ROWS = 100


@pytest.fixture(scope="module")
def session():
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "spark_daemon",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        # What takes longer to compile than the rows take.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def frame(session):
    """y is a linear function of a, b and c; every fifth row is for validation, and the rows of weight 0 are wrong."""
    inputs = np.random.default_rng(0).normal(size=(ROWS, 3))
    rows = [
        (*map(float, x), float(x @ WEIGHTS) + (50.0 if i % 7 == 3 else 0.0), i % 5 == 0, float(i % 7 != 3), i)
        for i, x in enumerate(inputs)
    ]
    return session.createDataFrame(rows, ["a", "b", "c", "y", "held", "weight", "number"]).repartition(2)


@pytest.fixture(scope="module")
def assembler(session):
    return VectorAssembler(inputCols=["a", "b", "c"], outputCol="x")


def error(predictions) -> float:
    """Of the rows that are right."""
    rows = predictions.collect()
    assert len(rows) == ROWS
    rows = [row for row in rows if row["weight"]]
    return max(abs(row["y"] - row["y__output"]) for row in rows)


def torch_estimator(store, **params):
    import torch

    from horovod.spark.torch import TorchEstimator

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    return TorchEstimator(
        **{
            "num_proc": 2,
            "store": store,
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=np.float64(0.1)),
            "loss": torch.nn.functional.mse_loss,
            "feature_cols": ["x"],
            "label_cols": ["y"],
            "sample_weight_col": "weight",
            "input_shapes": [[-1, 3]],
            "batch_size": 8,
            "verbose": 0,
            **params,
        }
    )


def test_torch(frame, assembler, tmp_path) -> None:
    import torch

    store = Store.create(str(tmp_path))
    metrics = [torch.nn.functional.l1_loss]
    estimator = torch_estimator(store, validation="held", epochs=4, run_id="one", metrics=metrics)
    pipeline = Pipeline(stages=[assembler, estimator]).fit(frame)
    model = pipeline.stages[-1]
    history = model.getHistory()
    assert [entry["epoch"] for entry in history] == [0, 1, 2, 3]
    assert history[-1]["validation"]["loss"] < history[0]["train"]["loss"]
    assert len(history[0]["train"]["all_metrics"]) == 1
    assert model.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.1)
    predictions = pipeline.transform(frame)
    assert predictions.columns[-2:] == ["x", "y__output"]
    before = error(predictions)

    # The same run goes on from its checkpoint.
    resumed = torch_estimator(store, epochs=4, run_id="one").fit(assembler.transform(frame))
    assert [entry["epoch"] for entry in resumed.getHistory()] == [4, 5, 6, 7]
    assert resumed.getHistory()[-1]["train"]["loss"] < history[-1]["train"]["loss"]
    pipeline.write().overwrite().save(str(tmp_path / "saved"))
    loaded = PipelineModel.load(str(tmp_path / "saved"))
    assert error(loaded.transform(frame)) == pytest.approx(before, rel=1e-5)


def test_keras(frame, assembler, tmp_path) -> None:
    import keras

    from horovod.spark.keras import KerasEstimator

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    estimator = KerasEstimator(
        num_proc=2,
        store=LocalStore(str(tmp_path)),
        model=model,
        optimizer=keras.optimizers.SGD(0.05),
        loss="mse",
        metrics=["mae"],
        feature_cols=["x"],
        label_cols=["y"],
        sample_weight_col="weight",
        validation=0.2,
        batch_size=8,
        epochs=4,
        verbose=0,
    ).setRunId("two")
    assert estimator.getRunId() == "two" and estimator.getEpochs() == 4
    rows = assembler.transform(frame)
    trained = estimator.fit(rows)
    history = trained.getHistory()
    assert len(history["loss"]) == 4 and history["val_loss"][-1] < history["loss"][0] and "mae" in history
    assert float(trained.getModel().optimizer.learning_rate) == pytest.approx(0.05)
    resumed = estimator.fit(rows)
    assert resumed.getHistory()["loss"][-1] < history["loss"][-1]
    logs = tmp_path / "runs" / "two" / "logs"
    assert logs.exists() == (importlib.util.find_spec("tensorboard") is not None)
    assert error(resumed.setOutputCols(["y__output"]).transform(rows)) < 0.5
    # In a process that has TensorFlow already.
    fed = hvd.spark.run(read_with_tensorflow, (hvd.spark.feed(frame.select("number", "a")),), num_proc=1)
    assert fed == [[sorted(range(ROWS))] * 2]


def read_with_tensorflow(feed) -> list[list[int]]:
    """The numbers of each of two epochs."""
    import tensorflow as tf

    signature = {"number": tf.TensorSpec([None], tf.int64), "a": tf.TensorSpec([None], tf.float64)}
    dataset = feed.tf(16, signature)
    return [sorted(int(number) for batch in dataset for number in batch["number"]) for _ in range(2)]


class Here:
    """A backend of one rank, this process."""

    def run(self, fn, args=(), kwargs=None, env=None):
        fn, args = cloudpickle.loads(cloudpickle.dumps((fn, args)))
        try:
            return [fn(*args)]
        finally:
            hvd.shutdown()

    def num_processes(self) -> int:
        return 1


def test_a_generator_that_a_framework_still_reads_is_closed_after_that() -> None:
    entered, left = threading.Event(), []

    def batches():
        try:
            entered.set()
            time.sleep(0.2)
            yield 1
        finally:
            left.append(True)

    generator = batches()
    reader = threading.Thread(target=next, args=(generator,))
    reader.start()
    entered.wait(20)
    data_module._close(generator)
    reader.join(20)
    assert left == [True] and next(generator, None) is None


def test_tf_keras(tmp_path) -> None:
    import tf_keras
    import torch

    from horovod.tensorflow.keras.callbacks import BestModelCheckpoint
    from hvd.spark.keras import KerasEstimator, from_bytes

    store = Store.create(str(tmp_path))
    inputs = np.random.default_rng(0).normal(size=(ROWS, 3))
    table = pyarrow.table({"x": list(inputs), "y": inputs @ WEIGHTS})
    (tmp_path / "intermediate_train_data").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "intermediate_train_data" / "part-0.parquet")
    model = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(1)])
    model.compile(optimizer=tf_keras.optimizers.SGD(0.05), loss="mse")
    columns = {"feature_cols": ["x"], "label_cols": ["y"]}
    settings = {"store": store, "backend": Here(), "batch_size": 8, "epochs": 2, "verbose": 0, "run_id": "two"}
    trained = KerasEstimator(model=model, **columns, **settings).fit_on_parquet()
    resumed = KerasEstimator(model=model, **columns, **settings).fit_on_parquet()
    assert not [thread for thread in threading.enumerate() if thread.name == "hvd-data"]
    assert resumed.getHistory()["loss"][-1] < trained.getHistory()["loss"][-1] < trained.getHistory()["loss"][0]
    assert isinstance(resumed.getModel(), tf_keras.Model)
    assert float(resumed.getModel().optimizer.learning_rate) == pytest.approx(0.05)
    (predicted,) = resumed._loader()()([inputs])
    np.testing.assert_allclose(predicted[:, 0], inputs @ WEIGHTS, atol=0.5)

    # Of the two epochs of another run, the one with the larger loss is kept.
    for weights_only in (False, True):
        first = BestModelCheckpoint(monitor="loss", mode="max", save_weights_only=weights_only)
        other = {**settings, "run_id": f"weights only: {weights_only}", "checkpoint_callback": first}
        kept = KerasEstimator(model=model, **columns, **other).fit_on_parquet()
        (early,) = kept._loader()()([inputs])
        (saved,) = trained._loader()()([inputs])
        stored = from_bytes(store.read_checkpoint(other["run_id"]), tf_keras, {})
        np.testing.assert_array_equal(stored.predict_on_batch(inputs), early)
        assert np.square(early[:, 0] - inputs @ WEIGHTS).mean() > 2 * np.square(saved[:, 0] - inputs @ WEIGHTS).mean()
        assert float(kept.getModel().optimizer.learning_rate) == pytest.approx(0.05)
    with pytest.raises(ValueError, match=r"of keras or tf_keras is needed, and torch.* is of neither"):
        KerasEstimator(model=torch.nn.Linear(3, 1), loss="mse", **columns, **settings).fit_on_parquet()


def test_decimals_and_nulls_of_the_first_row_are_floating_point_numbers() -> None:
    frame = mock.Mock()
    frame.select.return_value.limit.return_value.collect.return_value = [(Decimal("1.5"), None, [Decimal(2), None], 3)]
    given = []

    def predict(features):
        given.extend(features)
        return [np.zeros((1, 2)), np.zeros(1)]

    assert _output_sizes(frame, ["a", "b", "c", "d"], lambda: predict) == [2, 1]
    assert [values.dtype for values in given] == [np.float64] * 3 + [np.int64]
    for values, expected in zip(given, ([1.5], [np.nan], [[2.0, np.nan]], [3])):
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_compiled_model_keeps_its_objective(tmp_path, package) -> None:
    """Of two outputs only the first counts, as the model was compiled; params come before that."""
    from hvd.spark.keras import KerasEstimator

    keras = importlib.import_module(package)
    inputs = np.random.default_rng(0).normal(size=(ROWS, 3))
    table = pyarrow.table({"x": list(inputs), "y": inputs @ WEIGHTS, "z": inputs @ WEIGHTS})
    (tmp_path / "intermediate_train_data").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "intermediate_train_data" / "part-0.parquet")
    given = keras.Input((3,))
    model = keras.Model(given, [keras.layers.Dense(1, name=name)(given) for name in ("first", "second")])
    model.compile(
        optimizer=keras.optimizers.SGD(0.05),
        loss=["mse", "mse"],
        loss_weights=[1.0, 0.0],
        metrics=[["mae"], [keras.metrics.RootMeanSquaredError()]],
    )
    settings = {"store": Store.create(str(tmp_path)), "backend": Here(), "batch_size": 10, "epochs": 2, "verbose": 0}
    settings |= {"model": model, "feature_cols": ["x"], "label_cols": ["y", "z"]}

    def history(**params) -> dict[str, list[float]]:
        return KerasEstimator(**settings, **params).fit_on_parquet().getHistory()

    kept = history(run_id="kept")
    assert kept["loss"] == pytest.approx(kept["first_loss"], rel=1e-4) and kept["second_loss"][-1] > 1
    assert {"first_mae", "second_root_mean_squared_error"} <= kept.keys()
    resumed = history(run_id="kept")
    assert resumed["loss"] == pytest.approx(resumed["first_loss"], rel=1e-4) and "first_mae" in resumed
    chosen = history(loss_weights=[0.0, 1.0], metrics=[["mse"], ["mse"]])
    assert chosen["loss"] == pytest.approx(chosen["second_loss"], rel=1e-4) and "first_mae" not in chosen
    other = history(loss=["mae", "mae"])
    totals = [first + second for first, second in zip(other["first_loss"], other["second_loss"])]
    assert other["loss"] == pytest.approx(totals, rel=1e-4)
    assert package == "keras" or "first_mae" not in other  # Keras 3 keeps the metrics of an earlier compile()


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_models_of_code_that_keras_does_not_know(session, tmp_path, package) -> None:
    """The loss and the metrics are known where the model is; a model is saved with its custom_objects."""
    from hvd.spark.keras import KerasEstimator, KerasModel

    keras = importlib.import_module(package)

    def twice(values):
        return 2 * values

    def distance(label, output):
        return (label - output) ** 2

    class Distance(keras.losses.Loss):
        def call(self, label, output):
            return (label - output) ** 2

    inputs = np.random.default_rng(0).normal(size=(ROWS, 3)).astype("float32")
    table = pyarrow.table({"x": list(inputs), "y": inputs @ WEIGHTS.astype("float32")})
    (tmp_path / "intermediate_train_data").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "intermediate_train_data" / "part-0.parquet")
    columns = {"feature_cols": ["x"], "label_cols": ["y"]}
    settings = {"store": Store.create(str(tmp_path)), "backend": Here(), "batch_size": 10, "verbose": 0, **columns}

    halves = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x / 2), keras.layers.Dense(1)])
    trained = KerasEstimator(model=halves, loss="mse", **settings).fit_on_parquet()
    assert trained._loader()()([inputs])[0].shape == (ROWS, 1)

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation=twice)])
    settings |= {"model": model, "custom_objects": {"twice": twice}}
    for loss, metrics in ((distance, [distance]), (Distance(), [])):
        estimator = KerasEstimator(loss=loss, metrics=metrics, run_id=type(loss).__name__, **settings)
        estimator.fit_on_parquet()
        estimator.write().overwrite().save(str(tmp_path / "estimator"))
        loaded = KerasEstimator.load(str(tmp_path / "estimator")).setStore(estimator.getStore()).setBackend(Here())
        resumed = loaded.fit_on_parquet()
        resumed.write().overwrite().save(str(tmp_path / "model"))
        (predicted,) = KerasModel.load(str(tmp_path / "model"))._loader()()([inputs])
        np.testing.assert_array_equal(predicted, resumed._loader()()([inputs])[0])


class Made:
    """Becomes a callback when it is unpickled, and notes that in a file."""

    def __init__(self, path) -> None:
        self._path = path

    def __reduce__(self):
        return made, (self._path,)


def made(path):
    import keras

    with open(path, "a") as file:
        file.write("made ")
    return keras.callbacks.Callback()


def test_a_gpu_is_chosen_before_anything_is_made(tmp_path, monkeypatch) -> None:
    """Once there is a metric, which has variables, TensorFlow lets nobody choose."""
    import keras

    from hvd.spark.keras import KerasEstimator

    note = tmp_path / "note"
    note.write_text("")
    monkeypatch.setattr("hvd.spark.keras._choose_gpu", lambda *_: note.write_text(f"{note.read_text()}chosen "))
    (tmp_path / "intermediate_train_data").mkdir()
    table = pyarrow.table({"x": [1.0] * 4, "y": [1.0] * 4})
    pyarrow.parquet.write_table(table, tmp_path / "intermediate_train_data" / "part-0.parquet")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    settings = {"store": Store.create(str(tmp_path)), "backend": Here(), "feature_cols": ["x"], "label_cols": ["y"]}
    KerasEstimator(model=model, loss="mse", callbacks=[Made(str(note))], verbose=0, **settings).fit_on_parquet()
    assert note.read_text() == "chosen made "


def test_a_compiled_model_that_does_not_say_how(tmp_path) -> None:
    import keras

    from hvd.spark.keras import KerasEstimator

    class Own(keras.Model):
        def get_compile_config(self):
            return None

    given = keras.Input((3,))
    model = Own(given, keras.layers.Dense(1)(given))
    model.compile(loss="mse")
    columns = {"feature_cols": ["x"], "label_cols": ["y"]}
    store = Store.create(str(tmp_path))
    estimator = KerasEstimator(model=model, store=store, backend=Here(), custom_objects={"Own": Own}, **columns)
    with pytest.raises(ValueError, match=r"the model does not say how it was compiled .*: give the params loss"):
        estimator.fit_on_parquet()


class Shards(DataModule):
    """Every second row, in batches of tensors."""

    def __init__(self, **keywords) -> None:
        super().__init__(**keywords)
        assert self.shard_count == 2 and self.has_val and self.schema_fields == ["x", "a"]
        assert keywords["label_cols"] == ["a"]
        self._steps = self.steps_per_epoch_train, self.steps_per_epoch_val
        self._folders = self.train_dir, self.val_dir

    def __exit__(self, *_) -> None:
        self._folders = ()

    def train_data(self):
        return self._batches(0)

    def val_data(self):
        return self._batches(1)

    def _batches(self, kind: int):
        import torch

        table = pyarrow.parquet.read_table(self._folders[kind].removeprefix("file://"))
        rows = {name: torch.tensor(values)[self.cur_shard :: 2].float() for name, values in table.to_pydict().items()}
        places = torch.arange(self._steps[kind] * self.train_batch_size).reshape(self._steps[kind], -1)
        batches = [{name: values[place % len(values)] for name, values in rows.items()} for place in places]
        return torch.utils.data.DataLoader(batches, batch_size=None)


class Rows(DataModule):
    """One batch with all rows, as tensors; for validation as a pair."""

    def train_data(self):
        import torch

        table = pyarrow.parquet.read_table(self.train_dir.removeprefix("file://"))
        return [{name: torch.tensor(values).float() for name, values in table.to_pydict().items()}]

    def val_data(self):
        return [({"x": batch["x"]}, batch["y"]) for batch in self.train_data()]


class Pairs(Rows):
    """The same for Keras, without an end."""

    def train_data(self):
        ((inputs, labels),) = ([np.asarray(values) for values in batch.values()] for batch in super().train_data())
        while True:
            yield inputs, labels

    def val_data(self):
        return self.train_data()


class Nothing(Rows):
    def train_data(self):
        return []


def test_data_modules(tmp_path) -> None:
    import keras

    from hvd.spark.keras import KerasEstimator

    inputs = np.random.default_rng(0).normal(size=(ROWS, 3))
    table = pyarrow.table({"x": list(inputs), "y": inputs @ WEIGHTS})
    for name in ("train", "val"):
        (tmp_path / f"intermediate_{name}_data").mkdir()
        pyarrow.parquet.write_table(table, tmp_path / f"intermediate_{name}_data" / "part-0.parquet")
    params = {
        "validation": 0.5,
        "num_proc": None,
        "backend": Here(),
        "batch_size": ROWS // 4,
        "epochs": 5,
        "sample_weight_col": None,
    }
    estimator = torch_estimator(Store.create(str(tmp_path)), data_module=Rows, **params)
    history = estimator.fit_on_parquet().getHistory()
    # Four times the same batch make an epoch, and as many steps of gradient descent.
    losses = [entry["train"]["loss"] for entry in history]
    assert len(losses) == 5 and losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 10
    assert losses[-1] < history[-2]["validation"]["loss"] < losses[-2]
    with pytest.raises(ValueError, match="has no more batches"):
        estimator.setDataModule(Nothing).fit_on_parquet()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    trained = KerasEstimator(
        **{**params, "store": estimator.getStore(), "model": model, "optimizer": keras.optimizers.SGD(0.1)},
        **{"loss": "mse", "feature_cols": ["x"], "label_cols": ["y"], "data_module": Pairs, "verbose": 0},
        backward_passes_per_step=2,
    ).fit_on_parquet()
    losses = trained.getHistory()["loss"]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2
    assert len(trained.getHistory()["val_loss"]) == 5


def test_steps_labels_and_metrics_are_those_of_horovod(tmp_path) -> None:
    import torch

    class Scaled(torch.nn.Module):
        """With an output for each label."""

        def __init__(self, labels: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.labels = labels

        def forward(self, x):
            return [self.weight * x] * self.labels

    def mean(output, label):
        return output.mean()

    def trained(labels, **params):
        model = Scaled(len(labels))
        own = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loss": mean}
        own |= {"label_cols": labels, "sample_weight_col": None, "input_shapes": [[-1, 1]], "batch_size": 1}
        store = Store.create(str(tmp_path))
        found = torch_estimator(store, num_proc=None, backend=Here(), **own, **params).fit_on_parquet()
        return found.getModel().weight.item(), found.getHistory()[0]["train"]

    (tmp_path / "intermediate_train_data").mkdir()
    table = pyarrow.table({name: np.ones(5, np.float32) for name in ("x", "y", "z")})
    pyarrow.parquet.write_table(table, tmp_path / "intermediate_train_data" / "part-0.parquet")
    assert trained(["y"])[0] == pytest.approx(0.5)  # five steps of 0.1
    assert trained(["y"], backward_passes_per_step=2)[0] == pytest.approx(0.75)  # two, and half of one
    weight, history = trained(["y", "z"], metrics=[[mean], [mean, mean]])
    assert weight == pytest.approx(0.5) and history["all_metrics"] == pytest.approx([history["loss"]] * 4)


def test_setters_have_the_names_that_horovod_gave_them() -> None:
    from horovod.spark.keras import KerasEstimator
    from horovod.spark.lightning import TorchEstimator as LightningEstimator
    from horovod.spark.torch import TorchEstimator, TorchModel

    common = "InMemoryCacheAll ShufflingBufferSize TrainReaderNumWorker ValReaderNumWorker DataModule "
    common += "TransformationEditFields TransformationRemovedFields MpStartMethod ReaderPoolType"
    for kind, names in (
        (KerasEstimator, f"{common} BackwardPassesPerStep CheckpointCallback"),
        (TorchEstimator, f"{common} BackwardPassesPerStep TrainMinibatchFn LossConstructors"),
        (LightningEstimator, f"{common} NumGPUs TrainAsyncDataLoaderQueueSize"),
        (TorchModel, "LossConstructors InputShapes OutputCols"),
    ):
        for name in names.split():
            assert getattr(getattr(kind(), f"set{name}")([7]), f"get{name}")() == [7]


@pytest.mark.long
def test_lightning(frame, assembler, tmp_path) -> None:
    import lightning
    import torch

    from horovod.spark.lightning import TorchEstimator

    class Linear(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x)

        def training_step(self, batch, _):
            loss = self._loss(batch)
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch, _):
            self.log("val_loss", self._loss(batch))

        def _loss(self, batch):
            return torch.nn.functional.mse_loss(self(batch["x"])[:, 0], batch["a"])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    rows = assembler.transform(frame)
    store = Store.create(str(tmp_path))
    estimator = TorchEstimator(
        num_proc=2, store=store, model=Linear(), feature_cols=["x"], label_cols=["a"], validation=0.2, batch_size=8,
        epochs=3, verbose=0, input_shapes=[[-1, 3]], run_id="three",
    )  # fmt: skip
    trained = estimator.fit(rows)
    history = trained.getHistory()
    assert len(history) == 3 and history[-1]["val_loss"] < history[0]["val_loss"]
    assert store.exists(store.get_checkpoint_path("three"))
    assert any("tfevents" in name for name in os.listdir(tmp_path / "runs" / "three" / "logs"))  # by tensorboardX
    module = {"data_module": Shards, "epochs": 1, "run_id": "four"}
    with_module = estimator.copy({estimator.getParam(name): value for name, value in module.items()}).fit(rows)
    assert [entry["loss"] > 0 and entry["val_loss"] > 0 for entry in with_module.getHistory()] == [True]
    predictions = trained.transform(rows).collect()
    assert all(abs(row["a"] - row["a__output"][0]) < 0.5 and len(row["a__output"]) == 2 for row in predictions)


@pytest.mark.parametrize("place", [(0, 0, 2, 0, 2), (1, 1, 2, 0, 1), (2, 0, 1, 1, 2)], ids=str)
def test_lightning_on_hosts_with_unequal_numbers_of_ranks(monkeypatch, tmp_path, place) -> None:
    """Three ranks, of which two are on the first host."""
    import lightning.pytorch

    from hvd.spark.lightning import _trainer

    for name, value in zip(("rank", "local_rank", "local_size", "cross_rank", "cross_size"), place):
        monkeypatch.setattr(f"hvd.torch.{name}", lambda value=value: value)
    monkeypatch.setattr("hvd.torch.size", lambda: 3)
    names = "callbacks gradient_compression trainer_args log_every_n_steps profiler"
    settings = {**dict.fromkeys(names.split()), "logger": False}
    trainer = _trainer(lightning.pytorch, mock.Mock(epochs=1), settings, None, [], str(tmp_path))
    trainer.strategy.set_world_ranks()
    assert (trainer.global_rank, trainer.world_size, trainer.local_rank) == (place[0], 3, 0)
    assert trainer.strategy.cluster_environment.creates_processes_externally


@pytest.mark.long
def test_the_example(session, tmp_path) -> None:
    """Without its own session; a random choice is right once in ten."""
    program = runpy.run_path(str(ROOT / "examples" / "spark" / "estimators.py"))
    assert program["train"](session, 2, 2, str(tmp_path)) > 0.5


def test_wrong_params(frame, assembler, tmp_path) -> None:
    store = Store.create(str(tmp_path))
    rows = assembler.transform(frame)
    with pytest.raises(TypeError, match="TorchEstimator has no param colour"):
        torch_estimator(store, colour="red")
    with pytest.raises(ValueError, match="TorchEstimator needs the params label_cols"):
        torch_estimator(store, label_cols=[]).fit(rows)
    with pytest.raises(ValueError, match="no column tree: the frame has a, b, c"):
        torch_estimator(store, feature_cols=["tree"]).fit(rows)
    with pytest.raises(ValueError, match=r"validation is 1\.5: a ratio between 0 and 1"):
        torch_estimator(store, validation=1.5).fit(rows)
    with pytest.raises(ValueError, match=r"there are 1 rows to train on .*, fewer than the 2 ranks"):
        torch_estimator(store).fit(rows.filter("number = 4"))
    with prepare_data(2, store, rows, ["y"], ["x"], "held") as index:
        assert frames_written(store, index) == (80, 20)
    import keras

    from horovod.spark.keras import KerasEstimator

    columns = {"feature_cols": ["x"], "label_cols": ["y"]}
    with pytest.raises(ValueError, match="KerasEstimator needs the param loss, or a model that is compiled"):
        KerasEstimator(num_proc=2, store=store, model=keras.Sequential(), **columns).fit(rows)
    with (
        pytest.warns(UserWarning, match="callbacks have no effect in TorchEstimator"),
        pytest.raises(FileNotFoundError),
    ):
        torch_estimator(store, callbacks=[print]).fit_on_parquet(dataset_idx=77)
    with pytest.raises(FileNotFoundError, match="is not there"):
        torch_estimator(store).fit_on_parquet(dataset_idx=77)


def frames_written(store, index) -> tuple[int, int]:
    paths = store.get_train_data_path(index), store.get_val_data_path(index)
    return tuple(len(hvd.data.parquet(path, 1)) for path in paths)


def test_stores(tmp_path) -> None:
    store = Store.create(str(tmp_path / "store"))
    assert type(store) is FilesystemStore
    assert store.get_train_data_path(3) == f"file://{tmp_path}/store/intermediate_train_data.3"
    path = store.get_checkpoint_path("run")
    assert path == f"file://{tmp_path}/store/runs/run/checkpoint" and store.read_checkpoint("run") is None
    store.write(path, b"content")
    assert store.exists(path) and store.read(path) == store.read_checkpoint("run") == b"content"
    assert os.listdir(tmp_path / "store" / "runs" / "run") == ["checkpoint"]
    (tmp_path / "local" / "below").mkdir(parents=True)
    for _ in range(2):
        (tmp_path / "local" / "below" / "log").write_text("entry")
        store.upload(str(tmp_path / "local"), store.get_logs_path("run"))
    assert store.read(f"{store.get_logs_path('run')}/below/log") == b"entry"
    assert os.listdir(tmp_path / "store" / "runs" / "run" / "logs") == ["below"]
    with store.data_index() as first, store.data_index() as second:
        assert (first, second) == (0, 1)
    with store.data_index() as again:
        assert again == 0
    assert Store.create("memory://bucket/store").get_val_data_path() == "memory://bucket/store/intermediate_val_data"
    hdfs = Store.create("hdfs://name:8020/store")
    assert type(hdfs) is HDFSStore and hdfs.get_runs_path() == "hdfs://name:8020/store/runs"
    assert HDFSStore("/store", "name", 8020).get_runs_path() == "hdfs://name:8020/store/runs"
    assert hdfs.get_full_path("/other") == "hdfs://name:8020/other"
    assert hdfs.get_localized_path("hdfs://name:8020/store/runs") == "/store/runs"
    assert HDFSStore("hdfs://name/store", port=8020).get_full_path("/other") == "hdfs://name/other"
    assert HDFSStore("/store", train_path="/rows").get_train_data_path() == "hdfs:///rows"
    with pytest.raises(ValueError, match="file:///store is not on HDFS"):
        HDFSStore("file:///store")
    dbfs = Store.create("/dbfs/store")
    assert type(dbfs) is DBFSLocalStore and dbfs.get_checkpoint_path("run") == "dbfs:/store/runs/run/checkpoint.tf"
    assert dbfs.readable(dbfs.get_train_data_path()) == "file:///dbfs/store/intermediate_train_data"


def test_vectors_in_arrow() -> None:
    import pyarrow as pa

    values = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(arrow.to_numpy(arrow.vectors(values), "x"), values)
    sparse = {"type": 0, "size": 3, "indices": [1], "values": [5.0]}
    np.testing.assert_array_equal(arrow.to_numpy(pa.array([sparse]), "x"), [[0.0, 5.0, 0.0]])
    with pytest.raises(ValueError, match="column 'x', of vectors, has nulls"):
        arrow.to_numpy(pa.array([sparse, None]), "x")


def test_only_some_ranks_have_a_gpu(monkeypatch) -> None:
    from hvd.spark import training

    hvd.init()
    try:
        assert training.gpu_of_this_rank(True, 0) is None and training.gpu_of_this_rank(False, 4) is None
        assert training.gpu_of_this_rank(True, 4) == 0
        monkeypatch.setattr(training, "get_available_devices", lambda: ["2"])
        assert training.gpu_of_this_rank(True, 4) == 2
        monkeypatch.setattr("hvd.objects.allgather_object", lambda *_, **__: [True, False])
        with pytest.raises(ValueError, match="ranks 1 have no GPU, and the others have"):
            training.gpu_of_this_rank(True, 4)
    finally:
        hvd.shutdown()


def test_a_process_that_has_another_gpu(monkeypatch) -> None:
    import tensorflow as tf

    from hvd.spark import keras

    def refuse(*_) -> None:
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(keras, "gpu_of_this_rank", lambda *_: None)
    monkeypatch.setattr(tf.config, "set_visible_devices", refuse)
    with pytest.raises(RuntimeError, match=r"spark\.python\.worker\.reuse=false"):
        keras._choose_gpu(mock.Mock(), "tensorflow")
