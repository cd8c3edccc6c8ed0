"""hvd.ray and horovod.ray, on one Ray instance for all tests of this file, and mostly on the same actors: each takes a
second to start. Tests that do not use these actors have all of the instance's CPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import ray
import ray.cloudpickle

import hvd
import hvd.ray
import hvd.ray.actors
from horovod.ray import BaseHorovodWorker
from horovod.ray.runner import Coordinator, MiniSettings
from horovod.ray.utils import detect_nics, map_blocking, nics_to_env_var
from hvd.exceptions import HorovodInternalError, InitError, RankFailedError
from hvd.ray import log, messages, placement, rendezvous_store
from hvd.ray.worker import Worker
from launching import ROOT
from timeouts import wait_until

for pickling in (cloudpickle, ray.cloudpickle):  # hvdrun's ranks, and actors
    pickling.register_pickle_by_value(sys.modules[__name__])

SIZE = 3
GPUS = 6
# Train's own, which nothing here needs.
TRAIN_VARIABLES = {
    **{"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0", "RAY_TRAIN_METRICS_ENABLED": "0"},
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """A second instance on the machine is taken for this one by parts of Ray, unless RAY_ADDRESS says which."""
    folder = tempfile.mkdtemp(prefix="ray-")  # short, for the sockets in it
    with pytest.MonkeyPatch.context() as patch:
        for name, value in TRAIN_VARIABLES.items():
            patch.setenv(name, value)
        started = ray.init(
            num_cpus=4,
            num_gpus=GPUS,
            _temp_dir=folder,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="warning",
        )
        patch.setenv("RAY_ADDRESS", started.address_info["gcs_address"])
        yield
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def kept_executor():
    found = hvd.ray.RayExecutor(num_workers=SIZE, use_gpu=True, gpus_per_worker=2)
    yield found
    found.shutdown()


@pytest.fixture
def executor(kept_executor):
    """One whose actors run and have not failed."""
    if not kept_executor.workers or kept_executor._job._lost:
        kept_executor.shutdown()
        kept_executor.start(Model, [10], {"offset": 1}, extra_env_vars={"WORD": 7})
    return kept_executor


@pytest.fixture(autouse=True)
def room(request, kept_executor, monkeypatch):
    """Frees the CPUs of the kept executor for tests that do not use it. Raises the grace period, so that a rank that
    does not learn of a failure makes its test fail, and a slow machine does not get ranks killed."""
    if "executor" not in request.fixturenames:
        kept_executor.shutdown()
    monkeypatch.setattr(hvd.ray.actors, "_GRACE_S", 60)


def sum_of_ranks(factor: float = 1) -> float:
    hvd.init()
    return factor * float(hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Sum, name="sum")[0])


# Places


@pytest.mark.parametrize(
    "arguments",
    [
        *({}, {"num_workers": 2, "num_hosts": 1}, {"num_workers": 0}, {"num_workers": 1, "gpus_per_worker": 1}),
        *(
            {"min_workers": 1, "override_discovery": False},
            {"max_workers": 2},
            {"min_workers": 2, "max_workers": 1},
            {"min_workers": 1, "num_workers": 1},
        ),
    ],
)
def test_wrong_numbers(arguments):
    with pytest.raises(ValueError):
        hvd.ray.RayExecutor(**arguments)


def test_an_executor_that_was_not_started():
    executor = hvd.ray.RayExecutor(num_workers=1)
    with pytest.raises(ValueError, match=r"call start\(\) before"):
        executor.run(sum_of_ranks)
    executor.shutdown()


def test_no_room():
    executor = hvd.ray.RayExecutor(
        hvd.ray.RayExecutor.create_settings(placement_group_timeout_s=0.2), num_hosts=1, num_workers_per_host=5
    )
    with pytest.raises(TimeoutError, match=r"1 bundles of {'CPU': 5}, STRICT_SPREAD: .* of 4 CPU, 6 GPU are free"):
        executor.start()
    executor.shutdown()


def test_ranks_follow_hosts(monkeypatch):
    nodes = dict(enumerate("abacb"))
    monkeypatch.setattr(placement, "placement_group_table", lambda group: {"bundles_to_node_id": nodes})
    bundles = placement._by_rank(None, [1, 2, 1, 0, 1])
    assert [(found.number, found.node) for found in bundles] == [(0, "a"), (2, "a"), (1, "b"), (1, "b"), (4, "b")]


def test_room_in_a_bundle():
    assert placement.fitting({"CPU": 5, "GPU": 2}, {"CPU": 2, "GPU": 0}) == 2
    assert placement.fitting({"CPU": 5, "GPU": 1}, {"CPU": 1, "GPU": 1}) == 1
    assert placement.fitting({"CPU": 0.1}, {"CPU": 1, "GPU": 0}) == 0
    assert placement.fitting({"CPU": 0.6, "GPU": 0.7}, {"CPU": 0.2, "GPU": 0}) == 3
    assert placement.fitting({"CPU": 8, "GPU": 0.7}, {"CPU": 1, "GPU": 0.1}) == 7


def test_in_the_placement_group_of_the_caller():
    """As in a trial of Ray Tune. Beside the group there is no room for them."""

    def trial() -> list[float]:
        with pytest.raises(ValueError, match=r"has room for 3 workers of .*, and not for 4"):
            hvd.ray.RayExecutor(num_workers=4).start()
        executor = hvd.ray.RayExecutor(num_workers=2)
        executor.start()
        bundles = [found.number for found in executor._job._placement.bundles]
        results = executor.run(sum_of_ranks)
        executor.shutdown()
        return bundles + results

    group = ray.util.placement_group([{"CPU": 1}] * 3)
    assert group.wait(60)
    here = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, 0, True)
    run_trial = ray.remote(trial).options(num_cpus=1, scheduling_strategy=here)
    assert ray.get(run_trial.remote(), timeout=120) == [1, 2, 1.0, 1.0]
    ray.util.remove_placement_group(group)


# The rendezvous info of rank 0


def test_rendezvous_info_is_carried_and_forgotten():
    job = rendezvous_store.new_job()
    first, second = (rendezvous_store.place_in(job, rank, 2) for rank in range(2))
    for info in (b"one", b"two"):
        assert first.broadcast(info) == second.broadcast(None) == info
    first.forget()
    assert rendezvous_store.internal_kv._internal_kv_list(job.encode(), namespace=b"hvd") == [f"{job}/0".encode()]
    rendezvous_store.forget(job)
    assert not rendezvous_store.internal_kv._internal_kv_list(job.encode(), namespace=b"hvd")


def test_rendezvous_info_that_does_not_come(monkeypatch):
    monkeypatch.setenv("HVD_START_TIMEOUT", "0.1")
    job = rendezvous_store.new_job()
    with pytest.raises(InitError, match=r"rank 0 of 2 has not come to hvd.init\(\) within 0.1 s.*: rank 1"):
        rendezvous_store.place_in(job, 1, 2).broadcast(None)


# Horovod's names


def train_with_horovod(steps: int) -> tuple[int, bool]:
    import torch

    import horovod.torch as hvd
    from horovod.ray import ray_logger

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 2)).square().mean().backward()
        optimizer.step()
    weights = hvd.allgather(model.weight.detach())
    ray_logger.log({"rank": hvd.rank()})
    return hvd.rank(), bool((weights == weights[0]).all())


def test_a_program_for_horovod():
    from horovod.ray import RayExecutor
    from horovod.ray.strategy import create_placement_group

    settings = RayExecutor.create_settings(timeout_s=30)
    assert isinstance(settings, MiniSettings)
    group, bundles = create_placement_group({"CPU": 1}, 2, 30, "PACK")
    assert bundles == [{"CPU": 1}] * 2
    ray.util.remove_placement_group(group)
    executor = RayExecutor(settings, num_hosts=1, num_workers_per_host=2, cpus_per_worker=1, use_gpu=False)
    executor.start()
    logged: list[dict[str, int]] = []
    assert executor.run(train_with_horovod, kwargs={"steps": 3}, callbacks=[logged.append]) == [(0, True), (1, True)]
    assert sorted(each["rank"] for each in logged) == [0, 1]
    assert all(isinstance(name, str) for name in ray.get([each.hostname.remote() for each in executor.workers]))
    ray.get(executor.workers[0].update_env_vars.remote({"TEST": 5}))
    assert ray.get(executor.workers[0].env_vars.remote())["TEST"] == "5"
    executor.shutdown()

    class Mine(BaseHorovodWorker):
        pass

    assert Mine().hostname() == os.uname().nodename


def rendezvous_by_variables(coordinator: Coordinator) -> list[float]:
    """Makes ranks join as Ray's HorovodTrainer does."""
    actors = [ray.remote(BaseHorovodWorker).remote() for _ in range(2)]
    for rank, (hostname, node) in enumerate(
        zip(
            map_blocking(lambda actor: actor.hostname.remote(), actors),
            map_blocking(lambda actor: actor.node_id.remote(), actors),
        )
    ):
        coordinator.register(hostname, node, rank)
    shared = {**coordinator.establish_rendezvous(), **nics_to_env_var(detect_nics(coordinator.settings))}
    for rank, own in coordinator.finalize_registration().items():
        actors[rank].update_env_vars.remote({**own, **shared})
    sums = map_blocking(lambda actor: actor.execute.remote(lambda _: sum_of_ranks()), actors)
    for actor in actors:
        ray.kill(actor)
    return sums


