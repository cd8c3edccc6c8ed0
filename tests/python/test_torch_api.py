"""What scripts for Horovod rely on: names, signatures and defaults, and what the functions about the job answer."""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys

import pytest
import torch

import hvd
import hvd.torch
from hvd import exceptions
from launching import run_job

REDUCTION = "prescale_factor=1.0, postscale_factor=1.0, process_set=global"
WITHOUT_AUTOGRAD = "import torch; del torch.library.register_autograd; import hvd.torch"
SCATTER = "op=0, process_set=global, prescale_factor=1.0, postscale_factor=1.0"
SIGNATURES = {
    "init": "comm=None, process_sets=None",
    "shutdown": "",
    "is_initialized": "",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "allreduce": f"tensor, average=None, name=None, compression=none, op=None, {REDUCTION}",
    "allreduce_": f"tensor, average=None, name=None, op=None, {REDUCTION}",
    "allreduce_async": f"tensor, average=None, name=None, op=None, {REDUCTION}",
    "allreduce_async_": f"tensor, average=None, name=None, op=None, {REDUCTION}",
    "grouped_allreduce": f"tensors, average=None, name=None, compression=none, op=None, {REDUCTION}",
    "grouped_allreduce_": f"tensors, average=None, name=None, op=None, {REDUCTION}",
    "grouped_allreduce_async": f"tensors, average=None, name=None, op=None, {REDUCTION}",
    "grouped_allreduce_async_": f"tensors, average=None, name=None, op=None, {REDUCTION}",
    "sparse_allreduce_async": "tensor, name, op, process_set=global",
    "allgather": "tensor, name=None, process_set=global",
    "allgather_async": "tensor, name=None, process_set=global",
    "grouped_allgather": "tensors, name=None, process_set=global",
    "grouped_allgather_async": "tensors, name=None, process_set=global",
    "broadcast": "tensor, root_rank, name=None, process_set=global",
    "broadcast_": "tensor, root_rank, name=None, process_set=global",
    "broadcast_async": "tensor, root_rank, name=None, process_set=global",
    "broadcast_async_": "tensor, root_rank, name=None, process_set=global",
    "alltoall": "tensor, splits=None, name=None, process_set=global",
    "alltoall_async": "tensor, splits=None, name=None, process_set=global",
    "reducescatter": f"tensor, name=None, compression=none, {SCATTER}",
    "reducescatter_async": f"tensor, name=None, {SCATTER}",
    "grouped_reducescatter": f"tensors, name=None, compression=none, {SCATTER}",
    "grouped_reducescatter_async": f"tensors, name=None, {SCATTER}",
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": "process_set=global",
    "broadcast_parameters": "params, root_rank, process_set=global",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None, process_set=global",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=global",
    "allgather_object": "obj, name=None, process_set=global",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, op=0, "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=global, "
    "gradient_as_bucket_view=False, wait_in_backward=True, overlap_step=False",
    "elastic.run": "func",
    "elastic.TorchState": "model=None, optimizer=None, **kwargs",
    "elastic.ElasticSampler": "dataset, shuffle=True, seed=0",
    **dict.fromkeys(("size", "local_size", "cross_size", "rank", "local_rank", "cross_rank", "is_homogeneous"), ""),
    **dict.fromkeys(("mpi_enabled", "mpi_built", "mpi_threads_supported", "gloo_enabled", "gloo_built"), ""),
    **dict.fromkeys(("nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"), ""),
}
SHOWN = {id(hvd.global_process_set): "global", id(hvd.torch.Compression.none): "none"}


def shown(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return str(parameter).split(":")[0]
    return f"{parameter.name}={SHOWN.get(id(parameter.default), parameter.default)}"


def test_a_torch_that_is_too_old_is_named():
    done = subprocess.run([sys.executable, "-c", WITHOUT_AUTOGRAD], capture_output=True, text=True, timeout=240)
    assert f"hvd.torch needs PyTorch 2.4 or newer; this is {torch.__version__}: pip install -U torch" in done.stderr


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    function = hvd.torch
    for part in name.split("."):
        function = getattr(function, part)
    assert ", ".join(map(shown, inspect.signature(function).parameters.values())) == SIGNATURES[name]


def test_sync_batch_norm_has_the_arguments_of_pytorchs_layers():
    arguments = list(map(shown, inspect.signature(hvd.torch.SyncBatchNorm).parameters.values()))
    assert arguments[:5] == ["num_features", "eps=1e-05", "momentum=0.1", "affine=True", "track_running_stats=True"]


def test_everything_that_is_exported_is_there():
    for package in (hvd, hvd.torch):
        assert all(hasattr(package, name) for name in package.__all__)
    values = [getattr(hvd.torch, name) for name in ("Average", "Sum", "Adasum", "Min", "Max", "Product")]
    assert values == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["none", "fp16", "bf16"])
def test_compression(name):
    compression = getattr(hvd.torch.Compression, name)
    dtype = {"none": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}[name]
    for given in (torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.int32)):
        smaller, context = compression.compress(given)
        assert smaller.dtype is (dtype if given.is_floating_point() else given.dtype)
        assert compression.decompress(smaller, context).dtype is given.dtype
    for small in (torch.float16, torch.bfloat16):
        assert compression.compress(torch.ones(3).to(small))[0].dtype is small


