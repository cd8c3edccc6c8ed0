"""What is sent around before and beside training: variables, objects, elastic states."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import hvd.tensorflow as hvd
from hvd import elastic, process_set
from tensorflow_modes import MODES, run

pytestmark = pytest.mark.ranks
V1 = tf.compat.v1
TYPES = (
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.int8, tf.int16, tf.int32, tf.int64, tf.bool),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128),
)


@pytest.mark.parametrize("way", ["eager", "function"])
def test_broadcast_variables_of_all_types(way):
    root = hvd.size() - 1
    variables = [tf.Variable(tf.cast(tf.fill(shape, hvd.rank() + 1), each)) for each in TYPES for shape in ([], [2, 3])]
    variables.append(tf.Variable(tf.zeros([0, 2])))

    def call():
        made = hvd.broadcast_variables(iter(variables), root, inplace=True)
        assert (made is None) == tf.executing_eagerly()

    (tf.function(call, autograph=False) if way == "function" else call)()
    for variable in variables[:-1]:
        expected = np.full(variable.shape, root + 1).astype(variable.dtype.as_numpy_dtype)
        assert variable.numpy().tolist() == expected.tolist(), variable.dtype


def test_broadcast_variables_of_nothing():
    assert hvd.broadcast_variables([], 0) is None


def test_broadcast_variables_refuses_strings():
    with pytest.raises(TypeError, match="string"):
        hvd.broadcast_variables([tf.Variable(["a"])], 0)


def test_broadcast_variables_of_keras():
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
    for variable in variables:
        variable.assign(np.full(variable.shape, hvd.rank() + 1))
    hvd.broadcast_variables(variables, hvd.size() - 1)
    for variable in variables:
        assert (np.asarray(variable) == hvd.size()).all(), variable.path


@pytest.mark.parametrize("resource", [False, True])
def test_hook_of_monitored_sessions(resource):
    """The classic program: its restored or initialised variables become rank 0's."""
    with tf.Graph().as_default():
        made = [
            V1.get_variable("a", initializer=tf.fill([3], hvd.rank() + 1.0), use_resource=resource),
            V1.get_variable("b", initializer=tf.constant(hvd.rank() + 1, tf.int64), use_resource=resource),
            V1.get_variable("c", initializer=tf.cast(hvd.rank() + 1, tf.complex64), use_resource=resource),
        ]
        step = V1.train.get_or_create_global_step()
        loss = tf.reduce_sum(made[0] ** 2) * (hvd.rank() + 1.0)
        optimizer = hvd.DistributedOptimizer(V1.train.MomentumOptimizer(0.01, 0.9))
        train = optimizer.minimize(loss, global_step=step)
        root = hvd.size() - 1
        hooks = [hvd.BroadcastGlobalVariablesHook(root), V1.train.StopAtStepHook(last_step=3)]
        assert isinstance(hooks[0], V1.train.SessionRunHook)
        with V1.train.MonitoredTrainingSession(hooks=hooks) as session:
            start = session.run(made)
            assert [np.asarray(each).ravel()[0] for each in start] == [root + 1.0, root + 1, root + 1]
            values = [start[0]]
            while not session.should_stop():
                values.append(session.run([train, made[0]])[1])
        assert len(values) == 4
        everybodys = hvd.allgather_object(np.asarray(values[1:]).tolist())
        assert all(each == everybodys[0] for each in everybodys)


def test_broadcast_global_variables():
    with pytest.raises(RuntimeError, match=r"hvd\.broadcast_variables"):
        hvd.broadcast_global_variables(0)
    with tf.Graph().as_default(), V1.Session() as session:
        session.run(hvd.broadcast_global_variables(0))  # there are none
        variable = V1.get_variable("v", initializer=tf.constant(hvd.rank() + 1.0))
        operation = hvd.broadcast_global_variables(hvd.size() - 1)
        session.run(V1.global_variables_initializer())
        session.run(operation)
        assert session.run(variable) == hvd.size()
        session.run(variable.assign(hvd.rank() * 2.0))
        session.run(operation)
        assert session.run(variable) == (hvd.size() - 1) * 2


@pytest.mark.parametrize("mode", MODES)
def test_objects(mode):
    mine = {"rank": hvd.rank(), "data": np.arange(hvd.rank())}
    root = hvd.size() - 1

    def exchange(tensor):
        received.append(hvd.broadcast_object(mine, root, name="object"))
        received.append(hvd.broadcast_object_fn(root_rank=root)(mine))
        received.extend(hvd.allgather_object(mine, name="object"))
        return tensor

    received: list = []
    run(mode, exchange, tf.ones(1))
    assert [each["rank"] for each in received] == [root, root, *range(hvd.size())]
    assert all(len(each["data"]) == each["rank"] for each in received)


def test_objects_of_a_process_set():
    if hvd.size() == 1:
        pytest.skip("one rank has no other sets")
    rest = hvd.add_process_set(range(1, hvd.size()))
    if rest.included():
        assert hvd.allgather_object(hvd.rank(), process_set=rest) == rest.ranks
        assert hvd.broadcast_object(hvd.rank(), 1, process_set=rest) == 1
    hvd.remove_process_set(rest)


