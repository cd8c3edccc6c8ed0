"""`hvd pods` against a stand-in for Kubernetes' API server: the hosts that hvdrun is told, and the pods it asks for."""

import contextlib
import io
import itertools
import socket
import sys
import threading
import time
import traceback

import pytest

from hvd.tools import kubernetes, pods
from kubernetes_api import KubernetesApi

TIMEOUT_S = 120


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = KubernetesApi(tmp_path / "account")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pods, "FIRST_PAUSE_S", 0.01)
    yield server
    server.close()


class Watching:
    """pods.Watch in a thread of its own, and what it has found."""

    def __init__(self, selector="job-name=workers"):
        self.found, self.said = [], []
        self.changed = threading.Condition()
        self.watch = pods.Watch(kubernetes.Api(), selector, self.take, self.say)
        self.thread = threading.Thread(target=self.watch.run, daemon=True)
        self.thread.start()

    def take(self, found):
        names = sorted(pod["metadata"]["name"] for pod in found if pods.usable(pod))
        with self.changed:
            self.found.append(names)
            self.changed.notify_all()

    def say(self, text):
        with self.changed:
            self.said.append(text)
            self.changed.notify_all()

    def await_(self, *names, said="", version=0):
        """The pods that are usable, part of what has been said, and the least version that is known."""

        def reached():
            is_said = any(said in text for text in self.said or [""])
            return self.found[-1:] == [list(names)] and is_said and int(self.watch._version) >= version

        with self.changed:
            seen = self.changed.wait_for(reached, TIMEOUT_S)
            assert seen, (names, self.found, self.said, self.watch._version, *self.stack())

    def stack(self):
        frame = sys._current_frames().get(self.thread.ident)
        return traceback.format_stack(frame) if frame else ["its thread has ended"]


def test_pods_come_and_go(api):
    api.add_pod("w0", "10.0.0.1")
    api.add_pod("other", "10.0.0.9", job="others")
    watching = Watching()
    watching.await_("w0")
    api.add_pod("w1", None, phase="Pending")
    api.add_pod("others", "10.0.0.8", job="others")
    watching.await_("w0")
    api.change_pod("w1", phase="Running")
    watching.await_("w0")  # it has no address yet
    api.change_pod("w1", podIP="10.0.0.2")
    watching.await_("w0", "w1")
    api.drain("w0")
    watching.await_("w1")
    api.remove_pod("w0")
    api.delete_pod("w1")
    watching.await_()
    api.remove_pod("w1")
    api.add_pod("w2", "10.0.0.3")
    watching.await_("w2")
    api.change_pod("w2", phase="Failed")
    watching.await_()
    assert not watching.said and sum(path.endswith("/pods") for _, path, _ in api.requests) == 2


@pytest.mark.parametrize("by_event", [False, True])
def test_a_version_that_has_expired(api, by_event):
    api.gone_by_event = by_event
    api.add_pod("w0", "10.0.0.1")
    watching = Watching()
    watching.await_("w0")
    api.end_watches()
    api.add_pod("w1", "10.0.0.2")
    api.compact()  # the event is gone, too
    watching.await_("w0", "w1")
    assert not watching.said


def test_bookmarks_keep_the_version_young(api):
    watching = Watching()
    watching.await_()
    for _ in range(20):
        api.add_pod("other", "10.0.0.9", job="others")  # versions that this watch does not see
    watching.await_(version=120)
    api.end_watches()
    with api.changed:
        assert api.changed.wait_for(lambda: len(versions_of_watches(api)) > 1, TIMEOUT_S)
    first, second = versions_of_watches(api)
    assert second >= 120 > first


def versions_of_watches(api):
    return [int(query["resourceVersion"]) for _, _, query in api.requests if "watch" in query]


def test_what_fails_is_tried_again_and_said_once(api):
    api.failures = [500, 500, 429]
    api.add_pod("w0", "10.0.0.1")
    began = time.monotonic()
    watching = Watching()
    watching.await_("w0", said="500: the server is not in the mood")
    assert time.monotonic() - began > 1, "429 asks for a second"
    assert [text[:3] for text in watching.said] == ["500", "429"]
    api.end_watches()
    api.rotate_token("second")  # the file and the server change together; the old one is refused
    api.add_pod("w1", "10.0.0.2")
    watching.await_("w0", "w1", said="429")
    api.forbidden = {"GET"}
    api.end_watches()
    watching.await_("w0", "w1", said="403: User")
    api.forbidden = set()
    api.add_pod("w2", "10.0.0.3")
    watching.await_("w0", "w1", "w2", said="403")


def listed(text):
    return [block.split() for block in text.split("---\n")[:-1]]


def test_what_hvdrun_is_told(api, tmp_path):
    hosts = pods.Hosts(7780, None, tmp_path / "addresses")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        api.add_pod("w-b", "10.0.0.2", index=1, gpus=4)
        api.add_pod("w-a", "fd00::1", index=10)
        api.add_pod("w-c", "10.0.0.3", index=0)
        for _ in range(2):
            hosts.take(api.pods.values())
        for name in ("w-a", "w-b", "w-c"):
            api.delete_pod(name)
        hosts.take(api.pods.values())
    assert listed(output.getvalue()) == [["w-c:1", "w-b:4", "w-a:1"], []]
    assert (tmp_path / "addresses").read_text() == ""
    with contextlib.redirect_stdout(output):
        api.add_pod("w-d", "fd00::2")
        pods.Hosts(7780, 2, tmp_path / "addresses").take(api.pods.values())
    assert listed(output.getvalue())[-1] == ["w-d:2"]
    assert (tmp_path / "addresses").read_text() == "w-d [fd00::2]:7780\n"


