"""The answers of a registry's client: a schema, a wait, or that there is no such schema."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.authorities import Authority
from tests.ports import free_port
from tests.schema_registry.registry import Registry, registry
from tidemark_replica.storage import schema_registry
from tidemark_replica.storage.schema_registry import NotRegistered, RegistryAway, SchemaRegistry

SECRET = {"username": "user", "password": "the-password"}
TEXT = '"string"'


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as one:
        yield one


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "PAUSE_SECONDS", 0.0)


def client(server: Registry, secret: Mapping[str, str] | None = None) -> SchemaRegistry:
    return SchemaRegistry(server.url, None if secret is None else lambda: secret)


def test_a_schema_is_asked_for_once(server: Registry) -> None:
    id = server.register("orders-value", TEXT)
    one = client(server)
    assert [one.by_id(id).text for _ in range(3)] == [TEXT] * 3
    assert server.requests == [f"/base/schemas/ids/{id}"]


def test_versions_of_a_subject(server: Registry) -> None:
    server.register("a/b c", TEXT)
    server.register("a%2Fb%20c", '"int"')
    server.register("a%2Fb%20c", '"long"')
    one = client(server)
    assert [one.by_subject("a/b c", version).text for version in (0, 1, 2)] == ['"long"', '"int"', '"long"']
    with pytest.raises(NotRegistered):
        one.by_subject("a/b c", 3)


def test_an_unknown_id_is_waited_for_and_then_refused(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    one = client(server)
    for _ in range(2):
        with pytest.raises(RegistryAway, match="no schema 1 "):
            one.by_id(1)
    monkeypatch.setattr(schema_registry, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(NotRegistered):
        one.by_id(1)
    asked = len(server.requests)
    with pytest.raises(NotRegistered):
        one.by_id(1)
    assert len(server.requests) == asked
    monkeypatch.setattr(schema_registry, "FORGET_SECONDS", 0.0)
    server.register("s", TEXT)
    assert one.by_id(1).text == TEXT


def test_an_id_that_comes_late_is_taken(server: Registry) -> None:
    one = client(server)
    with pytest.raises(RegistryAway):
        one.by_id(1)
    server.register("s", TEXT)
    assert one.by_id(1).text == TEXT


@pytest.mark.parametrize("status", [301, 302, 429, 500, 503, 204])
def test_other_answers_are_no_schema(server: Registry, status: int) -> None:
    id = server.register("s", TEXT)
    server.status = status
    with pytest.raises(RegistryAway, match=f"status {status}"):
        client(server).by_id(id)
    assert len(server.requests) == 1  # no redirect is followed


def test_a_registry_that_is_down_is_not_asked_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "PAUSE_SECONDS", 600.0)
    one = SchemaRegistry(f"http://127.0.0.1:{free_port()}", None)
    with pytest.raises(RegistryAway, match="refused"):
        one.by_id(1)
    monkeypatch.setattr(SchemaRegistry, "_connection", None)
    with pytest.raises(RegistryAway, match="refused"):
        one.by_id(1)


def test_credentials_are_read_anew_and_in_no_text(server: Registry) -> None:
    id, server.password = server.register("s", TEXT), "the-password"
    secret = dict(SECRET, password="wrong-one")
    one = client(server, secret)
    with pytest.raises(RegistryAway, match="refuses the credentials") as found:
        one.by_id(id)
    assert "wrong-one" not in str(found.value)
    secret["password"] = "the-password"
    assert one.by_id(id).text == TEXT
    server.token = "a-token"
    assert client(server, {"token": "a-token"}).by_id(id).text == TEXT
    with pytest.raises(RegistryAway) as found:
        client(server, {"token": "bad\ntoken"}).by_id(id)
    assert "bad" not in str(found.value)
    with pytest.raises(RegistryAway, match=r"keys user are not taken .*; remove them"):
        client(server, {"user": "x"}).by_id(id)


def test_https_with_an_authority_of_its_own(tmp_path: Path) -> None:
    authority = Authority.named("registry")
    pair = authority.server("127.0.0.1")
    (tmp_path / "cert").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    with registry((str(tmp_path / "cert"), str(tmp_path / "key"))) as server:
        id = server.register("s", TEXT)
        assert client(server, {"ca.crt": authority.pair.certificate.decode()}).by_id(id).text == TEXT
        with pytest.raises(RegistryAway, match="CERTIFICATE_VERIFY_FAILED"):
            client(server).by_id(id)
        other = Authority.named("other").pair.certificate.decode()
        with pytest.raises(RegistryAway, match="CERTIFICATE_VERIFY_FAILED"):
            client(server, {"ca.crt": other}).by_id(id)


def test_imports_come_before_what_needs_them(server: Registry) -> None:
    server.register("c", "Yw==", "PROTOBUF")
    server.register("b", "Yg==", "PROTOBUF", [{"name": "c.proto", "subject": "c", "version": 1}])
    references = [{"name": f"{name}.proto", "subject": name, "version": 1} for name in ("b", "c")]
    id = server.register("a", "YQ==", "PROTOBUF", references)
    found = client(server).by_id(id)
    assert found.text == "YQ=="
    assert found.imports == (("c.proto", "Yw=="), ("b.proto", "Yg=="))


@pytest.mark.parametrize("body", [{}, {"error_code": 404}, [], "not found"])
def test_a_404_of_something_else_is_no_answer(server: Registry, monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    """A proxy whose registry is gone gives it: an id would count as not registered for good."""
    monkeypatch.setattr(schema_registry, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(server, "answer", lambda *_: (404, body))
    for ask in (lambda: client(server).by_id(1), lambda: client(server).by_subject("s", 1)):
        with pytest.raises(RegistryAway, match="status 404"):
            ask()


def test_an_id_that_is_not_registered_stays_so_when_it_is_asked_for_again(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = client(server)
    monkeypatch.setattr(schema_registry, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(NotRegistered):
        one.by_id(1)
    monkeypatch.setattr(schema_registry, "PATIENCE_SECONDS", 30.0)
    monkeypatch.setattr(schema_registry, "FORGET_SECONDS", 0.0)
    with pytest.raises(NotRegistered):
        one.by_id(1)
    assert len(server.requests) == 2


def test_answers_are_kept_up_to_a_length(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "KEPT_LENGTH_MAX", 250)
    ids, one = [server.register("s", "x" * 100) for _ in range(3)], client(server)
    for id in (*ids, ids[2], ids[1], ids[0]):
        assert len(one.by_id(id).text) == 100
    assert server.requests == [f"/base/schemas/ids/{id}" for id in (*ids, ids[0])]


@pytest.mark.parametrize("references", [5, "x", {"a": 1}, [5], [{"name": "\ud800", "subject": "s", "version": 1}]])
@pytest.mark.parametrize("nested", [False, True])
def test_references_that_are_none(server: Registry, references: Any, nested: bool) -> None:
    id = server.register("s", TEXT)
    server.schemas[id]["references"] = references
    if nested:
        id = server.register("a", TEXT, references=[{"name": "s", "subject": "s", "version": 1}])
    with pytest.raises(RegistryAway, match="references are not a registry's"):
        client(server).by_id(id)


@pytest.mark.parametrize("drips", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"])
def test_an_answer_whose_bytes_drip_is_given_up(monkeypatch: pytest.MonkeyPatch, drips: bytes) -> None:
    """Its head as well as its body. Read to the end, it would not be a TimeoutError."""
    monkeypatch.setattr(schema_registry, "REQUEST_SECONDS", 0.5)
    given_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(drips)
                for _ in range(200):
                    if given_up.wait(0.1):
                        return
                    connection.sendall(b"x")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RegistryAway, match="TimeoutError"):
            SchemaRegistry(f"http://127.0.0.1:{listener.getsockname()[1]}", None).by_id(1)
        given_up.set()
        thread.join()


def test_a_schema_with_all_its_references_has_one_deadline(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "QUESTION_SECONDS", 0.0)
    with pytest.raises(RegistryAway, match="did not come within 0 s"):
        client(server).by_id(server.register("s", TEXT))