def test_a_program_that_places_its_ranks_itself():
    assert rendezvous_by_variables(Coordinator(MiniSettings(timeout_s=60))) == [1.0, 1.0]
    coordinator = Coordinator(MiniSettings(nics=["eth1", "eth2"]))
    for rank, node in enumerate("aabac"):
        coordinator.register("host", node, rank)
    assert coordinator.node_id_string == "a:3,b:1,c:1" and coordinator.world_size == 5
    places = coordinator.finalize_registration()
    names = [f"HOROVOD_{name}" for name in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")]
    assert [[places[rank][name] for name in names] for rank in range(5)] == [
        *([0, 3, 0, 3], [1, 3, 0, 1], [0, 1, 1, 3], [2, 3, 0, 1], [0, 1, 2, 3])
    ]
    assert nics_to_env_var(detect_nics(coordinator.settings)) == {"NCCL_SOCKET_IFNAME": "eth1,eth2"}
    with pytest.raises(ValueError, match="rank 0 is to be on node a, which is none of"):
        coordinator.establish_rendezvous()


HOROVOD_TRAINER = """
import sys

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.horovod import HorovodTrainer

def train():
    import horovod.torch as hvd
    import torch

    hvd.init()
    ray.train.report({"sum": float(hvd.allreduce(torch.ones(1) * hvd.rank(), op=hvd.Sum)), "local": hvd.local_size()})

ray.init()
run, scaling = RunConfig(storage_path=sys.argv[1]), ScalingConfig(num_workers=2)
metrics = HorovodTrainer(train, scaling_config=scaling, run_config=run).fit().metrics
print("metrics:", metrics["sum"], metrics["local"])
"""


@pytest.mark.long
def test_rays_own_trainer_for_horovod(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    assert "metrics: 1.0 2" in run_program("-c", HOROVOD_TRAINER, str(tmp_path))


# Elastic jobs


def count_elastically(folder: Path) -> tuple[int, int, list[int]]:
    """Until there are two ranks again, after a kill. The ranks leave their pids."""
    from hvd import elastic

    hvd.init()
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, sizes=[])

    def loop(state: elastic.ObjectState) -> tuple[int, int, list[int]]:
        deadline = time.monotonic() + 240
        while state.sizes[-3:] != [2, 1, 2]:
            assert time.monotonic() < deadline, state.sizes
            if state.sizes[-1:] != [hvd.size()]:
                state.sizes = [*state.sizes, hvd.size()]
                if state.sizes[-2:] == [2, 1]:
                    log({"size": hvd.size()})
            state.commit()
            hvd.barrier()  # all have saved it
            (folder / f"pid.{hvd.rank()}.of.{hvd.size()}").write_text(str(os.getpid()))
            time.sleep(0.01)
        return hvd.rank(), hvd.size(), state.sizes

    return elastic.run_fn(loop, elastic.join_anew)(state)


def wait_for(path: Path) -> None:
    """Until the file is there, and something in it."""
    wait_until(lambda: path.exists() and path.read_text(), limit_s=200)


def kill_when_it_comes(path: Path) -> None:
    wait_for(path)
    os.kill(int(path.read_text()), signal.SIGKILL)


def test_an_elastic_executor_replaces_a_killed_rank(tmp_path, capfd):
    executor = hvd.ray.RayExecutor(min_workers=1, max_workers=2, cooldown_range=[0, 0])
    with pytest.raises(ValueError, match=r"call start\(\) before"):
        executor.run(count_elastically, [tmp_path])
    executor.start()
    with pytest.raises(NotImplementedError):
        executor.run_remote(count_elastically, [tmp_path])
    killer = threading.Thread(target=kill_when_it_comes, args=(tmp_path / "pid.1.of.2",))
    killer.start()
    got: list[dict[str, int]] = []
    results = executor.run(count_elastically, [tmp_path], callbacks=[got.append])
    killer.join()
    executor.shutdown()
    assert [(rank, size) for rank, size, _ in results] == [(0, 2), (1, 2)]
    assert results[0][2] == results[1][2] and {1, 2} == set(results[0][2])
    assert len(got) == 1 and "has failed: killed by SIGKILL" in capfd.readouterr().err


def test_elastic_settings_of_horovod():
    from horovod.ray import ElasticRayExecutor
    from horovod.ray.elastic import RayHostDiscovery

    class Nowhere(RayHostDiscovery):
        def find_available_hosts_and_slots(self) -> dict[str, int]:
            assert list(super().find_available_hosts_and_slots().values()) == [4]
            return {}

    settings = ElasticRayExecutor.create_settings(min_num_proc=1, max_num_proc=2, elastic_timeout=1)
    settings.discovery = Nowhere()
    executor = ElasticRayExecutor(settings, override_discovery=False, env_vars={"WORD": 1})
    executor.start()
    with pytest.raises(RankFailedError, match=r"elastic-timeout"):
        executor.run(os.getpid)
    with pytest.raises(ValueError, match=r"gpus_per_slot is 1 and use_gpu is False: give use_gpu=True"):
        ElasticRayExecutor(settings, gpus_per_slot=1)


def test_elastic_settings_that_horovod_does_not_have(recwarn):
    from horovod.ray import ElasticRayExecutor

    settings = ElasticRayExecutor.create_settings(cooldown_range=(1, 2), verbose=2, ssh_port=22)
    assert settings.cooldown_range == (1, 2) and not recwarn.list
    with pytest.warns(UserWarning, match="create_settings has no option reset_limits, which has no effect"):
        ElasticRayExecutor.create_settings(reset_limits=3)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Cluster:
    """What `elastic.Nodes` sees of Ray, by a table."""

    def __init__(self, monkeypatch, resources: dict[str, dict[str, float]]) -> None:
        from hvd.cluster import PlaceAddress
        from hvd.ray import elastic

        self.free = {name * 8: dict(amounts) for name, amounts in resources.items()}
        self.clock = Clock()
        self.ready: list[str] = []
        self.started: list[tuple[str, int]] = []
        nodes = [
            {"NodeID": name * 8, "NodeManagerAddress": name, "alive": True, "Resources": amounts}
            for name, amounts in resources.items()
        ]

        def start(_: elastic.Nodes, node: str, name: str, slots: int) -> elastic._Kept:
            self.started.append((name, slots))
            return elastic._Kept(node, PlaceAddress(name, "", slots), None, "listens", "ends", self.clock.now)

        for where, name, value in [
            *((elastic.ray, "nodes", lambda: nodes), (elastic.ray, "kill", lambda actor: None)),
            *((elastic.ray, "get", lambda answer: "127.0.0.1:1"), (elastic.Nodes, "_start", start)),
            *((elastic, "time", self.clock), (elastic, "_is_ready", self.ready.__contains__)),
            (ray._private.state, "available_resources_per_node", lambda: self.free),
        ]:
            monkeypatch.setattr(where, name, value)


def test_an_elastic_executor_takes_what_others_have_left(monkeypatch, capsys):
    from hvd.cluster import JobToken
    from hvd.ray import elastic

    cluster = Cluster(monkeypatch, {"a": {"CPU": 4}, "b": {"CPU": 4}})
    free, started, ready, clock = cluster.free, cluster.started, cluster.ready, cluster.clock
    free["bbbbbbbb"] = {"CPU": 1.0}
    found = elastic.Nodes(JobToken("", b""), {"CPU": 2, "GPU": 0}, None, None, 10)
    for _ in range(3):
        assert found.addresses() == []
        clock.now += elastic._SETTLE_S / 2
    assert started == [("a-aaaaaa", 2)]
    told = "waits for room on b-bbbbbb: 1 CPU, 0 GPU of 4 CPU, 0 GPU are free, and a rank needs 2 CPU, 0 GPU"
    assert capsys.readouterr().err == f"hvd.ray: {told}\n"
    free["bbbbbbbb"] = {"CPU": 3.0}
    found.addresses()
    assert len(started) == 1, "it may be more in a moment"
    clock.now += elastic._SETTLE_S
    found.addresses()
    assert started[1:] == [("b-bbbbbb", 1)]
    free["aaaaaaaa"] = {"CPU": 2.0}  # somebody was faster
    clock.now += 10
    found.addresses()
    assert "a-aaaaaa: no actor within 10 s" in capsys.readouterr().err
    for _ in range(2):
        clock.now += elastic._SETTLE_S
        found.addresses()
    assert sorted(started[2:]) == [("a-aaaaaa", 1), ("b-bbbbbb", 1)]
    clock.now += elastic._SETTLE_S
    found.addresses()
    assert len(started) == 4, "what starts may not have taken its room yet"
    ready.append("listens")
    assert [place.name for place in found.addresses()] == ["a-aaaaaa", "b-bbbbbb"]
    assert started[4:] == [("a-aaaaaa-2", 1), ("b-bbbbbb-2", 1)]
    monkeypatch.delattr(ray._private.state, "available_resources_per_node")
    with pytest.raises(RuntimeError, match=r"which Ray \d.* does not have: use the Ray that docs/ray.md names"):
        elastic.Nodes(JobToken("", b""), {"CPU": 2, "GPU": 0}, None, None, 10)


def test_an_actor_takes_no_slots_of_which_ray_cannot_grant_the_gpus(monkeypatch):
    from hvd.cluster import JobToken
    from hvd.ray import elastic

    cluster = Cluster(monkeypatch, {"a": {"CPU": 4, "GPU": 2}})
    cluster.ready.append("listens")
    found = elastic.Nodes(JobToken("", b""), {"CPU": 1, "GPU": 0.5}, 3, None, 10)
    for _ in range(3):
        found.addresses()
    assert cluster.started == [("a-aaaaaa", 2), ("a-aaaaaa-2", 1)], "1.5 GPUs are refused"


def local_rank_and_gpus() -> tuple[int, str]:
    hvd.init()
    return hvd.local_rank(), os.environ["CUDA_VISIBLE_DEVICES"]


def test_local_ranks_count_among_the_gpus_of_their_place(monkeypatch):
    """Two places on a node, as where a GPU became free after the job had begun."""
    from hvd.cluster import PlaceAddress, PlacesJob
    from hvd.ray import elastic

    job = PlacesJob(local_rank_and_gpus)
    monkeypatch.setenv("HVD_HOST_ID", "")  # each actor, which otherwise has a process of its own, sets it
    actors = []
    for gpu in range(2):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(gpu))
        actors.append(elastic.PlaceActor(job.token, is_host=True))

    class Places:
        def addresses(self) -> list[PlaceAddress]:
            return [PlaceAddress(f"node-{number}", actor.address()) for number, actor in enumerate(actors)]

        def ends(self) -> list[dict[str, bytes]]:
            return [actor.ends() for actor in actors]

    try:
        assert job.run(2, Places(), min_np=2, start_timeout=200) == [(0, "0"), (0, "1")]
    finally:
        for actor in actors:
            actor.close()