def test_what_is_built():
    assert hvd.gloo_built() is True and hvd.gloo_enabled() is not hvd.mpi_enabled()
    assert (hvd.ddl_built(), hvd.ccl_built(), hvd.rocm_built()) == (False, False, False)
    assert isinstance(hvd.mpi_built(), bool) and isinstance(hvd.cuda_built(), bool)
    assert isinstance(hvd.nccl_built(), int)
    assert hvd.mpi_enabled() is False
    with pytest.raises(ValueError, match="MPI"):
        hvd.mpi_threads_supported()


@pytest.mark.parametrize(
    "text, code, cuda",
    [
        (
            "CUDA driver: ok: libcuda.so.1, CUDA 12.4, 8 devices\nNCCL: ok: NCCL 2.21.5, /lib/libnccl.so.2\n",
            22105,
            True,
        ),
        ("CUDA driver: ok: libcuda.so.1, CUDA 11\nNCCL: ok: NCCL 2.8.3, /lib/libnccl.so.2\n", 2803, True),
        ("CUDA driver: missing: no\nNCCL: missing: no NCCL: ok\n", 0, False),
        ("CUDA driver: missing: no\nNCCL: ok: NCCL 2.21.5, /lib/libnccl.so.2\n", 0, False),
    ],
)
def test_gpu_libraries(monkeypatch, text, code, cuda):
    monkeypatch.setattr(hvd._native, "gpu_libraries", lambda: text)
    assert (hvd.nccl_built(), hvd.cuda_built()) == (code, cuda)
    monkeypatch.setenv("HVD_GPU_THROUGH_HOST", "1")
    assert (hvd.nccl_built(), hvd.cuda_built()) == (0, cuda)


UNINITIALISED = """
import json, hvd.torch as hvd

def outcome(call):
    try:
        return repr(call())
    except Exception as error:
        return type(error).__name__

process_set = hvd.ProcessSet([1, 0])
print(json.dumps({
    **{name: outcome(getattr(hvd, name)) for name in (
        "size", "local_size", "cross_size", "rank", "local_rank", "cross_rank", "is_homogeneous", "stop_timeline",
        "barrier", "join", "is_initialized", "shutdown")},
    "start_timeline": outcome(lambda: hvd.start_timeline("/tmp/never")),
    "add_process_set": outcome(lambda: hvd.add_process_set([0])),
    "remove_process_set": outcome(lambda: hvd.remove_process_set(process_set)),
    "set": [process_set.size(), process_set.rank(), process_set.included(), str(process_set)],
    "global": [hvd.global_process_set.size(), hvd.global_process_set.rank(), hvd.global_process_set.included()],
    "synchronize": outcome(lambda: hvd.synchronize(1)),
}))
"""


def test_before_init():
    job = run_job(1, ["-c", UNINITIALISED])
    outcomes = json.loads(job.output)
    for name, expected in {
        **dict.fromkeys(("size", "local_size", "cross_size", "rank", "local_rank", "cross_rank"), "ValueError"),
        **dict.fromkeys(("is_homogeneous", "barrier", "join", "start_timeline", "stop_timeline"), "ValueError"),
        "add_process_set": "ValueError",
        "is_initialized": "False",
        "shutdown": "None",
        "remove_process_set": "False",
        "synchronize": "None",
        "set": [None, None, None, "ProcessSet(process_set_id=None, ranks=[0, 1], mpi_comm=None)"],
        "global": [None, None, None],
    }.items():
        assert outcomes[name] == expected, name


@pytest.mark.ranks(2)
def test_init_again_with_other_process_sets():
    good, wrong = hvd.ProcessSet([0]), hvd.ProcessSet([0])
    with pytest.raises(ValueError, match="already"):
        hvd.init(process_sets=[good, wrong])
    assert hvd.is_initialized() and good.process_set_id is None and good.size() is None
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="static")
    hvd.init(process_sets=[good, hvd.ProcessSet([1])])
    assert (good.process_set_id, good.size(), good.included()) == (1, 1, hvd.rank() == 0)
    hvd.init(process_sets="dynamic")
    hvd.shutdown()
    assert good.process_set_id is None and not hvd.is_initialized()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("comm", [None, [], [0, 1], [1, 0], (0, 1), range(2)], ids=str)
def test_init_with_all_ranks(comm):
    hvd.shutdown()
    hvd.init(comm=comm)
    assert hvd.size() == 2


@pytest.mark.ranks(2)
@pytest.mark.parametrize("comm", [[0], [0, 0], [5], ["a"], 3], ids=str)
def test_init_with_ranks_that_make_no_sense(comm):
    hvd.shutdown()
    with pytest.raises(ValueError):
        hvd.init(comm=comm)
    assert not hvd.is_initialized()
    hvd.init()
    assert hvd.torch.allreduce(torch.ones(1), op=hvd.torch.Sum).item() == 2


@pytest.mark.ranks
def test_join_takes_a_device():
    assert hvd.torch.join(device=0) in range(hvd.size()) and hvd.torch.join(-1) in range(hvd.size())


@pytest.mark.ranks
def test_timeline_of_a_running_job(tmp_path):
    hvd.start_timeline(tmp_path / "timeline.json")
    hvd.start_timeline(tmp_path / "timeline.json")  # the same one goes on
    hvd.torch.barrier()
    hvd.stop_timeline()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        assert json.loads((tmp_path / "timeline.json").read_text())
        with pytest.raises(ValueError):
            hvd.start_timeline(tmp_path / "nowhere" / "timeline.json")


def test_exceptions_are_those_that_scripts_catch():
    assert hvd.torch.HorovodInternalError is exceptions.HorovodInternalError
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True


@pytest.mark.ranks(2)
def test_the_strategy_needs_lightning(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install lightning"):
        importlib.import_module("hvd.lightning")
