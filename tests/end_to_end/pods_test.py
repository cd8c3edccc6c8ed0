"""Jobs in pods: an elastic one that watches and asks for them, and one whose ranks find each other without hvdrun.

The API server is a stand-in (kubernetes_api.py), and pods are processes at loopback addresses of their own.
"""

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time

import pytest
from elastic_test import JOB, check_no_step_is_lost, done
from listening_agents import Agents, Running

from kubernetes_api import KubernetesApi
from ports import free_ports

TEXT = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 300}


class Pods:
    """The Job controller and the kubelet: keeps as many pods as the Job wants, each an agent."""

    def __init__(self, api, agents):
        self.api, self.agents = api, agents
        (self.port,) = free_ports(1)
        self.started = 0

    def start(self):
        name, address = f"workers-{self.started}", f"127.0.0.{self.started + 2}"
        self.agents.start(name, place=f"{address}:{self.port}")
        self.api.add_pod(name, address, index=self.started)
        self.started += 1
        return name

    def await_scale(self, pods):
        with self.api.changed:
            spec = lambda: self.api.jobs["workers"]["spec"]  # noqa: E731
            assert self.api.changed.wait_for(lambda: spec()["parallelism"] == spec()["completions"] == pods, 30)


@pytest.fixture
def api(tmp_path):
    server = KubernetesApi(tmp_path / "account")
    yield server
    server.close()


@pytest.fixture
def agents(tmp_path):
    agents = Agents(tmp_path)
    yield agents
    agents.close()


def test_an_elastic_job_watches_and_asks_for_pods(api, agents, tmp_path):
    api.add_job("workers", parallelism=1)
    pods = Pods(api, agents)
    cluster = ["--cluster", "kubernetes", "--pod-selector", "job-name=workers", "--agent-port", str(pods.port)]
    ranks = ["-np", "1", "--min-np", "1", "--max-np", "3"]
    variables = ["-x", "PYTHONUNBUFFERED=", "-x", f"ENOUGH={tmp_path / 'enough'}"]
    command = ["hvdrun", *cluster, *ranks, *variables, sys.executable, str(JOB), "10000"]
    job = Running(command, agents.environment(**api.environment()))
    pods.await_scale(3)
    for _ in range(2):
        pods.start()
    job.await_text(r"step \d+ rank 1 of 2\n")
    api.end_watches()
    api.compact()  # the next watch hears that its version has expired
    first, second, third = "workers-0", "workers-1", pods.start()
    job.await_text(r"step \d+ rank 2 of 3\n")

    api.delete_pod(third)  # it is told first, and the pod's processes get SIGTERM
    code, said = agents.end(third)
    assert code == 128 + signal.SIGTERM, said
    job.await_text(r"epoch \d with 2 ranks, .*left: process \d")
    api.remove_pod(third)

    api.drain(second)  # the condition comes before SIGTERM
    job.await_text(r"epoch \d with 1 rank, .*left: process \d")
    agents.end(second)
    api.delete_pod(second)
    api.remove_pod(second)
    job.await_text(rf"hvdrun: host {second} is lost, and had no ranks: it was preempted\n")
    assert "failed" not in job.text, job.text
    (tmp_path / "enough").touch()
    assert job.finish() == 0, job.text
    check_no_step_is_lost(job.text)
    assert len(done(job.text)) == 1, job.text
    assert api.jobs["workers"]["spec"]["suspend"], "the pods are not needed any more"
    assert agents.processes[first].poll() is None, "it could serve another hvdrun"


def test_errors_of_the_cluster_options(api, agents):
    for options, told in [
        (["--cluster", "mesos", "--pod-selector", "a=b"], "--cluster mesos: only kubernetes is supported"),
        (["--cluster", "kubernetes"], "which pods? --pod-selector"),
        (["--pod-selector", "a=b"], "--pod-selector needs --cluster kubernetes"),
        (["--cluster", "kubernetes", "--pod-selector", "a=b"], "--agent-port PORT"),
        (
            ["--cluster", "kubernetes", "--pod-selector", "a=b", "--agent-port", "1", "--host-discovery-script", "x"],
            "leave out the options that name them",
        ),
    ]:
        ended = subprocess.run(["hvdrun", *options, "true"], **TEXT)
        assert ended.returncode == 2 and told in ended.stderr, ended.stderr
    api.forbidden = {"GET"}
    command = ["hvdrun", "--cluster", "kubernetes", "--pod-selector", "a=b", "--agent-port", "1", "-np", "1"]
    ended = subprocess.run(
        [*command, "--elastic-timeout", "20", "true"], env=agents.environment(**api.environment()), **TEXT
    )
    assert ended.returncode == 1 and "hvd pods: 403: User" in ended.stderr, ended.stderr


# --- pods of a Job, without hvdrun ---

RANK = """
import hvd, numpy
hvd.init()
print("sum", hvd.allreduce(numpy.ones(2), op=hvd.Sum)[0], "as", hvd.rank(), "of", hvd.size())
hvd.shutdown()
hvd.init()
print("again", hvd.allreduce(numpy.ones(2), op=hvd.Sum)[0])
"""
SERVED = "import hvd; hvd.init(); servers = hvd.ps.connect(); hvd.barrier(); servers.close(); print('rank', hvd.rank())"


def run_pods(*variables, place, program=RANK):
    """By pod: its exit code and output."""
    results = [None] * len(variables)

    def run(pod, variables):
        environment = {**os.environ, "HVD_SIZE": "2", "HVD_RENDEZVOUS": place, **variables}
        ended = subprocess.run([sys.executable, "-c", program], env=environment, **TEXT)
        results[pod] = (ended.returncode, ended.stdout + ended.stderr)

    threads = [threading.Thread(target=run, args=entry) for entry in enumerate(variables)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_ranks_find_each_other_by_a_name():
    (port,) = free_ports(1)
    key = {"HVD_JOB_KEY": secrets.token_hex(32)}
    for code, output in run_pods(*({"HVD_RANK": str(rank), **key} for rank in range(2)), place=f"localhost:{port}"):
        assert code == 0 and re.search(r"sum 2.0 as \d of 2\nagain 2.0\n", output), output
    servers = {"HVD_SERVERS": "1", **key}
    pods = [{"HVD_RANK": "0", **servers}, {"HVD_RANK": "1", **servers}, {"HVD_SERVER": "0", **servers}]
    results = run_pods(*pods, place=f"localhost:{port}", program=SERVED)
    assert [(code, output.strip()) for code, output in results] == [(0, "rank 0"), (0, "rank 1"), (0, "")], results
    began = time.monotonic()
    absent = {"HVD_RANK": "1", "HVD_START_TIMEOUT": "2", **key}
    ((code, output),) = run_pods(absent, place="train-0.train.invalid:7777")
    assert code == 1 and "train-0.train.invalid" in output and time.monotonic() - began > 2, output
    ((code, output),) = run_pods({"HVD_RANK": "0"}, place="localhost:7777")
    assert code == 1 and "in Kubernetes, from a Secret" in output, output
    ((code, output),) = run_pods({"HVD_RANK": "0", **key}, place="localhost")
    assert code == 1 and "HVD_RENDEZVOUS='localhost' is not HOST:PORT" in output, output