class Discovery:
    def __init__(self) -> None:
        self.slots: dict[str, int] = {}

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return self.slots


def test_hosts_of_a_discovery_are_nodes_by_any_of_their_names(monkeypatch):
    from hvd.cluster import JobToken
    from hvd.ray import elastic

    cluster = Cluster(monkeypatch, {"a": {"CPU": 8, "node:a": 1, "node:fast": 1, "node:big": 1}, "b": {"CPU": 8}})
    discovery = Discovery()
    found = elastic.Nodes(JobToken("", b""), {"CPU": 2, "GPU": 0}, 3, discovery, 10)

    def usable(**slots: int) -> list[tuple[str, int]]:
        discovery.slots = slots
        return [(place.name, place.slots) for place in found.addresses()]

    assert usable(fast=1, big=1, elsewhere=3, a=0) == []
    assert cluster.started == [("a-aaaaaa", 2)]
    cluster.ready.append("listens")
    assert usable(fast=1, big=1) == usable(a=2) == [("a-aaaaaa", 2)]
    # What has left the discovery counts no more towards max_workers.
    assert usable(big=1, b=4) == [("a-aaaaaa", 1)]
    assert cluster.started[1:] == [("b-bbbbbb", 2)]
    assert usable(big=1, b=4) == [("a-aaaaaa", 1), ("b-bbbbbb", 2)]
    assert usable(b=4) == [("b-bbbbbb", 2)]
    assert cluster.started[2:] == [("b-bbbbbb-2", 1)]


