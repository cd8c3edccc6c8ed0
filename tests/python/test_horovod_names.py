"""The package horovod: what scripts import from where, with which arguments, and the errors that differ from hvd's."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import torch

import horovod
import horovod.torch as hvd
from signatures import require_signature

# As scripts call them. Further arguments may follow.
SIGNATURES = {
    "init": "comm=None, process_sets=None",
    "shutdown": "",
    "is_initialized": "",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    **dict.fromkeys(("size", "local_size", "cross_size", "rank", "local_rank", "cross_rank", "is_homogeneous"), ""),
    **dict.fromkeys(("mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built"), ""),
    **dict.fromkeys(("nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"), ""),
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "allreduce": "tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, "
    "postscale_factor=1.0, process_set=global_process_set",
    **dict.fromkeys(
        ("allreduce_async", "allreduce_", "allreduce_async_"),
        "tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
        "process_set=global_process_set",
    ),
    "grouped_allreduce": "tensors, average=None, name=None, compression=Compression.none, op=None, "
    "prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set",
    **dict.fromkeys(
        ("grouped_allreduce_async", "grouped_allreduce_", "grouped_allreduce_async_"),
        "tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
        "process_set=global_process_set",
    ),
    "sparse_allreduce_async": "tensor, name, op, process_set=global_process_set",
    **dict.fromkeys(("allgather", "allgather_async"), "tensor, name=None, process_set=global_process_set"),
    **dict.fromkeys(
        ("grouped_allgather", "grouped_allgather_async"), "tensors, name=None, process_set=global_process_set"
    ),
    **dict.fromkeys(
        ("broadcast", "broadcast_async", "broadcast_", "broadcast_async_"),
        "tensor, root_rank, name=None, process_set=global_process_set",
    ),
    **dict.fromkeys(("alltoall", "alltoall_async"), "tensor, splits=None, name=None, process_set=global_process_set"),
    "reducescatter": "tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set, "
    "prescale_factor=1.0, postscale_factor=1.0",
    "reducescatter_async": "tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, "
    "postscale_factor=1.0",
    "grouped_reducescatter": "tensors, name=None, compression=Compression.none, op=Average, "
    "process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0",
    "grouped_reducescatter_async": "tensors, name=None, op=Average, process_set=global_process_set, "
    "prescale_factor=1.0, postscale_factor=1.0",
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": "process_set=global_process_set",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=global_process_set",
    "allgather_object": "obj, name=None",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=Compression.none, "
    "backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
    "sparse_as_dense=False, process_set=global_process_set",
    "SyncBatchNorm": "num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True",
}

NAMES = {
    "horovod": "run __version__",
    "horovod.torch": " ".join(SIGNATURES) + " Average Sum Adasum Min Max Product ProcessSet global_process_set"
    " Compression HorovodInternalError elastic",
    "horovod.torch.mpi_ops": "allreduce_async_ synchronize poll rank size is_homogeneous Average",
    "horovod.torch.functions": "broadcast_parameters broadcast_optimizer_state broadcast_object allgather_object",
    "horovod.torch.optimizer": "DistributedOptimizer _DistributedOptimizer",
    "horovod.torch.compression": "Compression",
    "horovod.torch.sync_batch_norm": "SyncBatchNorm",
    "horovod.torch.elastic": "run TorchState ElasticSampler",
    "horovod.torch.elastic.state": "TorchState StateHandler ModelStateHandler OptimizerStateHandler SamplerStateHandler"
    " get_handler_registry set_handler_registry",
    "horovod.torch.elastic.sampler": "ElasticSampler",
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt HorovodVersionMismatchError",
    "horovod.common.process_sets": "ProcessSet global_process_set add_process_set remove_process_set",
    "horovod.common.elastic": "State ObjectState run_fn",
    "horovod.common.util": "extension_available gpu_available mpi_built gloo_built nccl_built ddl_built ccl_built env"
    " split_list num_rank_is_power_2 check_extension check_installed_version is_version_greater_equal_than _cache",
    "horovod.ray": "RayExecutor ElasticRayExecutor BaseHorovodWorker",
    "horovod.ray.elastic": "ElasticRayExecutor RayHostDiscovery",
    "horovod.ray.elastic_v2": "RayHostDiscovery",
    "horovod.ray.runner": "RayExecutor MiniSettings BaseHorovodWorker Coordinator",
    "horovod.ray.utils": "detect_nics nics_to_env_var map_blocking",
    "horovod.ray.worker": "BaseHorovodWorker",
    "horovod.ray.ray_logger": "log",
    "horovod.ray.strategy": "create_placement_group",
    "horovod.runner": "run",
    "horovod.runner.launch": "parse_args run_commandline check_build",
    "horovod.runner.common.util.config_parser": "set_args_from_config set_env_from_args validate_config_args",
    "horovod.runner.common.util.hosts": "HostInfo SlotInfo parse_hosts parse_host_files get_host_assignments",
    "horovod.runner.common.util.secret": "make_secret_key",
    "horovod.runner.common.util.timeout": "Timeout TimeoutException",
    "horovod.runner.common.util.env": "is_exportable get_env_rank_and_size",
    "horovod.runner.elastic.discovery": "HostDiscovery",
    "horovod.runner.util.threads": "in_thread execute_function_multithreaded on_event",
}


@pytest.mark.parametrize("module, name", [(module, name) for module, names in NAMES.items() for name in names.split()])
def test_name(module, name):
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    require_signature(getattr(hvd, name), SIGNATURES[name], vars(hvd))


def test_version_and_reduce_operations():
    assert tuple(int(number) for number in horovod.__version__.split(".")) >= (0, 28, 1)
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == [0, 1, 2, 3, 4, 5]


def test_classes_are_hvds_own():
    import hvd.torch
    from horovod.common.exceptions import HorovodInternalError
    from horovod.common.process_sets import ProcessSet

    assert HorovodInternalError is hvd.torch.HorovodInternalError
    assert ProcessSet is hvd.torch.ProcessSet


def test_everything_that_hvd_torch_has_is_here():
    import hvd.torch as complete

    assert [name for name in complete.__all__ if not hasattr(hvd, name)] == []
    with pytest.raises(AttributeError):
        hvd.no_such_thing  # noqa: B018


def test_basics_as_an_object():
    from horovod.common.basics import HorovodBasics

    basics = HorovodBasics("horovod/torch", "mpi_lib_v2")
    basics.init()
    assert basics.rank() == 0 and basics.is_initialized() and basics.Sum == 1
    with pytest.raises(AttributeError):
        basics.nonsense()
    basics.shutdown()


@pytest.mark.parametrize(
    "ver, target, holds",
    [
        ("2.13.0+cpu", "2.1.0", True),
        ("1.9.1", "1.10.0", False),
        ("1.10", "1.10.0", True),
        ("2.0.0rc1", "2.0.0", True),
        ("0.28.1", "0.28.2", False),
    ],
)
def test_versions_are_compared_by_number(ver, target, holds):
    from horovod.common.util import is_version_greater_equal_than

    assert is_version_greater_equal_than(ver, target) is holds
    with pytest.raises(ValueError):
        is_version_greater_equal_than(ver, "2.1")


def test_small_tools(monkeypatch):
    import os

    from horovod.common import util

    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert [number for number in range(9) if util.num_rank_is_power_2(number)] == [1, 2, 4, 8]
    assert util.extension_available("torch") and not util.extension_available("mxnet")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__)
    with pytest.raises(ImportError, match="mxnet is not installed"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__)
    monkeypatch.setenv("GONE", "1")
    with util.env(GONE=None, ADDED="2"):
        assert "GONE" not in os.environ and os.environ["ADDED"] == "2"
    assert os.environ["GONE"] == "1" and "ADDED" not in os.environ
    calls = []
    once = util._cache(lambda: calls.append(1) or "result")
    assert (once(), once(), calls) == ("result", "result", [1])


def test_threads():
    import threading

    from horovod.runner.util import threads

    assert threads.execute_function_multithreaded(pow, [(2, 3), (3, 2), (5, 1)], max_concurrent_executions=2) == {
        0: 8,
        1: 9,
        2: 5,
    }
    with pytest.raises(ZeroDivisionError):
        threads.execute_function_multithreaded(divmod, [(1, 1), (1, 0)])
    called = []
    event, stop = threading.Event(), threading.Event()
    waiting = threads.on_event(event, called.append, args=("called",))
    event.set()
    waiting.join(10)
    never = threads.on_event(threading.Event(), called.append, args=("never",), stop=stop, check_stop_interval_s=0.01)
    stop.set()
    never.join(10)
    assert called == ["called"] and not never.is_alive()
    with pytest.raises(ValueError):
        threads.in_thread(print, args=["a list"])


@pytest.mark.ranks(2)
def test_reducescatter_knows_averages_and_sums_only():
    tensor = torch.arange(4.0)
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        handle = hvd.reducescatter_async(tensor, op=op, name="refused")
        assert hvd.poll(handle)
        with pytest.raises(hvd.HorovodInternalError, match="Average and Sum"):
            hvd.synchronize(handle)
        assert hvd.synchronize(handle) is None
        with pytest.raises(hvd.HorovodInternalError, match="Average and Sum"):
            hvd.reducescatter(tensor, "refused", hvd.Compression.none, op)
    for op, factor in ((hvd.Average, 1), (hvd.Sum, 2)):
        assert torch.equal(hvd.reducescatter(tensor, op=op), factor * tensor[2 * hvd.rank() :][:2])
        handle = hvd.reducescatter_async(tensor, None, op)
        assert torch.equal(hvd.synchronize(handle), factor * tensor[2 * hvd.rank() :][:2])


@pytest.mark.ranks(2)
def test_grouped_reducescatter_knows_averages_and_sums_only():
    tensors = [torch.arange(4.0), torch.ones(2)]
    with pytest.raises(hvd.HorovodInternalError, match="Average and Sum"):
        hvd.grouped_reducescatter(tensors, op=hvd.Max)
    with pytest.raises(hvd.HorovodInternalError, match="Average and Sum"):
        hvd.synchronize(hvd.grouped_reducescatter_async(tensors, op=hvd.Max))
    first, second = hvd.grouped_reducescatter(tensors, op=hvd.Sum)
    assert torch.equal(first, 2 * tensors[0][2 * hvd.rank() :][:2]) and second.tolist() == [2]


@pytest.mark.ranks(2)
def test_join_takes_a_device():
    if hvd.rank() == 0:
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [1, 1]
    assert hvd.join(device=hvd.local_rank()) == 0


@pytest.mark.ranks(2)
def test_process_sets_by_number():
    basics = importlib.import_module("horovod.torch.mpi_ops")._basics
    assert basics._get_process_set_ids_and_ranks() == {0: [0, 1]}
    added = hvd.add_process_set([1])
    assert basics._get_process_set_ids_and_ranks() == {0: [0, 1], added.process_set_id: [1]}
    assert (basics._process_set_size(0), basics._process_set_rank(0)) == (2, hvd.rank())
    assert basics._process_set_size(added.process_set_id) == 1
    if hvd.rank() == 1:
        assert basics._process_set_rank(added.process_set_id) == 0
    else:
        with pytest.raises(ValueError, match="rank 0 is not in process set"):
            basics._process_set_rank(added.process_set_id)
    number = added.process_set_id
    hvd.remove_process_set(added)
    assert basics._get_process_set_ids_and_ranks() == {0: [0, 1]}
    with pytest.raises(ValueError, match="no process set"):
        basics._process_set_size(number)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("kind", ["SGD", "Adam", "SparseAdam"])
def test_gradients_after_broadcast_optimizer_state(kind):
    """Zeros where the optimizer had no state; what they were where it had."""
    layer = torch.nn.Embedding(3, 2, sparse=kind == "SparseAdam")
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    optimizer = getattr(torch.optim, kind)([layer.weight, frozen], lr=0.1)
    layer(torch.tensor([1])).sum().backward()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert layer.weight.grad.to_dense().tolist() == torch.zeros(3, 2).tolist() and frozen.grad is None
    assert layer.weight.grad.is_sparse == (kind == "SparseAdam")
    layer(torch.tensor([1])).sum().backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    expected = [0, 0 if kind == "SGD" else 2, 0]
    assert layer.weight.grad.to_dense().sum(dim=1).tolist() == expected
    # hvd's own function leaves gradients alone.
    complete = importlib.import_module("hvd.torch")
    layer.weight.grad = None
    complete.broadcast_optimizer_state(torch.optim.Adam([layer.weight]), root_rank=0)
    assert layer.weight.grad is None


def test_import_is_cheap():
    code = "import sys, horovod; assert not {'torch', 'yaml', 'argparse', 'subprocess'} & sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_submodules_are_attributes(monkeypatch):
    """Scripts use them after `import horovod.torch as hvd` alone."""
    for name in ("compression", "functions", "mpi_ops", "optimizer", "sync_batch_norm"):
        monkeypatch.delattr(hvd, name, raising=False)  # as long as nobody else has imported it
        assert getattr(hvd, name) is importlib.import_module(f"horovod.torch.{name}")
    assert hvd.elastic is importlib.import_module("horovod.torch.elastic")
    assert hvd.elastic.state.TorchState is hvd.elastic.TorchState
    assert hvd.elastic.sampler.ElasticSampler is hvd.elastic.ElasticSampler


@pytest.mark.ranks(2)
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_what_scripts_ask_an_optimizer(op):
    """Whether it is Horovod's, by its class's name, and how many backward passes make a step."""
    layer = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(layer.parameters()), layer.named_parameters(), backward_passes_per_step=2, op=op
    )
    assert "horovod" in str(type(optimizer)) and optimizer.__module__ == "horovod.torch.optimizer"
    assert optimizer.backward_passes_per_step == 2
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # makes the state in a twin of the optimizer within
    assert len(optimizer.state) == 2
