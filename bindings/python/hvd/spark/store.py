"""Where estimators keep their data, checkpoints and logs: a folder that the driver and all executors can reach."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

_DBFS = re.compile(r"^(dbfs:/|/dbfs/|file:///dbfs/)")

_lock = threading.Lock()
_indices_in_use: set[tuple[str, int]] = set()


class Store:
    """A folder of any file system that fsspec knows.

    Below `prefix_path` lie `intermediate_train_data.I` and `intermediate_val_data.I`, which each `fit` overwrites
    (I: the lowest number that no other fit of this process uses), and `runs/RUN_ID/checkpoint` and `runs/RUN_ID/logs`.

    Args:
        prefix_path: a URL, or a path of the local file system.
        train_path, val_path, test_path, runs_path: instead of those below the prefix.
        save_runs: whether checkpoints are kept.
        storage_options: for fsspec.
        checkpoint_filename: instead of "checkpoint".
    """

    _checkpoint_filename = "checkpoint"

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
    ) -> None:
        self.prefix_path = self.get_full_path(prefix_path).rstrip("/")
        self.storage_options = dict(storage_options or {})
        self._train_path = self._below(train_path, "intermediate_train_data")
        self._val_path = self._below(val_path, "intermediate_val_data")
        self._test_path = self._below(test_path, "intermediate_test_data")
        self._runs_path = self._below(runs_path, "runs")
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or self._checkpoint_filename

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """An HDFSStore for `hdfs://`, a DBFSLocalStore for DBFS on Databricks, or else a FilesystemStore."""
        if prefix_path.startswith("hdfs://"):
            return HDFSStore(prefix_path, *args, **kwargs)
        if DBFSLocalStore.matches_dbfs(prefix_path):
            return DBFSLocalStore(prefix_path, *args, **kwargs)
        return FilesystemStore(prefix_path, *args, **kwargs)

    def _below(self, path: str | None, name: str) -> str:
        return f"{self.prefix_path}/{name}" if path is None else self.get_full_path(path)

    # ---- paths, as URLs

    def get_full_path(self, path: str) -> str:
        """As a URL."""
        return path if "://" in path else f"file://{os.path.abspath(path)}"

    def get_localized_path(self, path: str) -> str:
        """As the file system takes it."""
        return str(self.fs._strip_protocol(self.readable(path)))

    def readable(self, path: str) -> str:
        """As fsspec reads it; Spark takes `path` as it is."""
        return path

    def get_train_data_path(self, idx: int | None = None) -> str:
        return self._train_path if idx is None else f"{self._train_path}.{idx}"

    def get_val_data_path(self, idx: int | None = None) -> str:
        return self._val_path if idx is None else f"{self._val_path}.{idx}"

    def get_test_data_path(self, idx: int | None = None) -> str:
        return self._test_path if idx is None else f"{self._test_path}.{idx}"

    def get_runs_path(self) -> str:
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        return f"{self._runs_path}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str:
        return f"{self.get_run_path(run_id)}/{self._checkpoint_filename}"

    def get_checkpoint_filename(self) -> str:
        return self._checkpoint_filename

    def get_logs_path(self, run_id: str) -> str:
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}"

    def get_logs_subdir(self) -> str:
        return "logs"

    def saving_runs(self) -> bool:
        return self._save_runs

    # ---- content

    @property
    def fs(self) -> Any:
        """fsspec's file system."""
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError("stores need fsspec: pip install fsspec") from None
        return fsspec.core.url_to_fs(self.readable(self.prefix_path), **self.storage_options)[0]

    def exists(self, path: str) -> bool:
        return bool(self.fs.exists(self.get_localized_path(path)))

    def read(self, path: str) -> bytes:
        return bytes(self.fs.cat_file(self.get_localized_path(path)))

    def write(self, path: str, data: bytes) -> None:
        """Under another name first, so that what is read is whole."""
        fs, target = self.fs, self.get_localized_path(path)
        fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(f"{target}.new", data)
        fs.mv(f"{target}.new", target)

    def upload(self, folder: str, path: str) -> None:
        """Copies the content of a local folder, and overwrites files that are there already."""
        fs, target = self.fs, self.get_localized_path(path)
        fs.makedirs(target, exist_ok=True)
        fs.put(os.path.join(folder, ""), f"{target}/", recursive=True)

    def write_text(self, path: str, text: str) -> None:
        self.write(path, text.encode())

    def is_parquet_dataset(self, path: str) -> bool:
        """Whether there are Parquet files in a folder."""
        fs, folder = self.fs, self.get_localized_path(path)
        return bool(fs.isdir(folder)) and any(name.endswith(".parquet") for name in fs.find(folder))

    def get_checkpoints(self, run_id: str, suffix: str = "") -> list[str]:
        """Paths of the checkpoint of a run, if there is one."""
        path = self.get_checkpoint_path(run_id)
        return [path] if self.exists(path) and path.endswith(suffix) else []

    def read_checkpoint(self, run_id: str) -> bytes | None:
        """None: the run has none."""
        path = self.get_checkpoint_path(run_id)
        return self.read(path) if self.exists(path) else None

    @contextlib.contextmanager
    def data_index(self) -> Iterator[int]:
        """The lowest number of intermediate data that is free; in use while the body runs."""
        with _lock:
            index = 0
            while (self.prefix_path, index) in _indices_in_use:
                index += 1
            _indices_in_use.add((self.prefix_path, index))
        try:
            yield index
        finally:
            with _lock:
                _indices_in_use.discard((self.prefix_path, index))


