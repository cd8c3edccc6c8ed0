"""tf.data's service beside a training: input pipelines run in processes of their own, the compute workers.

The compute workers are a job, started before the training or at the same time, on hosts of any kind:

    hvdrun -np 4 python -m hvd.tensorflow.data.compute_worker /shared/data-service.json
    hvdrun -np 2 python train.py

The file says where they are, and holds a key: whoever reads it may join. The training reads it, too:

    config = TfDataServiceConfig.read("/shared/data-service.json", wait_for_file_creation=True)
    dataset = dataset.shuffle(10_000).repeat().batch(128)
    dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True)
    ...
    if hvd.rank() == 0:
        config.compute_client().shutdown()

What stands before `send_to_data_service` happens on the compute workers, what follows on the training's ranks. Each
worker belongs to a dispatcher of tf.data's, which tells it what to compute. There is one dispatcher for all ranks of
the training, or one for each.

tf.data itself waits without end for a worker or a dispatcher that has died; hvdrun ends a job of which a rank has died.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from hvd import basics
from hvd.tensorflow.data.registration import Addresses, ComputeClient, ComputeService

__all__ = [
    "ComputeService",
    "TfDataServiceConfig",
    "compute_worker_fn",
    "send_to_data_service",
    "tf_data_service",
]

SIDES = ("training", "compute")

_POLL_S = 0.1  # for a file to be created


@dataclass(frozen=True)
class TfDataServiceConfig:
    """What the processes of a data service and of the training need to know of each other.

    Attributes:
        dispatchers: 1, for all ranks of the training; or as many as the training has ranks, each with its own.
        workers_per_dispatcher: how many compute workers each dispatcher has.
        dispatcher_side: where dispatchers run: "compute", in the first worker of each; or "training", in the ranks.
        addresses: of the `ComputeService`: (host, port) by network interface, tried in this order.
        key: the service's secret.
        timeout: seconds that a process waits for others to come.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Addresses
    key: bytes = field(repr=False)
    timeout: float = 60

    def __post_init__(self) -> None:
        if self.dispatchers < 1 or self.workers_per_dispatcher < 1:
            raise ValueError(
                f"{self.dispatchers} dispatchers with {self.workers_per_dispatcher} workers each: at least 1 of both"
            )
        if self.dispatcher_side not in SIDES:
            raise ValueError(f'dispatcher_side is {self.dispatcher_side!r}: expected "training" or "compute"')

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """To talk to the service, for instance to end it: `config.compute_client().shutdown()`.

        Args:
            verbose: changes nothing.

        Raises:
            ConnectionError: the service does not run, or cannot be reached from here.
        """
        return ComputeClient(self.addresses, self.key)

    def to_dict(self) -> dict[str, Any]:
        """Values that JSON knows; the key as hexadecimal digits."""
        return {**asdict(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(conf: Mapping[str, Any]) -> TfDataServiceConfig:
        """The inverse of `to_dict`.

        Raises:
            ValueError: something is missing, or makes no sense.
        """
        try:
            return TfDataServiceConfig(
                dispatchers=int(conf["dispatchers"]),
                workers_per_dispatcher=int(conf["workers_per_dispatcher"]),
                dispatcher_side=conf["dispatcher_side"],
                addresses={
                    interface: [(str(host), int(port)) for host, port in addresses]
                    for interface, addresses in conf["addresses"].items()
                },
                key=bytes.fromhex(conf["key"]),
                timeout=conf.get("timeout", 60),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the configuration of a data service: {error!r}") from error

    def write(self, filename: str | os.PathLike[str]) -> None:
        """A JSON file, whole or not at all, that only its owner may read."""
        path = Path(filename)
        descriptor, unfinished = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        try:
            with open(descriptor, "w") as file:
                json.dump(self.to_dict(), file, indent=2)
            os.replace(unfinished, path)
        except BaseException:
            os.unlink(unfinished)  # the key is in it
            raise

    @staticmethod
    def read(
        filename: str | os.PathLike[str], wait_for_file_creation: bool = False, timeout: float = 60
    ) -> TfDataServiceConfig:
        """What `write` has written.

        Args:
            filename: of that file.
            wait_for_file_creation: whether to wait for the file, `timeout` seconds at most.

        Raises:
            FileNotFoundError: it is not there.
            TimeoutError: it has not come.
            ValueError: it is some other file.
        """
        deadline = time.monotonic() + timeout
        while wait_for_file_creation and not Path(filename).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{filename} has not been created within {timeout:g} s: do the compute workers run?")
            time.sleep(_POLL_S)
        try:
            return TfDataServiceConfig.from_dict(json.loads(Path(filename).read_text()))
        except ValueError as error:
            raise ValueError(f"{filename}: {error}") from error


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of this rank's dispatcher, for `tf.data.experimental.service.distribute`, once its workers are ready.

        with tf_data_service(config, hvd.rank()) as dispatcher:
            dataset = dataset.apply(tf.data.experimental.service.distribute("distributed_epoch", dispatcher))
            model.fit(dataset)

    Every rank of the training calls it. If dispatchers run in the training (`dispatcher_side`), the one of this rank
    does so within the block; a rank with the dispatcher of all stays until the others have left theirs. If it fails
    before, its dispatcher has stopped for all.

    Raises:
        ConnectionError: the data service does not run, or cannot be reached from here.
        TimeoutError: the dispatcher or its workers have not come within the configuration's time, or at the end other
            ranks have not left.
        ValueError: there is no dispatcher for this rank, or it has stopped.
    """
    client = compute_config.compute_client()
    dispatcher_id = _dispatcher_of(compute_config, rank)
    dispatcher = None
    if compute_config.dispatcher_side == "training" and rank == dispatcher_id:
        dispatcher = _start_dispatcher(client, dispatcher_id)
    try:
        address = client.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(dispatcher_id, compute_config.timeout)
        client.begin_reading(dispatcher_id, rank)
        try:
            yield address
        finally:
            client.end_reading(dispatcher_id, rank)
        if dispatcher is not None:
            client.withdraw_dispatcher(dispatcher_id, compute_config.timeout)
    except BaseException:
        if dispatcher is not None:
            with contextlib.suppress(ConnectionError, ValueError):  # the service may have ended
                client.abandon_dispatcher(dispatcher_id)
        raise


def _dispatcher_of(compute_config: TfDataServiceConfig, rank: int) -> int:
    if compute_config.dispatchers == 1:
        return 0
    if rank >= compute_config.dispatchers:
        raise ValueError(
            f"rank {rank} has no dispatcher: there are {compute_config.dispatchers}, and there must be 1, or one for "
            "each rank of the training"
        )
    return rank


def _start_dispatcher(client: ComputeClient, dispatcher_id: int) -> tf.data.experimental.service.DispatchServer:
    """It stops when it is no longer referred to."""
    dispatcher = tf.data.experimental.service.DispatchServer()
    protocol, local_address = dispatcher.target.split("://")
    port = local_address.rsplit(":", 1)[1]
    client.register_dispatcher(dispatcher_id, f"{protocol}://{client.host}:{port}")
    return dispatcher


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """The same dataset, computed by the compute workers. Also a method of `tf.data.Dataset`.

    Every rank of the training calls it, with the same dataset and arguments. It is for dispatchers that run in compute
    workers; where they run in the training, use `tf_data_service`.

    Args:
        dataset: what is to be computed there; its elements, the same on every rank.
        compute_config: of the data service.
        rank: this process's number in the training.
        size: number of the training's ranks; needed for reuse_dataset and round_robin.
        processing_mode: "distributed_epoch": the workers divide the elements among them, and each comes once;
            "parallel_epochs": each worker goes through all of them. Or a `ShardingPolicy` of tf.data's.
        reuse_dataset: the ranks divide the elements among them, first come first served; else each gets all. Only where
            there is one dispatcher: ranks with a dispatcher each get all elements whatever is said here.
        round_robin: the same, but in turns: of each `size` elements every rank gets one. The dataset must have no end
            (`repeat()`).

    Raises:
        ConnectionError: the data service does not run, or cannot be reached from here.
        TimeoutError: the dispatcher, its workers, or with reuse_dataset the other ranks have not come in time.
        ValueError: arguments that make no sense.
    """
    if compute_config.dispatcher_side == "training":
        raise ValueError(
            "dispatchers run in the training, and only for a while: use tf_data_service, and read the dataset within it"
        )
    is_shared = compute_config.dispatchers == 1 and (reuse_dataset or round_robin)
    if is_shared and size is None:
        raise ValueError("reuse_dataset and round_robin need the number of ranks: size")
    sharing: dict[str, Any] = {}
    with tf_data_service(compute_config, rank) as dispatcher_address:
        if is_shared:
            assert size is not None
            sharing["job_name"] = compute_config.compute_client().agree_on_job(rank, size, compute_config.timeout)
            if round_robin:
                sharing.update(consumer_index=rank, num_consumers=size)
        return dataset.apply(tf.data.experimental.service.distribute(processing_mode, dispatcher_address, **sharing))


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """The life of a compute worker: returns once the service was told to end, `compute_client().shutdown()`.

    All processes of a job call it, `dispatchers * workers_per_dispatcher` of them; it joins the job if that has not
    been done. `python -m hvd.tensorflow.data.compute_worker` does, and `hvd.run(compute_worker_fn, (config,), np=...)`
    may, where the caller has a `ComputeService`.

    Raises:
        ConnectionError: the service does not run, cannot be reached from here, or has died.
        TimeoutError: the dispatcher has not come within the configuration's time.
        ValueError: the job has another number of processes.
    """
    basics.init()
    rank, size = basics.rank(), basics.size()
    expected = compute_config.dispatchers * compute_config.workers_per_dispatcher
    if size != expected:
        raise ValueError(
            f"{compute_config.dispatchers} dispatchers with {compute_config.workers_per_dispatcher} workers each need "
            f"{expected} processes, not {size}"
        )
    client = compute_config.compute_client()
    dispatcher_id, place = divmod(rank, compute_config.workers_per_dispatcher)
    dispatcher = None
    if compute_config.dispatcher_side == "compute" and place == 0:
        dispatcher = _start_dispatcher(client, dispatcher_id)
    address = client.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=address.split("://")[1],
            worker_address=f"{client.host}:%port%",
            dispatcher_timeout_ms=int(compute_config.timeout * 1000),
        )
    )
    client.register_worker_for_dispatcher(dispatcher_id, rank)
    client.wait_for_shutdown()
    del worker, dispatcher  # in this order: a worker tells its dispatcher
    client.worker_has_stopped(dispatcher_id, rank)