# Ray Train


def train_with_ray(config: dict[str, str]) -> None:
    """Trains two epochs; fails once, after the first."""
    from ray import train

    hvd.init()
    context = train.get_context()
    assert (hvd.rank(), hvd.size()) == (context.get_world_rank(), context.get_world_size())
    checkpoint, begin = train.get_checkpoint(), 0
    if checkpoint:
        begin = json.loads(Path(checkpoint.path, "epoch.json").read_text()) + 1
    for epoch in range(begin, 2):
        total = sum_of_ranks()
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch.json").write_text(str(epoch))
            kept = train.Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
            train.report({"total": total, "begin": begin}, checkpoint=kept)
        if not checkpoint and hvd.rank() == 1:
            wait_for(Path(config["registered"]))  # Ray asks its workers for reports now and then
            raise KeyError("no such sample")
        try:
            hvd.barrier()
        except HorovodInternalError as error:
            Path(config["cause"]).write_text(str(error))
            raise


def test_a_trainer_goes_on_after_a_failure_with_its_checkpoint(tmp_path):
    from ray import train
    from ray.train.v2.jax import JaxTrainer

    registered = tmp_path / "sum" / "checkpoint_manager_snapshot.json"
    trainer = JaxTrainer(
        train_with_ray,
        train_loop_config={"cause": str(tmp_path / "cause"), "registered": str(registered)},
        jax_config=hvd.ray.HvdConfig(timeout_s=60),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="sum", storage_path=str(tmp_path), failure_config=train.FailureConfig(max_failures=1)
        ),
    )
    assert trainer.fit().metrics == {"total": 1.0, "begin": 1}
    assert re.search(r"rank 1 on .* raised KeyError: 'no such sample'", (tmp_path / "cause").read_text())