def test_elastic_state():
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64), tf.Variable(True)]
    state = hvd.elastic.TensorFlowState(variables, epoch=1, seen=[hvd.rank()])
    variables[0].assign([hvd.rank(), 9.0])
    state.epoch = 2
    state.restore()
    assert variables[0].numpy().tolist() == [1, 2] and state.epoch == 1
    variables[0].assign([hvd.rank(), 9.0])
    variables[2].assign(hvd.rank() == 0)
    state.epoch = hvd.rank() + 5
    state.sync()
    assert variables[0].numpy().tolist() == [0, 9] and variables[2].numpy() and state.epoch == 5 and state.seen == [0]
    variables[1].assign(7)
    state.commit()
    variables[1].assign(8)
    state.restore()
    assert variables[1].numpy() == 7


def test_elastic_state_of_a_session():
    with tf.Graph().as_default(), V1.Session() as session:
        variables = [V1.get_variable("v", initializer=tf.fill([2], hvd.rank() + 1.0)), V1.train.create_global_step()]
        session.run(V1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, epoch=hvd.rank())
        session.graph.finalize()  # as monitored sessions do
        for _ in range(2):
            state.sync()
        assert session.run(variables[0]).tolist() == [1, 1] and state.epoch == 0
        variables[0].load([5.0, 6.0], session)
        state.restore()
        assert session.run(variables[0]).tolist() == [1, 1]
        variables[0].load([5.0, 6.0], session)
        state.save()
        variables[0].load([7.0, 6.0], session)
        state.restore()
        assert session.run(variables[0]).tolist() == [5, 6]


@pytest.mark.parametrize("way", ["eager", "function"])
def test_elastic_run_goes_back_and_on(way):
    variable = tf.Variable([0.0])
    state = hvd.elastic.TensorFlowState([variable], step=0)
    failures, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    def add(value):
        variable.assign_add(hvd.allreduce(value, op=hvd.Sum))

    step = tf.function(add, autograph=False) if way == "function" else add

    @hvd.elastic.run
    def train(state, steps):
        while state.step < steps:
            step(tf.constant([1.0]))
            if state.step == 3 and not failures:
                failures.append(1)
                hvd.shutdown()
                hvd.init()  # as if a rank had come back
                variable.assign([99.0])
                raise hvd.HorovodInternalError("a rank was lost")
            state.step += 1
            state.commit()
        return state.step

    assert train(state, 6) == 6
    assert variable.numpy().tolist() == [6.0 * hvd.size()] and resets == [hvd.size()]


def test_elastic_run_knows_the_runtimes_errors():
    state = hvd.elastic.TensorFlowState([], restored=0)
    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(1)
        if len(calls) == 1:
            raise tf.errors.UnknownError(None, None, "hvd: rank 7 was lost")
        raise tf.errors.UnknownError(None, None, "something else")

    with pytest.raises(tf.errors.UnknownError, match="something else"):
        train(state)
    assert len(calls) == 2


def test_elastic_state_of_keras():
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(momentum=0.9), "mse")
    state = hvd.elastic.TensorFlowKerasState(model, batch=0)
    if hvd.rank() == 0:  # newcomers have no variables of the optimizer yet
        model.train_on_batch(np.full((2, 3), 1.0), np.zeros((2, 1)))
    else:
        state.make_room()
    state.sync()
    assert np.any(model.optimizer.variables[-1])
    kernels = hvd.allgather_object(
        [np.asarray(each).tolist() for each in [*model.variables, *model.optimizer.variables]]
    )
    assert all(each == kernels[0] for each in kernels)
    model.train_on_batch(np.ones((2, 3)), np.zeros((2, 1)))
    state.restore()
    assert [np.asarray(each).tolist() for each in [*model.variables, *model.optimizer.variables]] == kernels[0]


@pytest.mark.parametrize("kind", ["variables", "tf_keras_state", "keras_state"])
def test_only_those_that_lack_the_newest_step_receive_it(kind):
    """Values differ here, to show who has received them."""
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    import hvd.keras as hvd_keras

    rank = hvd.rank()
    variable = tf.Variable([float(rank)] * 3)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(momentum=0.9), "mse")
    model.optimizer.build(model.trainable_variables)
    model.layers[0].kernel.assign([[float(rank)]] * 3)
    state = {
        "variables": lambda: hvd.elastic.TensorFlowState([variable], batch=0),
        "tf_keras_state": lambda: hvd.elastic.TensorFlowKerasState(model, batch=0),
        "keras_state": lambda: hvd_keras.elastic.KerasState(model, batch=0),
    }[kind]()
    changed = variable if kind == "variables" else model.layers[0].kernel
    if rank != 1:
        state._is_synchronized = True
        state._is_at_step = rank != 3  # its step is under way
        state._finished_steps, state.batch = 5, 7
    elastic._synchronize(state, is_needed=rank == 1)
    expected = 0 if rank in (1, 3) else rank
    assert np.all(changed.numpy() == expected) and state.batch == 7
    changed.assign(changed - 1)
    state.restore()
    assert np.all(changed.numpy() == expected)
    assert state._finished_steps == 5 and process_set.registered() == {0: list(range(hvd.size()))}


@pytest.mark.parametrize("goes_back", ["restore", "reset"])
def test_elastic_states_of_keras_begin_a_step_anew(goes_back):
    """New ranks know nothing of the backward passes that the others have added up."""
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    import hvd.keras as hvd_keras

    for state_class in (hvd.elastic.TensorFlowKerasState, hvd_keras.elastic.KerasState):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=2)
        model.compile(optimizer, "mse")
        state = state_class(model, batch=0)
        model.train_on_batch(np.ones((2, 3)), np.zeros((2, 1)))
        assert optimizer._reduction.aggregation.counter.numpy() == 1
        getattr(state, goes_back)()
        assert optimizer._reduction.aggregation.counter.numpy() == 0
