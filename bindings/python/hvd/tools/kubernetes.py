"""The few requests to Kubernetes' API server that an elastic job makes: list and watch pods, read and change a Job.

Standard library only. Inside a pod the server's address is in the environment, and its certificate, the token and the
namespace are files of the service account, of which the token is replaced every hour: it is read for each request.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT_S = 30  # of a request; of a watch, for its first byte
WATCH_S = 300  # after which the server ends a watch
LONGEST_EVENT = 16 << 20  # bytes; objects have 1.5 MB at most in etcd
KEEP_ALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}

Object = dict[str, Any]


class ApiError(Exception):
    """The API server refuses a request, or cannot be reached (`code` 0).

    Args:
        code: The HTTP status.
        text: What it says.
        retry_after: Seconds for which it asks to be left alone.
    """

    def __init__(self, code: int, text: str, retry_after: float = 0) -> None:
        super().__init__(text)
        self.code = code
        self.retry_after = retry_after


class Api:
    """Kubernetes' API server, as a pod's service account reaches it.

    Raises:
        ApiError: Not in a pod, or without a service account.
    """

    def __init__(self) -> None:
        account = Path(os.environ.get("HVD_KUBERNETES_ACCOUNT") or ACCOUNT)
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
        if not host or not port:
            raise ApiError(0, "KUBERNETES_SERVICE_HOST and _PORT are not set: run this in a pod")
        self._place = (host, int(port))
        self._token = account / "token"
        try:
            self.namespace = (account / "namespace").read_text().strip()
            self._trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except OSError as error:
            raise ApiError(0, f"no service account in {account} (automountServiceAccountToken): {error}") from error

    def pods(self, selector: str) -> tuple[list[Object], str]:
        """The pods with these labels, and the resource version from which watch_pods() goes on."""
        listed = self._request("GET", self._pods(selector))
        return listed["items"], listed["metadata"]["resourceVersion"]

    def watch_pods(self, selector: str, version: str) -> Iterator[Object]:
        """Events, until the server ends the watch, as it does after some minutes.

        Raises:
            ApiError: With code 410 if the version is too old: pods() must be called again.
        """
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_S}
        with self._open("GET", self._pods(selector, **query)) as (connection, response):
            assert connection.sock is not None
            connection.sock.settimeout(WATCH_S + TIMEOUT_S)
            while line := response.readline(LONGEST_EVENT):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(status.get("code", 500), status.get("message", "the watch has failed"))
                yield event

    def job(self, name: str) -> Object:
        """The Job of that name."""
        return self._request("GET", self._job(name))

    def change_job(self, name: str, spec: Object) -> None:
        """Replaces these fields of its spec."""
        self._request("PATCH", self._job(name), {"spec": spec})

    def _pods(self, selector: str, **query: object) -> str:
        query["labelSelector"] = selector
        return f"/api/v1/namespaces/{self.namespace}/pods?{urllib.parse.urlencode(query)}"

    def _job(self, name: str) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{urllib.parse.quote(name)}"

    def _request(self, method: str, path: str, body: Object | None = None) -> Object:
        with self._open(method, path, body) as (_, response):
            answer: Object = json.loads(response.read())
            return answer

    @contextlib.contextmanager
    def _open(
        self, method: str, path: str, body: Object | None = None
    ) -> Iterator[tuple[http.client.HTTPSConnection, http.client.HTTPResponse]]:
        connection = http.client.HTTPSConnection(*self._place, timeout=TIMEOUT_S, context=self._trusted)
        try:
            headers = {"Authorization": f"Bearer {self._token.read_text().strip()}", "Accept": "application/json"}
            if body is not None:
                headers["Content-Type"] = "application/merge-patch+json"
            connection.connect()
            assert connection.sock is not None
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEP_ALIVE.items():  # a node that dies says nothing
                connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise _refusal(response)
            yield connection, response
        except (OSError, http.client.HTTPException, ValueError) as error:
            host, port = self._place
            raise ApiError(0, f"the API server at {host}:{port}: {error or type(error).__name__}") from error
        finally:
            connection.close()


def _refusal(response: http.client.HTTPResponse) -> ApiError:
    text = response.read(1 << 20).decode(errors="replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["message"]
    try:
        wait = float(response.headers.get("Retry-After", 0))
    except ValueError:
        wait = 0.0
    return ApiError(response.status, f"{response.status}: {text}", wait)
