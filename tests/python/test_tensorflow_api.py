"""The names, signatures and defaults that scripts rely on, in this process, which is no job."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import tensorflow as tf

import hvd.tensorflow as hvd
from hvd.exceptions import HorovodInternalError

NONE, PS = hvd.Compression.none, hvd.global_process_set
DEVICES = {"device_dense": "", "device_sparse": ""}
SCALES = {"prescale_factor": 1.0, "postscale_factor": 1.0}
REDUCING = {"op": hvd.Average, "gradient_predivide_factor": 1.0}
GROUPS = {"num_groups": 0, "groups": None, "process_set": PS}
TAPE = {**DEVICES, "compression": NONE, "sparse_as_dense": False, **REDUCING, **GROUPS}

# Positional arguments with their defaults, in order; `...` where there is none. Ours may have more behind them.
SIGNATURES = {
    "allreduce": {
        "tensor": ...,
        "average": None,
        **DEVICES,
        "compression": NONE,
        "op": None,
        **SCALES,
        "name": None,
        "process_set": PS,
        "ignore_name_scope": False,
    },
    "grouped_allreduce": {
        "tensors": ...,
        "average": None,
        **DEVICES,
        "compression": NONE,
        "op": None,
        **SCALES,
        "process_set": PS,
        "ignore_name_scope": False,
        "name": None,
    },
    "reducescatter": {
        "tensor": ...,
        "device_dense": "",
        "compression": NONE,
        "op": hvd.Average,
        "name": None,
        "process_set": PS,
        "ignore_name_scope": False,
        **SCALES,
    },
    "grouped_reducescatter": {
        "tensors": ...,
        "device_dense": "",
        "compression": NONE,
        "op": hvd.Average,
        "process_set": PS,
        **SCALES,
    },
    "allgather": {"tensor": ..., "name": None, "ignore_name_scope": False, "process_set": PS},
    "grouped_allgather": {"tensors": ..., "name": None, "ignore_name_scope": False, "process_set": PS},
    "broadcast": {"tensor": ..., "root_rank": ..., "name": None, "ignore_name_scope": False, "process_set": PS},
    "broadcast_": {"variables": ..., "root_rank": ..., "name": None, "process_set": PS},
    "alltoall": {"tensor": ..., "splits": None, "name": None, "ignore_name_scope": False, "process_set": PS},
    "join": {},
    "barrier": {"process_set": PS},
    "size_op": {"process_set_id": 0, "name": None},
    "process_set_included_op": {"process_set_id": 0, "name": None},
    "local_size_op": {"name": None},
    "rank_op": {"name": None},
    "local_rank_op": {"name": None},
    "broadcast_variables": {"variables": ..., "root_rank": ..., "process_set": PS, "inplace": False},
    "broadcast_object": {"obj": ..., "root_rank": 0, "session": None, "name": None, "process_set": PS},
    "broadcast_object_fn": {"root_rank": 0, "session": None, "name": None, "process_set": PS},
    "allgather_object": {"obj": ..., "session": None, "name": None, "process_set": PS},
    "broadcast_global_variables": {"root_rank": ...},
    "BroadcastGlobalVariablesHook": {"root_rank": ..., "device": ""},
    "DistributedOptimizer": {
        "optimizer": ...,
        "name": None,
        "use_locking": False,
        **DEVICES,
        "compression": NONE,
        "sparse_as_dense": False,
        "backward_passes_per_step": 1,
        **REDUCING,
        "average_aggregated_gradients": False,
        **GROUPS,
        "scale_local_gradients": True,
    },
    "DistributedGradientTape": {"gradtape": ..., **TAPE, "scale_local_gradients": True},
    "PartialDistributedGradientTape": {"gradtape": ..., **TAPE, "local_layers": None, "scale_local_gradients": True},
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = inspect.signature(getattr(hvd, name)).parameters
    ours = {
        each.name: ... if each.default is each.empty else each.default
        for each in parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD
    }
    assert list(ours.items())[: len(SIGNATURES[name])] == list(SIGNATURES[name].items())
    rest = list(ours.values())[len(SIGNATURES[name]) :]
    assert ... not in rest


def test_signatures_of_elastic_states_and_tapes():
    assert list(inspect.signature(hvd.elastic.TensorFlowState).parameters) == ["variables", "session", "kwargs"]
    keras = list(inspect.signature(hvd.elastic.TensorFlowKerasState).parameters)
    assert keras == ["model", "optimizer", "backend", "kwargs"]
    with tf.GradientTape() as tape:
        pass
    hvd.init()
    gradient = inspect.signature(hvd.DistributedGradientTape(tape).gradient).parameters
    assert list(gradient)[:3] == ["target", "sources", "output_gradients"] and "use_generic_names" in gradient
    hvd.shutdown()


def test_all_is_there():
    for name in hvd.__all__:
        # Comes with Keras.
        if name != "SyncBatchNormalization":
            assert getattr(hvd, name) is not None
    assert hvd.HorovodInternalError is HorovodInternalError
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == list(range(6))
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = hvd.nothing_like_this


@pytest.mark.timed
def test_importing_brings_no_other_framework_and_takes_no_time():
    program = """
import sys, time
import tensorflow
from timeouts import EXACT
def used(): return time.process_time()
before = used()
import hvd.tensorflow
assert used() - before < (0.3 if EXACT else 3), used() - before
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
