"""Checkpoints of states whose tensors are divided among the ranks (DTensor, which FSDP2 makes of parameters), as
torch.distributed.checkpoint (DCP) has them, without a collective.

DCP lets one rank plan what each is to write, which takes collectives. Here each rank plans alone: it writes what lies
on it, of replicas only the first, and rank 0 the values that all ranks have. It leaves the plan, and where each piece
has come to lie, in a file; from these rank 0 makes DCP's metadata in the end. Readers take what they need, whatever
their number.

    .metadata            DCP's: every tensor's pieces, and where they lie
    __RANK_0.distcp      the pieces of a rank
"""

from __future__ import annotations

import pathlib
import pickle
import sys
import warnings
from typing import Any

import torch


def has_dtensors(value: Any) -> bool:
    """Whether there is one in a nest of dictionaries and lists."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)  # none exists unless it is loaded
    return kind is not None and _has(value, kind)


def _has(value: Any, kind: type) -> bool:
    if isinstance(value, dict):
        return any(_has(item, kind) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has(item, kind) for item in value)
    return isinstance(value, kind)


def is_placed_alike(one: Any, other: Any) -> bool:
    """Whether two DTensors are divided in the same way among the same ranks."""
    return bool(one.device_mesh is other.device_mesh and one.placements == other.placements)


def write_part(values: dict[str, Any], folder: pathlib.Path, rank: int) -> list[pathlib.Path]:
    """Writes this rank's part, and returns its files."""
    from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter

    # Without copies ahead, for which DCP waits on the current stream of this thread's current GPU only.
    writer, planner = FileSystemWriter(folder, per_thread_copy_ahead=0), DefaultSavePlanner()
    planner.set_up_planner(values, is_coordinator=rank == 0)
    plan = planner.create_local_plan()
    plan.items[:] = [item for item in plan.items if _is_written_by(rank, planner.state_dict[item.index.fqn])]
    placed = writer.prepare_global_plan([plan] * (rank + 1))[rank]  # which gives the file its name
    results = writer.write_data(placed, planner).wait() if plan.items else []
    with open(_plan(folder, rank), "wb") as opened:
        pickle.dump((plan, results), opened)
    return [folder / name for name in sorted({result.storage_data.relative_path for result in results})]


def _is_written_by(rank: int, value: Any) -> bool:
    if not has_dtensors(value):
        return rank == 0
    coordinates = value.device_mesh.get_coordinate()
    return coordinates is not None and all(
        at == 0 for at, how in zip(coordinates, value.placements) if how.is_replicate()
    )


def _plan(folder: pathlib.Path, rank: int) -> pathlib.Path:
    return folder / f".plan-{rank}"


def complete(folder: pathlib.Path, ranks: int) -> list[pathlib.Path]:
    """Makes one checkpoint of the parts, if there are any, and returns the file that does."""
    from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter

    files = [_plan(folder, rank) for rank in range(ranks)]
    if not files[0].exists():
        return []
    plans, results = zip(*(pickle.loads(file.read_bytes()) for file in files))
    _, metadata = DefaultSavePlanner().create_global_plan(list(plans))
    FileSystemWriter(folder).finish(metadata, list(results))
    for file in files:
        file.unlink()
    return [folder / ".metadata"]


def is_in(folder: pathlib.Path) -> bool:
    return (folder / ".metadata").exists()


def read(folder: pathlib.Path, present: dict[str, Any]) -> dict[str, Any]:
    """What was written: this rank's parts in the tensors of `present`, a nest like it, and the rest in new ones."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    metadata = checkpoint.FileSystemReader(folder).read_metadata()
    known, _ = flatten_state_dict(present)
    values: dict[str, Any] = {}
    for name, kind in metadata.state_dict_metadata.items():
        if isinstance(kind, TensorStorageMetadata):
            is_known = isinstance(known.get(name), torch.Tensor)
            values[name] = known[name] if is_known else torch.empty(kind.size, dtype=kind.properties.dtype)
        else:
            values[name] = None
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # DCP warns that it does without torch.distributed
        planner = checkpoint.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        checkpoint.load(values, storage_reader=checkpoint.FileSystemReader(folder), planner=planner, no_dist=True)
    return _with_keys_of(present, unflatten_state_dict(values, metadata.planner_data))


def _with_keys_of(present: Any, values: Any) -> Any:
    """DCP makes strings of all keys, and leaves empty dictionaries out."""
    if not isinstance(present, dict) or not isinstance(values, dict):
        return values
    keys = {str(key): key for key in present}
    empty: dict[Any, Any] = {key: {} for key, value in present.items() if isinstance(value, dict)}
    return empty | {keys.get(key, key): _with_keys_of(present.get(keys.get(key)), values[key]) for key in values}