def sum_with_tensorflow() -> tuple[float, int]:
    import tensorflow as tf

    import hvd.tensorflow as hvd

    hvd.init()
    return float(hvd.allreduce(tf.fill([3], float(hvd.rank())), op=hvd.Sum)[0]), hvd.size()


def sum_with_jax() -> tuple[float, int]:
    import jax.numpy as jnp

    import hvd.jax as hvd

    hvd.init()
    return float(hvd.allreduce(jnp.full(3, hvd.rank(), float), op=hvd.Sum)[0]), hvd.size()


@pytest.mark.long
@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_trainers_of_frameworks(framework, tmp_path):
    from ray import train

    common = {
        "scaling_config": train.ScalingConfig(num_workers=2),
        "run_config": train.RunConfig(storage_path=str(tmp_path)),
    }
    config = hvd.ray.HvdConfig(timeout_s=60)
    if framework == "jax":
        from ray.train.v2.jax import JaxTrainer

        trainer = JaxTrainer(sum_with_jax, jax_config=config, **common)
    else:
        from ray.train.tensorflow import TensorflowTrainer

        trainer = TensorflowTrainer(sum_with_tensorflow, tensorflow_config=config, **common)
    assert trainer.fit().return_value == (1.0, 2)


# What is written down elsewhere


