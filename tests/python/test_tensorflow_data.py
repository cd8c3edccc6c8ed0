"""tf.data's service beside a training: finding each other, with strangers about; and jobs of workers and readers."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hvd.tensorflow.data import registration
from hvd.tensorflow.data.messages import LARGEST, Exchange, MessageError
from hvd.tensorflow.data.registration import ComputeClient, ComputeService
from hvd.tensorflow.data.registrations import Registrations
from launching import PROGRAMS, hvdrun, run_job
from timeouts import at_most

KEY = bytes(range(32))


@pytest.fixture
def service() -> Iterator[ComputeService]:
    service = ComputeService(dispatchers=2, workers_per_dispatcher=2, key=KEY)
    yield service
    service.shutdown()


@pytest.fixture
def client(service) -> ComputeClient:
    return ComputeClient(service.addresses(), KEY)


def address_of(service: ComputeService) -> tuple[str, int]:
    return service.addresses()["lo"][0]


# ---- finding each other


def test_a_wait_ends_when_the_other_side_has_come(service, client):
    later = threading.Timer(0.2, ComputeClient(service.addresses(), KEY).register_dispatcher, (1, "grpc://there:7"))
    later.start()
    assert client.wait_for_dispatcher_registration(1, timeout=10) == "grpc://there:7"
    later.join()


def test_every_wait_ends_and_says_what_was_missing(client):
    with pytest.raises(TimeoutError, match=r"dispatcher 0 has not registered within 0\.1 s"):
        client.wait_for_dispatcher_registration(0, timeout=0.1)
    client.register_worker_for_dispatcher(1, 3)
    with pytest.raises(TimeoutError, match="1 of 2 workers of dispatcher 1 have registered"):
        client.wait_for_dispatcher_worker_registration(1, timeout=0.1)
    with pytest.raises(TimeoutError, match=r"ranks \[0, 2\] have not called"):
        client.agree_on_job(rank=1, size=3, timeout=0.1)
    client.begin_reading(0, rank=5)
    with pytest.raises(TimeoutError, match=r"ranks \[5\] still read from dispatcher 0"):
        client.withdraw_dispatcher(0, timeout=0.1)
    with pytest.raises(TimeoutError, match="has not been shut down"):
        client.wait_for_shutdown(timeout=0.1)
    client.worker_has_stopped(1, 3)


def test_waits_longer_than_a_question(client, monkeypatch):
    monkeypatch.setattr(registration, "LONGEST_WAIT_S", 0.05)
    threading.Timer(0.3, client.register_dispatcher, (0, "grpc://there:7")).start()
    assert client.wait_for_dispatcher_registration(0, timeout=10) == "grpc://there:7"


def test_who_waits_learns_of_the_end():
    service = ComputeService(1, 1, KEY)
    client = ComputeClient(service.addresses(), KEY)
    threading.Timer(0.2, service.shutdown).start()
    with pytest.raises(ValueError, match="was shut down"):
        client.wait_for_dispatcher_registration(0, timeout=10)
    with pytest.raises(ConnectionError, match=r"does not answer at .*:\d+: "):
        while True:  # until its socket is closed, too
            client.wait_for_shutdown(timeout=10)


def test_a_dispatcher_that_has_stopped_has_no_readers(client):
    client.register_dispatcher(0, "grpc://there:7")
    client.withdraw_dispatcher(0, timeout=1)
    with pytest.raises(ValueError, match="dispatcher 0 has stopped"):
        client.begin_reading(0, rank=1)
    with pytest.raises(ValueError, match="dispatcher 0 was there already"):
        client.register_dispatcher(0, "grpc://there:8")


def test_a_dispatcher_whose_rank_fails_has_stopped(service, client):
    """Ranks that come later, or wait for its workers, are told; tf.data would wait for it without end."""
    from hvd.tensorflow.data.compute_service import tf_data_service

    def training(timeout: float):
        return config(
            workers_per_dispatcher=2, dispatcher_side="training", addresses=service.addresses(), timeout=timeout
        )

    for worker in (0, 1):
        client.register_worker_for_dispatcher(0, worker)
    with pytest.raises(ArithmeticError), tf_data_service(training(60), 0):
        raise ArithmeticError
    with pytest.raises(TimeoutError, match="0 of 2 workers of dispatcher 1"), tf_data_service(training(0.1), 1):
        pytest.fail("entered without workers")
    for dispatcher in (0, 1):
        for wait in (client.wait_for_dispatcher_registration, client.wait_for_dispatcher_worker_registration):
            with pytest.raises(ValueError, match=f"dispatcher {dispatcher} has stopped"):
                wait(dispatcher, timeout=0.1)


def test_ranks_agree_on_a_new_name_for_each_job():
    def agree(registrations: Registrations) -> list[str]:
        names: list[str] = []
        ranks = [
            threading.Thread(target=lambda rank=rank: names.append(registrations.agree_on_job(rank, 3, 5)[1]))
            for rank in range(3)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        return names

    registrations = Registrations(1, 1)
    registrations.agree_on_job(2, 3, 0)  # of a training that has failed
    first, second = agree(registrations), agree(registrations)
    assert len(first) == len(second) == 3
    assert len(set(first)) == len(set(second)) == 1 and first != second


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"request": "answer"},
        {"request": ["shutdown"]},
        {"request": "shutdown", "dispatcher": 0},
        {"request": "wait_for_dispatcher", "dispatcher": 0},
        {"request": "wait_for_dispatcher", "dispatcher": 2, "seconds": 0},
        {"request": "wait_for_dispatcher", "dispatcher": -1, "seconds": 0},
        {"request": "wait_for_dispatcher", "dispatcher": "0", "seconds": 0},
        {"request": "wait_for_dispatcher", "dispatcher": 0, "seconds": 1e9},
        {"request": "wait_for_dispatcher", "dispatcher": 0, "seconds": float("nan")},
        {"request": "register_worker", "dispatcher": 0, "worker": [1]},
        {"request": "register_dispatcher", "dispatcher": 0, "address": "x" * 1000},
        {"request": "agree_on_job", "rank": 2, "size": 2, "seconds": 0},
    ],
)
def test_a_question_that_makes_no_sense_has_an_error_for_an_answer(question):
    assert list(Registrations(2, 2).answer(question)) == ["error"]


# ---- with strangers about


def test_another_key_opens_nothing(service):
    with pytest.raises(ConnectionError, match="is its file an old one"):
        ComputeClient(service.addresses(), b"another")


def test_an_address_that_does_not_answer_is_passed_over(service):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        closed = stranger.getsockname()
    assert ComputeClient({"other": [closed], "lo": [address_of(service)]}, KEY).host == "127.0.0.1"


def test_a_message_heard_elsewhere_is_worth_nothing(service, client):
    heard = threading.Event()
    recorded = bytearray()

    def listen(connection: socket.socket, key: bytes = KEY) -> None:
        Exchange(connection, key, is_client=False, seconds=5)
        recorded.extend(connection.recv(1000))
        heard.set()

    here, there = socket.socketpair()
    listener = threading.Thread(target=listen, args=(there,))
    listener.start()
    Exchange(here, KEY, is_client=True, seconds=5).send(
        {"request": "register_dispatcher", "dispatcher": 0, "address": "grpc://bad:1"}
    )
    assert heard.wait(5)
    listener.join()
    with socket.create_connection(address_of(service), timeout=5) as connection:
        connection.sendall(bytes(32) + recorded)
        assert drained(connection) <= 32  # the service's nonce, and no answer
    with pytest.raises(TimeoutError):
        client.wait_for_dispatcher_registration(0, timeout=0)


def drained(connection: socket.socket) -> int:
    """How many bytes come before the other side closes."""
    count = 0
    try:
        while part := connection.recv(1000):
            count += len(part)
    except ConnectionResetError:
        pass
    return count


def test_a_mirror_is_no_service(monkeypatch):
    def reflect(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            while part := connection.recv(1000):
                connection.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as server:
        mirror = threading.Thread(target=reflect, args=(server,))
        mirror.start()
        with pytest.raises(ConnectionError, match="not made with the key"):
            ComputeClient({"lo": [server.getsockname()]}, KEY)
        mirror.join()


NOISE = {"nothing": b"", "http": b"GET / HTTP/1.1\r\n\r\n", "large": bytes(32) + b"\xff" * 36, "zeros": bytes(100)}


@pytest.mark.parametrize("noise", NOISE)
def test_noise_is_not_answered(service, client, noise):
    with socket.create_connection(address_of(service), timeout=5) as connection:
        connection.sendall(NOISE[noise])
        with contextlib.suppress(OSError):  # it may have closed already
            connection.shutdown(socket.SHUT_WR)
        assert drained(connection) <= 32
    client.register_worker_for_dispatcher(0, 0)
    client.worker_has_stopped(0, 0)


@pytest.mark.timed
def test_large_and_slow_messages_are_refused():
    here, there = socket.socketpair()
    peer = threading.Thread(target=lambda: there.sendall(bytes(32) + (LARGEST + 1).to_bytes(4, "big") + bytes(64)))
    peer.start()
    with pytest.raises(MessageError, match=str(LARGEST + 1)):
        Exchange(here, KEY, is_client=True, seconds=5).receive(5)
    peer.join()

    here, there = socket.socketpair()
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(2):
            there.send(b"x")

    peer = threading.Thread(target=drip)
    peer.start()
    start = time.monotonic()
    with pytest.raises(OSError):
        Exchange(here, KEY, is_client=True, seconds=0.3)
    assert time.monotonic() - start < at_most(1.5)  # 32 bytes would take a minute
    is_over.set()
    peer.join()


# ---- the configuration


def config(**changes: object):
    from hvd.tensorflow.data.compute_service import TfDataServiceConfig

    given = {"dispatchers": 2, "workers_per_dispatcher": 3, "dispatcher_side": "compute", "key": KEY, "timeout": 7}
    return TfDataServiceConfig(**{**given, "addresses": {"lo": [("127.0.0.1", 5)]}, **changes})


def test_the_file(tmp_path):
    path = tmp_path / "service.json"
    written = config()
    written.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert type(written).read(path) == written and type(written).from_dict(written.to_dict()) == written
    assert [file.name for file in tmp_path.iterdir()] == ["service.json"]
    assert KEY.hex() not in repr(written) and repr(KEY) not in repr(written)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        config(timeout=object()).write(tmp_path / "service.json")
    assert list(tmp_path.iterdir()) == []


def test_waiting_for_the_file(tmp_path):
    path = tmp_path / "service.json"
    with pytest.raises(TimeoutError, match="do the compute workers run"):
        config().read(path, wait_for_file_creation=True, timeout=0.2)
    with pytest.raises(FileNotFoundError):
        config().read(path)
    threading.Timer(0.3, config().write, (path,)).start()
    assert config().read(path, wait_for_file_creation=True, timeout=10) == config()
    path.write_text("{}")
    with pytest.raises(ValueError, match="not the configuration"):
        config().read(path)


def test_arguments_that_make_no_sense():
    import tensorflow as tf

    dataset = tf.data.Dataset.range(3)
    with pytest.raises(ValueError, match="dispatcher_side"):
        config(dispatcher_side="elsewhere")
    with pytest.raises(ValueError, match="at least 1"):
        config(dispatchers=0)
    with pytest.raises(ValueError, match="use tf_data_service"):
        dataset.send_to_data_service(config(dispatcher_side="training"), 0)
    with pytest.raises(ValueError, match="size"):
        dataset.send_to_data_service(config(dispatchers=1), 0, reuse_dataset=True)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:5"):
        dataset.send_to_data_service(config(), 0)


# ---- jobs of workers and readers


def test_each_element_comes_once(tmp_path):
    from hvd.tensorflow.data.compute_service import TfDataServiceConfig

    there, here = tmp_path / "there.json", tmp_path / "here.json"
    there.write_text("of an earlier service")
    workers = subprocess.Popen(
        [hvdrun(), "-np", "2", sys.executable, str(PROGRAMS / "data_service_workers.py"), str(there), str(here)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        readers = run_job(2, [str(PROGRAMS / "data_service_reader.py"), str(there), str(here)])
        assert readers.returncode == 0, readers.output
        TfDataServiceConfig.read(here).compute_client().shutdown()
        output, _ = workers.communicate(timeout=300)
    finally:
        workers.terminate()
        workers.communicate(timeout=300)
    assert workers.returncode == 0 and output.count("workers are fine") == 2, output
    assert list(tmp_path.iterdir()) == []

    numbers = [number * 10 for number in range(60)]
    rank0, rank1 = [json.loads(line[5:]) for line in readers.output.splitlines() if line.startswith("READ ")]
    for shared in ("first epoch", "second epoch", "dispatcher here"):
        assert sorted(rank0[shared] + rank1[shared]) == numbers
    assert sorted(rank0["another dataset"] + rank1["another dataset"]) == [number + 10000 for number in numbers]
    assert sorted(rank0["alone"]) == sorted(rank1["alone"]) == numbers
    assert len(rank0["in turns"]) == len(rank1["in turns"]) == 30
