"""A stand-in for Kubernetes' API server: pods to list and watch, Jobs to read and patch, over HTTPS with a token.

It serves what hvd asks for as the real one does: versions of resources that expire (410, as a status or as an event of
a watch), bookmarks, watches that end, labels, merge patches with the checks of a Job, refusals with a Status object.
"""

import contextlib
import copy
import http.server
import json
import re
import ssl
import subprocess
import threading
import time
import urllib.parse

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


class KubernetesApi:
    """Runs in threads of this process. `folder` becomes a service account's, as it is mounted into pods."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        (folder / "namespace").write_text("team")
        self.rotate_token("first")
        key, certificate = folder / "key.pem", folder / "ca.crt"
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        names = ("-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1")
        command = ["openssl", "req", "-x509", *kind, *names, "-keyout", key, "-out", certificate]
        subprocess.run(command, check=True, capture_output=True)
        self.changed = threading.Condition()
        self.pods, self.jobs, self.events = {}, {}, []
        self.version, self.oldest = 100, 0
        self.failures = []  # statuses with which the next requests are answered
        self.forbidden = set()  # methods
        self.requests = []  # (method, path without query, query); `changed` is notified of them, too
        self.generation, self.bookmark_s = 0, 0.2  # of watches
        self.gone_by_event = False
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def environment(self):
        host, port = self.server.server_address
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "HVD_KUBERNETES_ACCOUNT": str(self.folder),
        }

    def close(self):
        self.end_watches()
        self.server.shutdown()
        self.server.server_close()

    def rotate_token(self, token):
        self.token = token
        (self.folder / "token").write_text(token)

    # --- what happens in the cluster ---

    def add_pod(self, name, address, job="workers", index=None, phase="Running", gpus=0):
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}-{self.version}",
            "labels": {"job-name": job, "batch.kubernetes.io/job-name": job},
            "ownerReferences": [{"kind": "Job", "name": job, "controller": True}],
        }
        if index is not None:
            metadata["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        containers = [{"name": "agent", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}}]
        status = {"phase": phase, **({"podIP": address} if address else {})}
        self.put("ADDED", {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers}, "status": status})

    def change_pod(self, name, **status):
        pod = copy.deepcopy(self.pods[name])
        pod["status"].update(status)
        self.put("MODIFIED", pod)

    def drain(self, name):
        """What an eviction does first."""
        self.change_pod(name, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByAPI"}])

    def delete_pod(self, name):
        pod = copy.deepcopy(self.pods[name])
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.put("MODIFIED", pod)

    def remove_pod(self, name):
        self.put("DELETED", copy.deepcopy(self.pods[name]))

    def put(self, kind, pod):
        with self.changed:
            self.version += 1
            pod["metadata"]["resourceVersion"] = str(self.version)
            if kind == "DELETED":
                del self.pods[pod["metadata"]["name"]]
            else:
                self.pods[pod["metadata"]["name"]] = pod
            self.events.append((self.version, kind, pod))
            self.changed.notify_all()

    def compact(self):
        """Forgets what happened so far: versions up to now are too old for a watch."""
        with self.changed:
            self.version += 1
            self.events, self.oldest = [], self.version
            self.changed.notify_all()

    def end_watches(self):
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def add_job(self, name, parallelism=1, mode="Indexed", suspend=False):
        spec = {"parallelism": parallelism, "completions": parallelism, "completionMode": mode, "suspend": suspend}
        spec["template"] = {"spec": {"containers": [{"name": "agent"}]}}
        self.jobs[name] = {"kind": "Job", "metadata": {"name": name}, "spec": spec}


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def handler_of(api):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def setup(self):
            super().setup()
            with contextlib.suppress(OSError):
                self.request.do_handshake()

        def handle(self):
            with contextlib.suppress(OSError):
                super().handle()

        def answer(self, code, body):
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if code == 429:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(data)

        def serve(self):
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query, strict_parsing=bool(url.query)))
            with api.changed:
                api.requests.append((self.command, url.path, query))
                api.changed.notify_all()
            try:
                check(api, self.command, self.headers)
                if url.path == "/api/v1/namespaces/team/pods" and self.command == "GET":
                    return self.watch(query) if query.get("watch") == "1" else self.answer(200, listed(api, query))
                job = re.fullmatch(r"/apis/batch/v1/namespaces/team/jobs/([\w-]+)", url.path)
                if not job or job[1] not in api.jobs:
                    raise Refused(404, f"{url.path} not found")
                if self.command == "PATCH":
                    patch(api, job[1], self.headers, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.answer(200, api.jobs[job[1]])
            except Refused as error:
                status = {"kind": "Status", "status": "Failure", "code": error.code, "message": str(error)}
                self.answer(error.code, status)

        do_GET = do_PATCH = serve

        def watch(self, query):
            version, wanted = int(query["resourceVersion"]), labels_of(query)
            if version < api.oldest and not api.gone_by_event:
                raise Refused(410, GONE["message"])
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if version < api.oldest:
                self.event("ERROR", GONE)
            else:
                self.follow(version, wanted, time.monotonic() + int(query["timeoutSeconds"]))
            self.wfile.write(b"0\r\n\r\n")

        def follow(self, version, wanted, end):
            generation, bookmark = api.generation, time.monotonic() + api.bookmark_s
            while time.monotonic() < end:
                with api.changed:
                    if api.generation != generation:
                        return
                    fresh = [event for event in api.events if event[0] > version]
                    if not fresh:
                        api.changed.wait(0.05)
                        fresh = [event for event in api.events if event[0] > version]
                    latest = max(api.version if not fresh else fresh[-1][0], version)
                for _, kind, pod in fresh:
                    if wanted.items() <= pod["metadata"]["labels"].items():
                        self.event(kind, pod)
                version = latest
                if time.monotonic() >= bookmark:
                    bookmark = time.monotonic() + api.bookmark_s
                    self.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})

        def event(self, kind, content):
            data = json.dumps({"type": kind, "object": content}).encode() + b"\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    return Handler


def check(api, method, headers):
    if api.failures:
        raise Refused(api.failures.pop(0), "the server is not in the mood")
    if headers.get("Authorization") != f"Bearer {api.token}":
        raise Refused(401, "Unauthorized")
    if method in api.forbidden:
        verb = {"GET": "list", "PATCH": "patch"}[method]
        raise Refused(403, f'User "system:serviceaccount:team:hvdrun" cannot {verb} resource')


def labels_of(query):
    pairs = [pair for pair in query.get("labelSelector", "").split(",") if pair]
    if not all(re.fullmatch(r"[\w./-]+=[\w.-]+", pair) for pair in pairs):
        raise Refused(400, f"unable to parse requirement: {pairs}")
    return dict(pair.split("=") for pair in pairs)


def listed(api, query):
    wanted = labels_of(query)
    with api.changed:
        items = [pod for pod in api.pods.values() if wanted.items() <= pod["metadata"]["labels"].items()]
        return {"kind": "PodList", "metadata": {"resourceVersion": str(api.version)}, "items": items}


def patch(api, name, headers, body):
    if headers["Content-Type"] != "application/merge-patch+json":
        raise Refused(415, "the body of the request was in an unknown format")
    job = copy.deepcopy(api.jobs[name])
    job["spec"].update(body["spec"])
    old, new = api.jobs[name]["spec"], job["spec"]
    if new["completions"] != old["completions"] and (
        new["completionMode"] != "Indexed" or new["completions"] != new["parallelism"]
    ):
        raise Refused(422, f'Job.batch "{name}" is invalid: spec.completions: field is immutable')
    with api.changed:
        api.jobs[name] = job
        api.changed.notify_all()
