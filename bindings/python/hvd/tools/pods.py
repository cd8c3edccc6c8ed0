"""`hvd pods`: names the pods that an elastic job may use, whenever they change.

`hvdrun --cluster kubernetes` runs it as its host discovery script, which stays: it writes where the agents of the pods
listen to a file, prints a line `POD:SLOTS` for each of them, and `---` behind each list. With --max-np it asks the Job
that the pods belong to for as many pods, and suspends it when hvdrun ends.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from hvd.tools.kubernetes import Api, ApiError, Object

GONE = 410  # the version from which a watch was to go on is too old
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 30.0
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_LABEL = re.compile(r"(?:^|,)(?:batch\.kubernetes\.io/)?job-name==?([^,!=]+)(?:,|$)")


def usable(pod: Object) -> bool:
    """Whether ranks may run there: it runs, has an address, and nothing announces its end."""
    status = pod.get("status", {})
    ends = pod["metadata"].get("deletionTimestamp") or any(
        condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )
    return status.get("phase") == "Running" and bool(status.get("podIP")) and not ends


def slots_of(pod: Object) -> int:
    """Its GPUs; 1 if it has none."""
    limits = [container.get("resources", {}).get("limits") or {} for container in pod["spec"]["containers"]]
    return max(1, sum(int(n) for limit in limits for name, n in limit.items() if name.endswith("/gpu")))


def place_of(pod: Object) -> tuple[int, str]:
    """By what pods are sorted: the index in their Job, and the name."""
    index = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return (int(index) if index.isdigit() else sys.maxsize, pod["metadata"]["name"])


class Watch:
    """Keeps a list of pods as the API server has it.

    Args:
        api: The server.
        selector: Labels of the pods.
        changed: Called with the pods at first, after each change, and once in a while; again if it has raised OSError.
        say: Called with a line about what has failed, once for each cause.
    """

    def __init__(
        self, api: Api, selector: str, changed: Callable[[Iterable[Object]], None], say: Callable[[str], None]
    ) -> None:
        self._api = api
        self._selector = selector
        self._changed = changed
        self._say = say
        self._pods: dict[str, Object] = {}
        self._version = ""  # empty: they must be listed
        self._said = ""
        self._pause = FIRST_PAUSE_S

    def run(self) -> None:
        """Never returns. After each end of a watch there is a pause, which grows until an event comes."""
        while True:
            wait = 0.0
            try:
                if not self._version:
                    self._list()
                for event in self._api.watch_pods(self._selector, self._version):
                    self._take(event)
            except ApiError as error:
                wait = error.retry_after
                if error.code == GONE:
                    self._version = ""
                else:
                    self._complain(str(error))
            except BrokenPipeError:  # hvdrun is gone
                raise
            except OSError as error:  # `changed` writes files
                self._complain(f"hvdrun is not told of the pods: {error}")
            time.sleep(max(self._pause, wait))
            self._pause = min(2 * self._pause, LAST_PAUSE_S)

    def _list(self) -> None:
        pods, self._version = self._api.pods(self._selector)
        self._pods = {pod["metadata"]["uid"]: pod for pod in pods}
        self._said = ""
        self._changed(self._pods.values())

    def _take(self, event: Object) -> None:
        pod = event["object"]
        self._version = pod["metadata"]["resourceVersion"]
        self._said = ""
        self._pause = FIRST_PAUSE_S
        if event["type"] == "DELETED":
            self._pods.pop(pod["metadata"]["uid"], None)
        elif event["type"] != "BOOKMARK":  # which comes once a minute: what has failed is tried again then
            self._pods[pod["metadata"]["uid"]] = pod
        self._changed(self._pods.values())

    def _complain(self, text: str) -> None:
        if text != self._said:
            self._say(text)
        self._said = text


class Hosts:
    """What hvdrun is told of the pods: only if it has changed."""

    def __init__(self, port: int, slots: int | None, addresses: Path) -> None:
        self._port = port
        self._slots = slots
        self._addresses = addresses
        self._last: list[str] | None = None

    def take(self, pods: Iterable[Object]) -> None:
        """Writes the file of addresses first: hvdrun reads it as soon as it has the list. Raises
        OSError if hvdrun could not be told."""
        found = sorted(filter(usable, _without_own(pods)), key=place_of)
        places = [(pod["metadata"]["name"], _bracketed(pod["status"]["podIP"]), slots_of(pod)) for pod in found]
        text = "".join(f"{name} {address}:{self._port}\n" for name, address, _ in places)
        lines = [f"{name}:{self._slots or slots}" for name, _, slots in places]
        if self._last == [*lines, text]:
            return
        new = self._addresses.with_name(f"{self._addresses.name}.new")
        new.write_text(text)
        new.rename(self._addresses)
        print(*lines, "---", sep="\n", flush=True)
        self._last = [*lines, text]


def _without_own(pods: Iterable[Object]) -> list[Object]:
    """Without hvdrun's pod, in which no rank runs, and whose Job is not that of the workers."""
    own = socket.gethostname()
    return [pod for pod in pods if pod["metadata"]["name"] != own]


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class Workers:
    """The Job that the pods belong to, which is asked for as many pods as the job may use.

    Args:
        api: The server.
        name: Of the Job; empty: it is known by its first pod.
        most: Ranks that the job may have.
        slots: Of each pod; None: its GPUs, or 1.
        say: Called with a line about what has failed.
    """

    def __init__(self, api: Api, name: str, most: int, slots: int | None, say: Callable[[str], None]) -> None:
        self._api = api
        self._name = name
        self._most = most
        self._slots = slots
        self._say = say
        self._asked = False
        self._said = ""

    def take(self, pods: Iterable[Object]) -> None:
        """Asks until the server has agreed once. Pods for which there is no room yet come when there is."""
        if self._asked:
            return
        for pod in _without_own(pods):
            owners = pod["metadata"].get("ownerReferences") or ()
            self._name = self._name or next((owner["name"] for owner in owners if owner["kind"] == "Job"), "")
        if self._name:
            self._asked = self._ask()

    def end(self) -> None:
        """hvdrun has ended: its pods are not needed any more."""
        if self._asked:
            self._change({"suspend": True})

    def _ask(self) -> bool:
        try:
            spec = self._api.job(self._name)["spec"]
        except ApiError as error:
            self._complain(f"Job {self._name} cannot be read, so no pods are asked for: {error}")
            return False
        present = spec.get("parallelism", 1)
        wanted = max(present, -(-self._most // (self._slots or slots_of(spec["template"]))))
        if spec.get("suspend") or wanted != present:
            return self._change({"parallelism": wanted, "completions": wanted, "suspend": False})
        return True

    def _change(self, spec: Object) -> bool:
        try:
            self._api.change_job(self._name, spec)
        except ApiError as error:
            self._complain(f"Job {self._name} cannot be changed, so its pods stay as they are: {error}")
            return False
        return True

    def _complain(self, text: str) -> None:
        if text != self._said:
            self._say(text)
        self._said = text


def _say(text: str) -> None:
    print(f"hvd pods: {text}", file=sys.stderr, flush=True)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="hvd pods", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--selector", required=True, metavar="LABELS", help="of the pods: job-name=workers")
    parser.add_argument("--port", required=True, type=int, help="where their agents listen")
    parser.add_argument("--slots", type=int, metavar="N", help="of each pod; default: its GPUs, or 1")
    parser.add_argument("--max-np", type=int, metavar="N", help="ask the pods' Job for so many ranks' pods")
    parser.add_argument("--addresses", required=True, type=Path, metavar="FILE", help="to be written")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    try:
        api = Api()
    except ApiError as error:
        _say(str(error))
        return 1
    takers = [Hosts(options.port, options.slots, options.addresses).take]
    workers = None
    if options.max_np:
        name = JOB_LABEL.search(options.selector)
        workers = Workers(api, name[1] if name else "", options.max_np, options.slots, _say)
        takers.append(workers.take)

    def changed(pods: Iterable[Object]) -> None:
        for take in takers:
            take(pods)

    try:
        Watch(api, options.selector, changed, _say).run()
    except BrokenPipeError:  # hvdrun is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except SystemExit:  # raised on SIGTERM, by which hvdrun ends this process
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if workers:
        workers.end()
    return 0
