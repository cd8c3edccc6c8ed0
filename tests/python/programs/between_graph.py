"""Between-graph replication, as in TensorFlow's tutorials: between_graph.py FOLDER asynchronous|synchronous

Asynchronous: the chief initialises, and trains while the other worker is not there yet; then both train, until enough
steps are counted on the servers. A server is killed and starts again. The chief writes checkpoints: of the servers, and
its own. Synchronous: a second job, which goes on from the checkpoint.
"""

import os
import pathlib
import signal
import sys

import hvd

folder = pathlib.Path(sys.argv[1])
if "HVD_SERVER" in os.environ:  # of hvdrun
    (folder / f"server{os.environ['HVD_SERVER']}").write_text(str(os.getpid()))
hvd.init()  # here servers serve: they do not need TensorFlow

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import hvd.tensorflow as hvd  # noqa: E402

SNAPSHOTS, CHECKPOINT = folder / "snapshots", folder / "chief"
EARLY, STEPS = 20, 300
is_chief = hvd.rank() == 0

random = np.random.default_rng(hvd.rank())
images = random.normal(size=(64, 8)).astype("float32")
targets = images @ np.arange(16, dtype="float32").reshape(8, 2) + np.float32(3)


class Replica:
    """A worker's copy of the model, and its place on the servers."""

    def __init__(self, servers, name, consistency="asynchronous"):
        self.weights = tf.Variable(tf.fill([8, 2], 5.0 * hvd.rank()))
        self.bias = tf.Variable(tf.fill([2], -1.0))
        mine = [self.weights, self.bias]
        self.variables = hvd.ps.Variables(servers, name, mine, hvd.ps.SGD(0.02), consistency)

    @tf.function
    def loss(self):
        return tf.reduce_mean((images @ self.weights + self.bias - targets) ** 2)

    @tf.function
    def step(self):
        with tf.GradientTape() as tape:
            loss = self.loss()
        self.variables.step(tape.gradient(loss, [self.weights, self.bias]))


class Counter:
    """Counts the steps of all workers."""

    def __init__(self, servers):
        self.table = servers.dense("steps", np.zeros(1), hvd.ps.Add())

    def read(self):
        return int(self.table.pull(np.empty(1, np.float32))[0])

    def add(self):
        return int(self.table.push_pull(np.ones(1), np.empty(1, np.float32))[0])


def write_checkpoint(servers, replica):
    servers.snapshot(SNAPSHOTS)
    tf.train.Checkpoint(weights=replica.weights, bias=replica.bias).write(str(CHECKPOINT))


def start_late():
    """The chief begins alone; the other worker finds what it has trained."""
    if not is_chief:
        hvd.barrier()
    servers = hvd.ps.connect()
    counter, replica = Counter(servers), Replica(servers, "net")
    if is_chief:
        for _ in range(EARLY):
            replica.step()
            counter.add()
        hvd.barrier()
    require_same(replica)
    assert counter.read() == EARLY
    hvd.barrier()
    return servers, counter, replica


def require_same(replica):
    both = hvd.allgather(replica.weights[None])
    assert np.array_equal(both[0], both[1]), both


def lose_a_server(servers, replica):
    """Nothing is lost of what was in the snapshot, and the workers need not know."""
    table = servers.table("rows", width=2, optimizer=hvd.ps.Add())
    table.push(range(100), np.full((100, 2), 1 + hvd.rank(), np.float32))
    hvd.barrier()
    if is_chief:
        servers.snapshot(SNAPSHOTS)
        os.kill(int((folder / "server1").read_text()), signal.SIGKILL)
    hvd.barrier()
    before = replica.loss()
    assert np.array_equal(table.pull(range(100)), np.full((100, 2), 3))
    for _ in range(5):
        replica.step()
    assert replica.loss() < 1.1 * before + 0.01, (before, replica.loss())


def require_one_connection(counter):
    """The servers that TF_CONFIG describes know the store of the first job only; what is connected stays so."""
    hvd.shutdown()
    hvd.init()
    try:
        hvd.ps.connect()
    except ValueError as error:
        assert "keep the connection" in str(error), error
    else:
        raise AssertionError("connected anew")
    counter.read()
    hvd.barrier()


def train_asynchronously():
    servers, counter, replica = start_late()
    own = 0
    while counter.add() <= EARLY + STEPS:
        replica.step()
        own += 1
    hvd.barrier()
    replica.variables.pull()
    assert replica.loss() < 1, replica.loss()
    lose_a_server(servers, replica)
    hvd.barrier()
    replica.variables.pull()
    if is_chief:
        servers.snapshot(SNAPSHOTS)
        tf.train.Checkpoint(weights=replica.weights, bias=replica.bias).write(str(CHECKPOINT))
    return servers, counter, own


def train_synchronously():
    """From the servers' checkpoint, which has the values of the chief's own."""
    if not is_chief:
        hvd.barrier()  # opens its tables when the chief has restored them
    servers = hvd.ps.connect()
    counter, restored = Counter(servers), Replica(servers, "net")
    if is_chief:
        servers.restore(SNAPSHOTS)
        restored.variables.pull()
        saved = tf.train.load_checkpoint(str(CHECKPOINT))
        assert np.array_equal(saved.get_tensor("bias/.ATTRIBUTES/VARIABLE_VALUE"), restored.bias)
        hvd.barrier()
    assert counter.read() >= EARLY + STEPS and restored.loss() < 1, (counter.read(), restored.loss())
    hvd.barrier()
    replica = Replica(servers, "together", "synchronous")
    before = replica.loss()
    for _ in range(STEPS):
        replica.step()
        counter.add()
    require_same(replica)
    assert replica.loss() < before, (before, replica.loss())
    return servers, counter, STEPS


servers, counter, own = train_asynchronously() if sys.argv[2] == "asynchronous" else train_synchronously()
hvd.barrier()
if "TF_CONFIG" in os.environ:
    require_one_connection(counter)
print(f"worker {hvd.rank()} has made {own} steps of {counter.read()}", flush=True)
servers.close()