class FilesystemStore(Store):
    """A store of whatever file system the prefix names: `/path`, `s3://`, `gs://`, `abfs://`, ..."""


class LocalStore(FilesystemStore):
    """An old name of FilesystemStore."""


class HDFSStore(Store):
    """A store on HDFS, through pyarrow and libhdfs.

    Args:
        prefix_path: `hdfs://host:port/path`, or a path.
        host, port, user, kerb_ticket, extra_conf: see `pyarrow.fs.HadoopFileSystem`; by default those of the URL and
            of the Hadoop configuration.
        driver: only "libhdfs".
        args, kwargs: see Store.
    """

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: Mapping[str, str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if driver != "libhdfs":
            raise ValueError(f"driver is {driver!r}: only 'libhdfs' is there")
        url = urllib.parse.urlsplit(prefix_path)
        if url.scheme not in ("", "hdfs"):
            raise ValueError(f"{prefix_path} is not on HDFS: hdfs://host:port/path, or a path, is needed")
        self._authority = url.netloc or (f"{host or ''}:{port}" if port else host or "")
        super().__init__(prefix_path, *args, **kwargs)
        given = {"user": user, "kerb_ticket": kerb_ticket, "extra_conf": extra_conf}
        self.storage_options.update({name: value for name, value in given.items() if value is not None})

    def get_full_path(self, path: str) -> str:
        return path if "://" in path else f"hdfs://{self._authority}/{path.lstrip('/')}"

    def get_localized_path(self, path: str) -> str:
        return re.sub(r"^hdfs://[^/]*", "", path)


class DBFSLocalStore(FilesystemStore):
    """A store on Databricks' DBFS, which processes see below `/dbfs`, and Spark as `dbfs:/`."""

    _checkpoint_filename = "checkpoint.tf"

    @classmethod
    def matches_dbfs(cls, path: str) -> bool:
        return _DBFS.match(path) is not None

    @staticmethod
    def normalize_path(path: str) -> str:
        """As processes see it."""
        return _DBFS.sub("/dbfs/", path)

    def get_full_path(self, path: str) -> str:
        return _DBFS.sub("dbfs:/", path)

    def readable(self, path: str) -> str:
        return f"file://{self.normalize_path(path)}"
