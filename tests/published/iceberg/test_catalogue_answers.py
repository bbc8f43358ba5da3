"""A catalogue that answers with what a client must not take: its answers load no code, move no address, tell no token
and hold nobody up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tidemark_persist import Storage
from tidemark_replica.sinks.published import iceberg_catalogue
from tidemark_replica.sinks.published.iceberg_catalogue import CatalogueSettings, IcebergFailed
from tidemark_replica.storage.source_secrets import SourceSecrets

TOKEN = "a-token-that-nobody-may-see"


class Catalogue:
    """A server on loopback. `config`: its configuration's overrides. `token`: how it answers a request for a token."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.token: Callable[[], dict[str, Any]] = dict
        self.asked = list[str]()
        self.ended = Event()
        catalogue = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: object) -> None:
                """Nothing is logged."""

            def do_GET(self) -> None:
                catalogue.asked.append(self.path)
                self._answer({"defaults": {}, "overrides": catalogue.config})

            def do_POST(self) -> None:
                catalogue.asked.append(self.path)
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._answer(catalogue.token())

            def _answer(self, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def catalogue() -> Iterator[Catalogue]:
    catalogue = Catalogue()
    yield catalogue
    catalogue.close()


def connected(catalogue: Catalogue, folder: Path, **entries: str) -> Any:
    (secret := folder / "secrets" / "lake").mkdir(parents=True)
    for name, value in entries.items():
        (secret / name).write_text(value)
    (folder / "table").mkdir()
    settings = CatalogueSettings(catalogue.uri, secret="lake")
    return settings.connect(SourceSecrets(folder / "secrets"), Storage.at(str(folder / "table")))


def test_a_configuration_loads_no_code_and_moves_no_address(catalogue: Catalogue, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = {"type": "custom", "impl": "subprocess.check_call", "custom": {"args": ["touch", str(mark)]}}
    elsewhere = "http://127.0.0.1:9/"
    catalogue.config = {"auth": run, "uri": elsewhere, "oauth2-server-uri": elsewhere, "prefix": "lake"}
    found = connected(catalogue, tmp_path, token="t")
    assert not mark.exists()
    assert found.uri == catalogue.uri
    assert found.properties["prefix"] == "lake"
    assert not {"auth", "oauth2-server-uri"} & set(found.properties)


def test_a_malformed_answer_tells_no_token(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.token = lambda: {"access_token": TOKEN}  # without its type
    with pytest.raises(IcebergFailed) as failed:
        connected(catalogue, tmp_path, credential="client:secretsecret")
    assert TOKEN not in str(failed.value)
    assert "secretsecret" not in str(failed.value)


def test_a_silent_token_server_ends_the_attempt(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_catalogue, "READ_SECONDS", 0.5)
    catalogue.token = lambda: {"silent": catalogue.ended.wait(600)}
    with pytest.raises(IcebergFailed, match="failed"):
        connected(catalogue, tmp_path, credential="client:secretsecret")
