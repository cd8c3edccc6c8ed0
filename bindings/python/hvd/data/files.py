"""The files of a data set, on a local file system or on one that fsspec knows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Union

Source = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


@dataclass(frozen=True)
class Files:
    """Attributes:
    paths: sorted, as `filesystem` takes them.
    names: of the files, relative to the folder that was given: alike on hosts that mount it in different places.
    root: the source, or the folder that all of several sources are in.
    filesystem: fsspec's; None: the local one.
    """

    paths: list[str]
    names: list[str]
    root: str
    filesystem: Any = None

    def open(self, index: int) -> IO[bytes]:
        path = self.paths[index]
        if self.filesystem is None:
            return open(path, "rb")
        opened: IO[bytes] = self.filesystem.open(path, "rb")
        return opened


def found(source: Source, storage_options: Mapping[str, Any] | None = None) -> Files:
    """The files of a folder and those below it, or of a list of files and folders. Names that begin with "_" or "." are
    passed over, as Spark and Hive do: they say something of the others.

    Args:
        source: paths, or URLs for fsspec: all of one file system.

    Raises:
        FileNotFoundError: a path that is not there, or no file in all of them.
        ValueError: sources on different file systems.
        ImportError: URLs, and fsspec or what it needs is not installed.
    """
    sources = [os.fspath(source)] if isinstance(source, (str, os.PathLike)) else [os.fspath(each) for each in source]
    filesystem = None
    if any("://" in each for each in sources):
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError(f"{sources[0]} needs fsspec: pip install fsspec") from None
        found_at = [fsspec.core.url_to_fs(each, **(storage_options or {})) for each in sources]
        filesystem = found_at[0][0]
        for each, (other, _) in zip(sources, found_at):
            if other != filesystem:
                raise ValueError(
                    f"{each} and {sources[0]} are on different file systems: read each by a reader of its own"
                )
        sources = [path for _, path in found_at]
    else:
        sources = [os.path.abspath(each) for each in sources]
    pairs = [pair for each in sources for pair in _below(each, filesystem)]
    if not pairs:
        raise FileNotFoundError(f"there are no files in {', '.join(sources)}")
    return Files([path for path, _ in pairs], [name for _, name in pairs], os.path.commonpath(sources), filesystem)


def _below(path: str, filesystem: Any) -> list[tuple[str, str]]:
    """Path and name of a file, or of those of a folder."""
    if filesystem is not None:
        is_file, is_folder = filesystem.isfile(path), filesystem.isdir(path)
        every = filesystem.find(path) if is_folder else []
    else:
        is_file, is_folder = os.path.isfile(path), os.path.isdir(path)
        every = list(_files_below(path))
    if is_file:
        return [(path, os.path.basename(path))]
    if not is_folder:
        raise FileNotFoundError(f"{path} is not there")
    relative = sorted((each[len(path.rstrip("/")) + 1 :], each) for each in every)
    return [(each, name) for name, each in relative if not _is_hidden(name)]


def _is_hidden(name: str) -> bool:
    """Whether a part of the path is the name of something that is no data."""
    return any(part[0] in "_." for part in name.split("/") if part)


def _files_below(path: str) -> Iterator[str]:
    """Also in linked folders, each of which is read once."""
    root = os.path.realpath(path) + os.sep
    followed: set[str] = set()

    def is_new(folder: str) -> bool:
        if not os.path.islink(folder):
            return True
        real = os.path.realpath(folder) + os.sep
        is_read_anyway = real.startswith(root) and not _is_hidden(real[len(root) :])
        if is_read_anyway or root.startswith(real) or real in followed:
            return False
        followed.add(real)
        return True

    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in sorted(folders) if is_new(os.path.join(folder, name))]  # alike on all hosts
        yield from (os.path.join(folder, name) for name in names)
