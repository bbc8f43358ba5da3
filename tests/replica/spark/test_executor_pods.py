"""The driver's requests to the API server, and its reactions to the answers: a real HTTPS server in its place.

The objects that a real API server deletes are in `tests/orchestrator/test_orphaned_executors.py`.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.authorities import Authority
from tests.waiting import BOUND
from tidemark_replica.errors import ExecutorsNotDeleted, PodsUnknown
from tidemark_replica.spark import executor_pods
from tidemark_replica.spark.executor_pods import ExecutorPods, PodRefusal

CLUSTER = Authority.named("cluster")


class Api(ThreadingHTTPServer):
    """Answers with `code`; hangs in the middle of an answer of which it is told to send a part."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        pair = CLUSTER.server("127.0.0.1")
        (folder / "server.pem").write_bytes(pair.certificate + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.code, self.part = 200, 1.0
        self.said: Any = {"items": [{}, {}]}
        self.asked: list[tuple[str, str | None, Any]] = []
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"k8s://https://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    server: Api

    def do_POST(self) -> None:
        self.do_DELETE()

    def do_DELETE(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        answer = json.dumps(self.server.said).encode()
        if self.server.part:
            self.send_response(self.server.code)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: int(len(answer) * self.server.part)])
            self.wfile.flush()
        if self.server.part < 1:
            self.server.over.wait()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    server = Api(tmp_path)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join(BOUND)


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A service account's folder, as a pod has it."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("first\n")
    (folder / "ca.crt").write_bytes(CLUSTER.pair.certificate)
    return folder


def test_pods_with_all_these_labels_are_deleted_at_once_by_the_token_of_now(api: Api, account: Path) -> None:
    """The pods are of the own namespace alone; whatever stands in a label is no part of the address."""
    pods = ExecutorPods(api.address, "ns", account)
    pods.delete("role=executor,replica=a&b")
    (account / "token").write_text("second\n")
    pods.delete("role=executor,replica=a&b")

    path = "/api/v1/namespaces/ns/pods?labelSelector=role%3Dexecutor%2Creplica%3Da%26b"
    assert api.asked == [(path, f"Bearer {token}", {"gracePeriodSeconds": 0}) for token in ("first", "second")]


def test_where_there_is_nothing_nothing_is_left(api: Api, account: Path) -> None:
    """Not found is as good as deleted."""
    api.code = 404
    ExecutorPods(api.address, "ns", account).delete("a=b")
    assert len(api.asked) == 1


@pytest.mark.parametrize(("code", "is_for_rights"), [(403, True), (401, False), (429, False), (500, False)])
def test_a_refusal_is_reported_with_the_missing_right(api: Api, account: Path, code: int, is_for_rights: bool) -> None:
    """Rights only where these are missing."""
    api.code = code
    with pytest.raises(ExecutorsNotDeleted, match=f"cannot be deleted: {code} ") as refused:
        ExecutorPods(api.address, "ns", account).delete("a=b")
    assert ("needs the verb deletecollection" in str(refused.value)) is is_for_rights


def test_a_webhook_that_does_not_allow_a_try_refuses_no_pod(api: Api, account: Path) -> None:
    """Its 400 is no word on the pod; another one is."""
    pods = ExecutorPods(api.address, "ns", account)
    api.code, api.said = 400, {"message": 'admission webhook "sidecars" does not support dry run'}
    with pytest.raises(PodsUnknown, match="does not support dry run"):
        pods.refusal({"metadata": {}})
    api.said = {"message": "no pod of mine"}
    assert pods.refusal({"metadata": {}}) == PodRefusal("Refused", "no pod of mine")


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_an_api_server_that_hangs_is_given_up(
    api: Api, account: Path, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it answers, and in the middle of that."""
    monkeypatch.setattr(executor_pods, "REQUEST_SECONDS", 0.3)
    api.part = part
    with pytest.raises(ExecutorsNotDeleted, match="timed out"):
        ExecutorPods(api.address, "ns", account).delete("a=b")


def test_an_api_server_that_takes_connections_and_says_nothing_is_given_up(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even who it is."""
    monkeypatch.setattr(executor_pods, "REQUEST_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ExecutorsNotDeleted, match="timed out"):
        ExecutorPods(f"k8s://https://127.0.0.1:{silent.getsockname()[1]}", "ns", account).delete("a=b")


def test_a_server_of_another_authority_gets_no_token(api: Api, account: Path) -> None:
    """Whose certificate another authority signed."""
    (account / "ca.crt").write_bytes(Authority.named("another").pair.certificate)
    with pytest.raises(ExecutorsNotDeleted, match="certificate verify failed"):
        ExecutorPods(api.address, "ns", account).delete("a=b")
    assert not api.asked