def run_program(*arguments: str) -> str:
    """A driver of its own, on this cluster."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["RayExecutor(", pytest.param("TorchTrainer(", marks=pytest.mark.long)])
def test_the_jobs_of_the_page(name):
    page = (ROOT / "docs" / "ray.md").read_text()
    jobs = re.findall(r"```python\n((?:(?!```).)*)```\n\n```\n(.*?)```", page, re.DOTALL)
    code, output = next(job for job in jobs if name in job[0])
    assert run_program("-c", code).endswith(output)


@pytest.mark.long
def test_the_example_of_a_sweep():
    written = run_program(str(ROOT / "examples" / "ray" / "sweep.py"), "--rates", "0.001", "0.3")
    accuracies = [float(found) for found in re.findall(r"rate \S+: accuracy ([\d.]+)%", written)]
    assert len(accuracies) == 2 and accuracies[0] < accuracies[1] and "best: 0.3" in written


# Calls on actors that already run


class Model:
    def __init__(self, factor: int, offset: int = 0) -> None:
        hvd.init()
        self.value = hvd.rank() * factor + offset


def place() -> tuple[int, int, int, str, str]:
    hvd.init()
    return hvd.rank(), hvd.size(), hvd.local_rank(), os.environ["HOROVOD_RANK"], os.environ["WORD"]


def join_twice() -> list[float]:
    first = sum_of_ranks()
    hvd.shutdown()
    return [first, sum_of_ranks()]


def fail(how: str) -> None:
    hvd.init()
    if hvd.rank() == 1:
        if how == "raise":
            raise KeyError("no such sample")
        if how == "exit":
            sys.exit(3)
        os.kill(os.getpid(), 9)
    hvd.allreduce(np.zeros(1), name="for ever")


def test_ranks_stay_in_their_job_over_calls(executor):
    assert executor.execute(lambda model: model.value) == [1, 11, 21]
    assert executor.run(place) == [(rank, SIZE, rank, str(rank), "7") for rank in range(SIZE)]
    assert executor.run(sum_of_ranks, [2], {}) == [6.0] * SIZE
    assert ray.get(executor.run_remote(sum_of_ranks, kwargs={"factor": 3})) == [9.0] * SIZE
    assert executor.execute_single(lambda model: (model.value, hvd.size())) == (1, SIZE)
    assert executor.run(join_twice) == [[3.0, 3.0]] * SIZE


def test_each_rank_sees_the_gpus_of_its_host(executor):
    seen = executor.execute(lambda _: os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    assert seen[0] == seen[1] == seen[2] and sorted(seen[0]) == [str(gpu) for gpu in range(GPUS)]


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_rank_that_fails_is_named_and_the_executor_goes_on(executor, how):
    with pytest.raises((KeyError, RankFailedError)) as found:
        executor.run(fail, [how])
    report = found.value if how == "exit" else found.value.__cause__
    assert type(found.value) is (RankFailedError if how == "exit" else KeyError)
    assert isinstance(report, RankFailedError) and report.rank == 1
    assert "rank 1 of 3 failed" in str(report) and "in fail" in str(report)
    assert executor.run(sum_of_ranks) == [3.0] * SIZE


def test_ranks_do_not_wait_for_one_that_fails_before_it_joins(executor):
    def fail_on_first() -> None:
        rank = place()[0]
        hvd.shutdown()
        if rank == 0:
            raise KeyError("no such sample")
        hvd.init()

    with pytest.raises(KeyError, match="no such sample"):
        executor.run(fail_on_first)
    assert executor.run(sum_of_ranks) == [3.0] * SIZE


def test_a_result_that_cannot_be_pickled(executor):
    """The driver, a rank of another job, is not affected by the failure."""
    hvd.init()
    with pytest.raises(TypeError, match="pickle") as found:
        executor.run(lambda: threading.Lock() if place()[0] == 1 else None)
    assert "rank 1 of 3 failed" in str(found.value.__cause__)
    assert sum_of_ranks() == 0
    hvd.shutdown()
    assert executor.run(sum_of_ranks) == [3.0] * SIZE


def test_whoever_awaits_the_ranks_by_ray_learns_the_cause_from_each(executor):
    answers = executor.run_remote(fail, ["raise"])
    with pytest.raises(KeyError, match="no such sample"):
        ray.get(answers[1])
    with pytest.raises(
        HorovodInternalError, match=r"rank 1 on .* raised KeyError: 'no such sample' \(test_ray.py:\d+\)"
    ):
        ray.get(answers[0])
    with pytest.raises(Exception, match="no such sample"):
        executor.run(fail, ["raise"])  # from now on the executor knows
    assert executor.run(sum_of_ranks) == [3.0] * SIZE


def test_callbacks_get_what_ranks_log(executor):
    def report() -> None:
        hvd.init()
        log({"from": hvd.rank()})
        log({"of all": hvd.rank()}, chief_only=False)

    got: list[dict[str, int]] = []
    executor.run(report, callbacks=[got.append])
    assert sorted(got, key=str) == [{"from": 0}] + [{"of all": rank} for rank in range(SIZE)]
    with pytest.warns(UserWarning, match="no callbacks"):
        log({})


def test_an_inbox_is_forgotten_with_its_call():
    worker, inbox = Worker(0, 1, "", {}), object()
    assert worker.attempt("execute", lambda _: messages._found_inbox() is inbox, inbox=inbox) == (True, None)
    with pytest.warns(UserWarning, match="no callbacks"):
        worker.execute(lambda _: log({"step": 1}))  # by Ray itself


def test_a_killed_actor_is_named(executor):
    with pytest.raises(RankFailedError, match=r"rank 1 of 3 has died \(pid: \d+, ip: .*\): .*exit") as found:
        executor.run(fail, ["kill"])
    assert found.value.rank == 1
    with pytest.raises(ValueError, match=r"^rank 1 has died .*: call shutdown\(\) and start\(\)"):
        executor.run(sum_of_ranks)
    with pytest.raises(ValueError, match="started already"):
        executor.start()


def test_ranks_that_do_not_notice_are_killed(executor, monkeypatch):
    monkeypatch.setattr(hvd.ray.actors, "_GRACE_S", 0.5)
    assert executor.run(sum_of_ranks) == [3.0] * SIZE

    def sleep_but_on_one() -> None:
        if place()[0] == 1:
            raise KeyError("no such sample")
        time.sleep(60)

    with pytest.raises(KeyError, match="no such sample"):
        executor.run(sleep_but_on_one)
    with pytest.raises(ValueError, match="rank 0 had not returned, and was killed; rank 2 had"):
        executor.run(sum_of_ranks)
