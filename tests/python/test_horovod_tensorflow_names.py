"""horovod.tensorflow, horovod.tensorflow.keras and horovod.keras: what scripts import from where, and with which
arguments; and the errors that differ from hvd's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tensorflow as tf

import horovod.keras
import horovod.tensorflow as hvd
import horovod.tensorflow.keras
from signatures import require_signature

BASICS = {
    "init": "comm=None, process_sets=None",
    **dict.fromkeys(("shutdown", "is_initialized", "stop_timeline", "size", "local_size", "cross_size"), ""),
    **dict.fromkeys(("rank", "local_rank", "cross_rank", "is_homogeneous", "mpi_threads_supported"), ""),
    **dict.fromkeys(("mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built", "nccl_built", "ddl_built"), ""),
    **dict.fromkeys(("ccl_built", "cuda_built", "rocm_built"), ""),
    "start_timeline": "file_path, mark_cycles=False",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}
TAPE = (
    "gradtape, device_dense='', device_sparse='', compression=Compression.none, sparse_as_dense=False, op=Average, "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, process_set=global_process_set"
)
# As scripts call them. Further arguments may follow.
TENSORFLOW = {
    **BASICS,
    "allreduce": "tensor, average=None, device_dense='', device_sparse='', compression=Compression.none, op=None, "
    "prescale_factor=1.0, postscale_factor=1.0, name=None, process_set=global_process_set, ignore_name_scope=False",
    "grouped_allreduce": "tensors, average=None, device_dense='', device_sparse='', compression=Compression.none, "
    "op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set, ignore_name_scope=False, "
    "name=None",
    "reducescatter": "tensor, device_dense='', compression=Compression.none, op=Average, name=None, "
    "process_set=global_process_set, ignore_name_scope=False, prescale_factor=1.0, postscale_factor=1.0",
    "grouped_reducescatter": "tensors, device_dense='', compression=Compression.none, op=Average, "
    "process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0",
    "allgather": "tensor, name=None, ignore_name_scope=False, process_set=global_process_set",
    "grouped_allgather": "tensors, name=None, ignore_name_scope=False, process_set=global_process_set",
    "broadcast": "tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set",
    "broadcast_": "variables, root_rank, name=None, process_set=global_process_set",
    "alltoall": "tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set",
    "join": "",
    **dict.fromkeys(("size_op", "process_set_included_op"), "process_set_id=0, name=None"),
    **dict.fromkeys(("local_size_op", "rank_op", "local_rank_op"), "name=None"),
    "broadcast_variables": "variables, root_rank, process_set=global_process_set, inplace=False",
    "broadcast_object": "obj, root_rank=0, session=None, name=None, process_set=global_process_set",
    "broadcast_object_fn": "root_rank=0, session=None, name=None, process_set=global_process_set",
    "allgather_object": "obj, session=None, name=None, process_set=global_process_set",
    "broadcast_global_variables": "root_rank",
    "BroadcastGlobalVariablesHook": "root_rank, device=''",
    "DistributedOptimizer": "optimizer, name=None, use_locking=False, device_dense='', device_sparse='', "
    "compression=Compression.none, sparse_as_dense=False, backward_passes_per_step=1, op=Average, "
    "gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None, "
    "process_set=global_process_set, scale_local_gradients=True",
    "DistributedGradientTape": f"{TAPE}, scale_local_gradients=True",
    "PartialDistributedGradientTape": f"{TAPE}, local_layers=None",
    "SyncBatchNormalization": "fused=False",
    "LocalGradientAggregationHelper": "backward_passes_per_step, allreduce_func, sparse_as_dense=False, "
    "average_aggregated_gradients=False, rank=None, optimizer_type=None",
}
PRIVATE = {
    "_allreduce": "tensor, name=None, op=Sum, prescale_factor=1.0, postscale_factor=1.0, ignore_name_scope=False, "
    "process_set=global_process_set",
    "_grouped_allreduce": "tensors, name=None, op=Sum, prescale_factor=1.0, postscale_factor=1.0, "
    "ignore_name_scope=False, process_set=global_process_set",
    "_reducescatter": "tensor, name=None, op=Sum, ignore_name_scope=False, process_set=global_process_set",
    "_grouped_reducescatter": "tensors, name=None, op=Sum, ignore_name_scope=False, process_set=global_process_set",
    "_normalize_name": "name",
    "handle_average_backwards_compatibility": "op, average",
    "check_num_rank_power_of_2": "num_rank",
}
OPTIMIZER = (
    "optimizer, name=None, device_dense='', device_sparse='', compression=None, sparse_as_dense=False, "
    "gradient_predivide_factor=1.0, op=Average"
)
# None, where Horovod has Compression.none and average=True, means those.
KERAS = {
    **BASICS,
    "allreduce": "value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=None",
    "allgather": "value, name=None",
    "broadcast": "value, root_rank, name=None",
    "reducescatter": "value, name=None, op=Average",
    "broadcast_global_variables": "root_rank",
    "load_model": "filepath, custom_optimizers=None, custom_objects=None, compression=None, legacy_opts=False",
    "DistributedOptimizer": f"{OPTIMIZER}, backward_passes_per_step=1, average_aggregated_gradients=False, "
    "num_groups=0, groups=None, process_set=global_process_set, scale_local_gradients=True",
    "PartialDistributedOptimizer": f"{OPTIMIZER}, backward_passes_per_step=1, average_aggregated_gradients=False, "
    "num_groups=0, groups=None, process_set=global_process_set, local_layers=None",
    "callbacks.BroadcastGlobalVariablesCallback": "root_rank, device='', local_variables=None",
    "callbacks.MetricAverageCallback": "device=''",
    "callbacks.LearningRateScheduleCallback": "initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, "
    "momentum_correction=True, steps_per_epoch=None",
    "callbacks.LearningRateWarmupCallback": "initial_lr, warmup_epochs=5, momentum_correction=True, "
    "steps_per_epoch=None, verbose=0",
    "callbacks.BestModelCheckpoint": "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', "
    "save_freq='epoch'",
    "elastic.KerasState": "model, optimizer=None",
    "elastic.CommitStateCallback": "state, batches_per_commit=1",
    "elastic.UpdateBatchStateCallback": "state",
    "elastic.UpdateEpochStateCallback": "state",
    "elastic.run": "func",
}
OF_KERAS_ALONE = {
    "DistributedOptimizer": f"{OPTIMIZER}, num_groups=0, groups=None",
    "callbacks.BestModelCheckpoint": "monitor='val_loss', verbose=0, mode='auto', save_freq='epoch'",
}
CONSTANTS = "Average Sum Adasum Min Max Product ProcessSet global_process_set Compression HorovodInternalError elastic"

NAMES = {
    "horovod.tensorflow": f"{CONSTANTS} _allreduce _executing_eagerly _make_subgraph _cache check_extension"
    " gpu_available vars_to_refs refs_to_vars",
    "horovod.tensorflow.mpi_ops": "rank size local_rank Average Sum allgather broadcast broadcast_ alltoall join"
    " size_op reducescatter grouped_reducescatter init",
    "horovod.tensorflow.util": "_executing_eagerly _make_subgraph _cache vars_to_refs refs_to_vars",
    "horovod.tensorflow.functions": "allgather_object broadcast_object broadcast_object_fn broadcast_variables",
    "horovod.tensorflow.elastic": "run TensorFlowState TensorFlowKerasState",
    "horovod.tensorflow.compression": "Compression Compressor NoneCompressor FP16Compressor",
    "horovod.tensorflow.gradient_aggregation": "LocalGradientAggregationHelper",
    "horovod.tensorflow.sync_batch_norm": "SyncBatchNormalization",
    **dict.fromkeys(("horovod.tensorflow.keras", "horovod.keras"), f"{CONSTANTS} callbacks broadcast_object"),
    **dict.fromkeys(
        ("horovod.tensorflow.keras.callbacks", "horovod.keras.callbacks"),
        "BroadcastGlobalVariablesCallback MetricAverageCallback BestModelCheckpoint",
    ),
    **dict.fromkeys(("horovod.tensorflow.keras.elastic", "horovod.keras.elastic"), "run KerasState"),
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if getattr(found, name, None) is None] == []


SIGNATURES = [
    *(("horovod.tensorflow", name, wanted) for name, wanted in TENSORFLOW.items()),
    *(("horovod.tensorflow.mpi_ops", name, wanted) for name, wanted in PRIVATE.items()),
    *(("horovod.tensorflow.keras", name, wanted) for name, wanted in KERAS.items()),
    *(("horovod.keras", name, wanted) for name, wanted in {**KERAS, **OF_KERAS_ALONE}.items()),
]


@pytest.mark.parametrize("module, name, wanted", SIGNATURES)
def test_signature(module, name, wanted):
    function = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    names = ("Compression", "Average", "Sum", "global_process_set")
    require_signature(function, wanted, {each: getattr(hvd, each) for each in names})


def test_everything_that_hvd_has_is_here():
    import hvd.keras
    import hvd.tensorflow

    for complete, package in (
        (hvd.tensorflow, horovod.tensorflow),
        (hvd.keras, horovod.tensorflow.keras),
        (hvd.keras, horovod.keras),
    ):
        assert [name for name in complete.__all__ if not hasattr(package, name)] == []
        with pytest.raises(AttributeError):
            package.no_such_thing  # noqa: B018
    assert horovod.tensorflow.HorovodInternalError is hvd.tensorflow.HorovodInternalError


def test_ranks_that_have_joined_count_as_in_horovod():
    """What this init() does is shown for horovod.torch."""
    from horovod.common.basics import init

    packages = (hvd, hvd.mpi_ops, horovod.tensorflow.keras, horovod.keras)
    assert all(package.init is init for package in packages)


def test_collectives_of_a_job_of_one():
    hvd.init()
    rows = tf.constant([[1.0], [2.0]])
    for refused in (
        lambda: hvd.reducescatter(rows, op=hvd.Max),
        lambda: hvd.grouped_reducescatter([rows], "", hvd.Compression.none, hvd.Min),
        lambda: tf.function(lambda: hvd.reducescatter(rows, op=hvd.Product))(),
    ):
        with pytest.raises(tf.errors.AbortedError, match="Average and Sum"):
            refused()
    assert hvd.reducescatter(rows, op=hvd.Sum).numpy().tolist() == [[1], [2]]
    mpi_ops = hvd.mpi_ops
    assert mpi_ops._allreduce(rows, "named", hvd.Sum, 2.0, 3.0).numpy().tolist() == [[6], [12]]
    assert mpi_ops._grouped_allreduce([rows, rows[0]])[1].numpy().tolist() == [1]
    assert mpi_ops._reducescatter(rows).numpy().tolist() == [[1], [2]]
    assert mpi_ops._grouped_reducescatter([rows])[0].numpy().tolist() == [[1], [2]]
    hvd.shutdown()


def test_private_names():
    mpi_ops = hvd.mpi_ops
    assert mpi_ops._normalize_name("layer/kernel:0") == "layer_kernel_0"
    assert mpi_ops.check_num_rank_power_of_2(4) and not mpi_ops.check_num_rank_power_of_2(6)
    assert mpi_ops.handle_average_backwards_compatibility(None, False) == hvd.Sum
    assert mpi_ops.handle_average_backwards_compatibility(hvd.Max, None) == hvd.Max
    with pytest.raises(ValueError):
        mpi_ops.handle_average_backwards_compatibility(hvd.Sum, True)


def test_small_tools():
    calls = []
    once = hvd._cache(lambda value: calls.append(value) or -value)
    assert (once(1), once(1), once(2), calls) == (-1, -1, -2, [1, 2])
    assert hvd._executing_eagerly() and not hvd._make_subgraph(lambda: hvd._executing_eagerly())().numpy()
    variables = [tf.Variable(1.0), [tf.Variable(1.0), tf.keras.layers.Dense(1)]]
    references = hvd.vars_to_refs(variables)
    assert len({references, hvd.vars_to_refs(variables)}) == 1 and references[0] != references[1][0]
    assert hvd.refs_to_vars(references)[1][1] is variables[1][1] and hvd.refs_to_vars(references)[0] is variables[0]


def test_check_build_finds_tensorflow():
    from horovod.runner.launch import build_report

    assert "[X] TensorFlow" in build_report()


def test_submodules_are_attributes(monkeypatch):
    """Scripts use them after `import horovod.tensorflow as hvd` alone."""
    for name in ("compression", "functions", "gradient_aggregation", "mpi_ops", "sync_batch_norm", "util"):
        monkeypatch.delattr(hvd, name, raising=False)  # as long as nobody else has imported it
        assert getattr(hvd, name) is importlib.import_module(f"horovod.tensorflow.{name}")


@pytest.mark.parametrize("package", [horovod.tensorflow.keras, horovod.keras])
def test_collectives_of_keras_give_tensors(package):
    package.init()
    values = np.arange(4.0)
    for result in (
        package.allreduce(values),
        package.allgather(values),
        package.broadcast(values, root_rank=0),
        package.reducescatter(values),
    ):
        assert result.numpy().tolist() == [0, 1, 2, 3]
    assert package.allreduce([1.5, 2.5])[1].numpy() == 2.5
    assert int(package.broadcast(3, 0, name="epoch")) == 3
    package.shutdown()


@pytest.mark.parametrize("package", [horovod.tensorflow.keras, horovod.keras])
def test_a_broadcast_leaves_local_variables_out(package):
    package.init()
    alone, further = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
    callback = package.callbacks.BroadcastGlobalVariablesCallback(0, "", alone)
    callback.register_local_var(further)
    assert [id(each) for each in callback._local] == [id(alone), id(further)]
    package.shutdown()


def test_passes_are_counted_in_sessions():
    """In `global_step`; and what adds gradients up is no part of a checkpoint."""
    v1 = tf.compat.v1
    hvd.init()
    with tf.Graph().as_default(), v1.Session() as session:
        variable, step = v1.get_variable("v", initializer=tf.zeros([2])), v1.train.create_global_step()
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=3)
        assert isinstance(optimizer, hvd._DistributedOptimizer) and isinstance(optimizer, hvd._LegacyOptimizer)
        train = optimizer.minimize(tf.reduce_sum(variable), global_step=step)
        assert {each.op.name for each in v1.global_variables()} == {"v", "global_step"}
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        counts = []
        for _ in range(6):
            session.run(train)
            counts.append((int(session.run(step)), session.run(variable).tolist()))
    assert [count for count, _ in counts] == [1, 2, 3, 4, 5, 6]
    assert [value[0] for _, value in counts] == [0, 0, -3, -3, -3, -6]
    hvd.shutdown()


def test_passes_are_counted_for_optimizers_of_keras():
    hvd.init()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=3)
    variable = tf.Variable([0.0])
    for _ in range(6):
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    assert int(optimizer.iterations) == 6 and variable.numpy().tolist() == [-6]
    hvd.shutdown()


def test_variables_of_an_optimizer_as_a_method():
    hvd.init()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam())
    optimizer.build([tf.Variable([1.0])])
    assert len(optimizer.variables()) == len(optimizer.variables) > 2
    hvd.broadcast_variables(optimizer.variables(), root_rank=0)
    hvd.shutdown()


@pytest.mark.parametrize("package", [horovod.tensorflow.keras, horovod.keras])
def test_a_number_as_the_multiplier(package):
    schedule = package.callbacks.LearningRateScheduleCallback
    callback = schedule(1.0, 0.5, start_epoch=2, staircase=False, steps_per_epoch=4)
    assert [callback.multiplier(epoch) for epoch in (2, 3, 4.5)] == [1, 0.5, 0.5**2.5] and not callback.staircase

    def doubled(epoch):
        return 2 * epoch

    assert schedule(1.0, doubled).multiplier is doubled
