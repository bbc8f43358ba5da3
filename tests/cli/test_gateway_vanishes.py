"""A gateway that is gone without a word: no end of the connection, no refusal, only silence."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.waiting import BOUND
from tidemark.gateway import channel
from tidemark_cli.main import main
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server

OFTEN = {"grpc.keepalive_time_ms": 1_000, "grpc.keepalive_timeout_ms": 1_000, "grpc.http2.ping_timeout_ms": 1_000}
ALLOWED = (("grpc.http2.min_ping_interval_without_data_ms", 100),)


SETTLED_SECONDS = 1.0
"""By then no ping of gRPC's own is under way, which would be missed too."""


class Quiet(GatewayServicer):
    """Tells the header, and that nothing changes; then the way to it is cut. `found`: it was given up by its client."""

    def __init__(self) -> None:
        self.cut, self.ended, self.found = threading.Event(), threading.Event(), True

    def Subscribe(self, request: pb.SubscribeRequest, context: Any) -> Iterator[pb.SubscribeReply]:
        yield pb.SubscribeReply(header=pb.SubscribeHeader(as_of=1, column_names=["a"], column_types=["int"]))
        time.sleep(SETTLED_SECONDS)
        self.cut.set()
        self.ended.wait(BOUND)


def forward(taken: socket.socket, port: int, quiet: Quiet) -> None:
    """Bytes in both directions, until the way is cut: from then on they are lost, and both sides stay open."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        source.settimeout(BOUND)
        with contextlib.suppress(ConnectionError):
            try:
                while data := source.recv(65_536):
                    if not quiet.cut.is_set():
                        sink.sendall(data)
            except TimeoutError:
                quiet.found = False

    with taken, socket.create_connection(("127.0.0.1", port)) as other, ThreadPoolExecutor(2) as both:
        for done in [both.submit(pump, taken, other), both.submit(pump, other, taken)]:
            done.result()
            other.shutdown(socket.SHUT_RDWR)  # the client is gone


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Quiet]:
    server, servicer = grpc.server(ThreadPoolExecutor(2), options=ALLOWED), Quiet()
    add_GatewayServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with socket.create_server(("127.0.0.1", 0)) as way, ThreadPoolExecutor(4) as pool:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    pool.submit(forward, way.accept()[0], port, servicer)

        pool.submit(accept)
        (tmp_path / "token").write_text("secret")
        where = {"address": f"127.0.0.1:{way.getsockname()[1]}", "tokenFile": str(tmp_path / "token")}
        (tmp_path / "gateway.json").write_text(json.dumps(where))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield servicer
        servicer.ended.set()
        server.stop(None).wait()
        way.shutdown(socket.SHUT_RDWR)


def test_crash_a_subscribe_ends_when_its_gateway_is_gone(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client that follows a query without changes would take the silence for that."""
    monkeypatch.setattr(channel, "KEEPALIVE", tuple({**dict(channel.KEEPALIVE), **OFTEN}.items()))
    assert main(["subscribe", "delays"]) == 1
    assert "error: no gateway answers at 127.0.0.1:" in capsys.readouterr().err
    assert quiet.found