def test_pods_are_asked_for(api):
    said = []
    api.add_job("workers", parallelism=1)
    api.add_job("driver", parallelism=1)
    api.add_pod(socket.gethostname(), "10.0.0.9", job="driver")  # hvdrun's own, which the selector names as well
    api.add_pod("w0", "10.0.0.1")
    workers = pods.Workers(kubernetes.Api(), "", 5, 2, said.append)
    workers.take([])
    assert api.jobs["workers"]["spec"]["parallelism"] == 1, "its name is not known yet"
    workers.take(api.pods.values())
    assert [api.jobs["workers"]["spec"][name] for name in ("parallelism", "completions")] == [3, 3]
    assert api.jobs["driver"]["spec"]["parallelism"] == 1
    workers.end()
    assert api.jobs["workers"]["spec"]["suspend"]
    pods.Workers(kubernetes.Api(), "workers", 2, None, said.append).take([])
    spec = api.jobs["workers"]["spec"]
    assert (spec["parallelism"], spec["suspend"]) == (3, False), "never fewer, and it runs again"
    assert not said
    api.add_job("plain", mode="NonIndexed")
    pods.Workers(kubernetes.Api(), "plain", 4, None, said.append).take([])
    assert "Job plain cannot be changed" in said[-1] and "field is immutable" in said[-1]
    pods.Workers(kubernetes.Api(), "missing", 4, None, said.append).take([])
    assert "Job missing cannot be read" in said[-1]
    api.forbidden = {"PATCH"}
    pods.Workers(kubernetes.Api(), "workers", 9, None, said.append).take([])
    assert "403: User" in said[-1]


def test_a_file_that_cannot_be_written_is_written_later(api, tmp_path, capsys):
    addresses, said = tmp_path / "later" / "addresses", []
    hosts = pods.Hosts(7780, None, addresses)
    tries = []

    def take(found):
        tries.append(None)
        if len(tries) == 2:
            addresses.parent.mkdir()
        hosts.take(found)

    watch = pods.Watch(kubernetes.Api(), "job-name=workers", take, said.append)
    api.add_pod("w0", "10.0.0.1")
    threading.Thread(target=watch.run, daemon=True).start()
    deadline = time.monotonic() + 20
    while not addresses.exists() and time.monotonic() < deadline:  # bookmarks come
        time.sleep(0.01)
    assert addresses.read_text() == "w0 10.0.0.1:7780\n"
    assert len(said) == 1 and "hvdrun is not told of the pods" in said[0]
    watching = Watching()
    watching.await_("w0")  # the server has gone on
    assert listed(capsys.readouterr().out) == [["w0:1"]]


@pytest.mark.parametrize("error", [KeyError("metadata"), SystemExit(0)])
def test_pods_go_when_hvdrun_has_ended_and_not_when_its_script_fails(api, tmp_path, monkeypatch, error):
    takes = itertools.count()

    def take(self, found):
        if next(takes) > 0:  # the Job was asked for pods
            raise error

    api.add_job("workers", parallelism=1)
    monkeypatch.setattr(pods.Hosts, "take", take)
    monkeypatch.setattr(pods.signal, "signal", lambda *_: None)  # keep this process's handlers
    command = ["--selector", "job-name=workers", "--port", "7780", "--max-np", "1", "--addresses", str(tmp_path / "f")]
    fails = isinstance(error, KeyError)
    with pytest.raises(KeyError) if fails else contextlib.nullcontext():
        assert pods.main(command) == 0
    assert api.jobs["workers"]["spec"].get("suspend", False) is not fails


def test_outside_of_a_pod(monkeypatch, tmp_path, capsys):
    command = ["--selector", "a=b", "--port", "7780", "--addresses", str(tmp_path / "f")]
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert pods.main(command) == 1 and "run this in a pod" in capsys.readouterr().err
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setenv("HVD_KUBERNETES_ACCOUNT", str(tmp_path))
    assert pods.main(command) == 1 and "automountServiceAccountToken" in capsys.readouterr().err


def test_an_unknown_certificate_is_refused(api, tmp_path, monkeypatch):
    other = KubernetesApi(tmp_path / "other")
    monkeypatch.setenv("HVD_KUBERNETES_ACCOUNT", str(other.folder))
    with pytest.raises(kubernetes.ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        kubernetes.Api().pods("a=b")
    other.close()
    assert not api.requests


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("job-name=w", "w"),
        ("a=b,batch.kubernetes.io/job-name==w-1,c", "w-1"),
        ("job-name!=w", None),
        ("x-job-name=w", None),
    ],
)
def test_the_job_in_a_selector(selector, name):
    found = pods.JOB_LABEL.search(selector)
    assert (found[1] if found else None) == name
