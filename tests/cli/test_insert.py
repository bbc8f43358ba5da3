"""`kubectl tidemark insert`: a call whose answer is lost is repeated with its key, which the last error names."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.waiting import BOUND, until
from tidemark_cli.main import main
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server


class Scripted(GatewayServicer):
    """Ends the first calls with `failures`, answers the others; `hangs`: answers none. `calls`: key and body.
    `sqlstate`: of the last failure."""

    def __init__(self) -> None:
        self.failures: list[grpc.StatusCode] = []
        self.sqlstate = ""
        self.hangs, self.ended = False, threading.Event()
        self.calls: list[tuple[str, bytes]] = []

    def Insert(self, requests: Iterator[pb.InsertRequest], context: Any) -> pb.InsertReply:
        parts = list(requests)
        self.calls.append((parts[0].header.key, b"".join(part.data for part in parts)))
        if self.hangs:
            self.ended.wait(BOUND)
        if self.failures:
            code = self.failures.pop(0)
            if self.sqlstate and not self.failures:
                context.set_trailing_metadata((("tidemark-sqlstate", self.sqlstate),))
            context.abort(code, "lost")
        return pb.InsertReply(time=1000, rows=1, table="orders", repeated=False)


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    server, scripted = grpc.server(ThreadPoolExecutor(2)), Scripted()
    add_GatewayServicer_to_server(scripted, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "rows.csv").write_text("id\n1\n")
    where = {"address": f"127.0.0.1:{port}", "tokenFile": str(tmp_path / "token")}
    (tmp_path / "gateway.json").write_text(json.dumps(where))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield scripted
    scripted.ended.set()
    server.stop(None).wait()


def test_a_lost_call_is_repeated_with_its_key(
    gateway: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.failures = [grpc.StatusCode.ABORTED, grpc.StatusCode.UNAUTHENTICATED]
    assert main(["insert", "shop", "--from", str(tmp_path / "rows.csv"), "-o", "json"]) == 0
    key = json.loads(capsys.readouterr().out)["key"]
    assert gateway.calls == [(key, b"id\n1\n")] * 3


def test_what_a_call_is_repeated_for_is_shown_once(
    gateway: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source that is not ingested would look like one that is slow."""
    gateway.failures = [grpc.StatusCode.FAILED_PRECONDITION] * 2
    assert main(["insert", "shop", "--from", str(tmp_path / "rows.csv")]) == 0
    assert (len(gateway.calls), capsys.readouterr().err) == (3, "trying again: lost\n")


def test_an_interrupted_call_names_its_key(gateway: Scripted, tmp_path: Path) -> None:
    """Ctrl-C while the call hangs; nobody else has the random key."""
    gateway.hangs = True
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tidemark_cli", "insert", "shop"]
    command += ["--from", str(tmp_path / "rows.csv"), "--gateway-file", str(tmp_path / "gateway.json")]
    ran = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: gateway.calls)
    ran.send_signal(signal.SIGINT)
    _, error = ran.communicate(timeout=BOUND)
    assert f"Give the same command with --key {gateway.calls[0][0]}: it repeats" in error
    assert ran.returncode == 130


def test_a_refused_call_is_not_repeated(gateway: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.failures = [grpc.StatusCode.INVALID_ARGUMENT]
    assert main(["insert", "shop", "--from", str(tmp_path / "rows.csv")]) == 1
    assert (len(gateway.calls), capsys.readouterr().err) == (1, "error: lost\n")


@pytest.mark.parametrize("lost_before", [False, True])
def test_a_call_of_a_table_that_takes_no_rows_is_not_repeated(
    gateway: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str], lost_before: bool
) -> None:
    """A lost call before it may have written the rows, so the error names the key."""
    gateway.failures = [*[grpc.StatusCode.ABORTED] * lost_before, grpc.StatusCode.FAILED_PRECONDITION]
    gateway.sqlstate = "55000"
    assert main(["insert", "shop", "--from", str(tmp_path / "rows.csv")]) == 1
    assert len(gateway.calls) == 1 + lost_before
    assert ("--key" in capsys.readouterr().err) == lost_before


def test_a_call_without_an_answer_in_time_names_its_key(
    gateway: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A random key is nowhere else."""
    gateway.hangs = True
    assert main(["insert", "shop", "--from", str(tmp_path / "rows.csv"), "--timeout", "1s"]) == 1
    advice = r"not answered in time: .*Give the same command with --key (\w+): it repeats"
    found = re.search(advice, capsys.readouterr().err)
    assert found is not None
    assert {key for key, _ in gateway.calls} == {found[1]}
