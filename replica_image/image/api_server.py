"""As much of an API server and a kubelet as a driver needs to have executors, in the build of an image.

    driver ──POST pod──► kept, said to run ──► the entrypoint, as an executor: it registers with the driver
           ──watch─────► a WebSocket on which nothing is ever said

It serves HTTPS, with a certificate of its own, as the JVM's classes for that are half of what a start loads. It knows
pods alone, and no one is asked who they are.
"""

import base64
import hashlib
import json
import os
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
DRIVER = "driver"
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ApiServer:
    """`executor`: what each pod that is made runs. Files are in `folder`."""

    def __init__(self, folder: Path, executor: Sequence[str]) -> None:
        self._executor = executor
        self._pods = {DRIVER: _running({"metadata": {"name": DRIVER, "namespace": "default"}, "spec": {}})}
        self._lock = threading.Lock()
        self.executors: list[subprocess.Popen[bytes]] = []
        self.certificate, key = folder / "ca.crt", folder / "ca.key"
        _make_certificate(self.certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        server = ThreadingHTTPServer((HOST, 0), type("Handler", (Handler,), {"api": self}))
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.url = f"https://{HOST}:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def list(self, driver: bool = False) -> dict[str, Any]:
        with self._lock:
            items = [pod for name, pod in self._pods.items() if (name == DRIVER) == driver]
        return {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": items}

    def get(self, name: str) -> dict[str, Any] | None:
        return self._pods.get(name)

    def make(self, pod: dict[str, Any]) -> dict[str, Any]:
        """It runs at once."""
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        told = {each["name"]: _value(each, name) for each in container["env"]}
        with self._lock:
            self._pods[name] = _running(pod)
            self.executors.append(subprocess.Popen([*self._executor, *container["args"]], env={**os.environ, **told}))
        return self._pods[name]

    def delete(self) -> dict[str, Any]:
        """All executors, whichever are meant: it happens once, at the end."""
        with self._lock:
            self._pods = {DRIVER: self._pods[DRIVER]}
        return self.list()


class Handler(BaseHTTPRequestHandler):
    """Of one connection."""

    api: ApiServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if "true" in urllib.parse.parse_qs(query).get("watch", ()):
            self._watch()
        elif path.endswith("/pods"):
            self._answer(200, self.api.list(driver="fieldSelector" in query))
        else:
            pod = self.api.get(path.rpartition("/")[2])
            self._answer(200 if pod else 404, pod or {"apiVersion": "v1", "kind": "Status", "code": 404})

    def do_POST(self) -> None:
        self._answer(201, self.api.make(json.loads(self._body())))

    def do_DELETE(self) -> None:
        self._body()
        self._answer(200, self.api.delete())

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _watch(self) -> None:
        """Until the client goes; what it says meanwhile is nothing to us."""
        accepted = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + WEBSOCKET).encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accepted).decode())
        self.end_headers()
        self.wfile.flush()
        while self.rfile.read1(1024):
            pass
        self.close_connection = True

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: Mapping[str, Any]) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)


def _value(variable: Mapping[str, Any], pod: str) -> str:
    """Of an environment variable; what is told by the name of a field, a kubelet would fill in."""
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    fields = {"status.podIP": HOST, "metadata.name": pod}
    return fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]


def _running(pod: dict[str, Any]) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    metadata = {"uid": pod["metadata"]["name"], "creationTimestamp": "2020-01-01T00:00:00Z", **pod["metadata"]}
    status = {"phase": "Running", "podIP": HOST, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata, "status": status}


def _make_certificate(certificate: Path, key: Path) -> None:
    """Of this address, by nobody but itself."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    made += ["-addext", f"subjectAltName=IP:{HOST}", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(made, check=True, capture_output=True)
