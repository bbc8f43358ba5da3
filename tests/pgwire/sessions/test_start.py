"""From the first bytes to the session: TLS, tokens, limits, cancel requests, shutdown."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.authorities import Authority
from tests.gateway.auth.test_access import ANNE
from tests.pgwire.frames import secured
from tests.pgwire.served import ONE, Served, served
from tests.waiting import BOUND, until
from tidemark.gateway.discovery import Gateway
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.main import main, parser
from tidemark_pgwire.server import ListenerRefused, PgServer
from tidemark_pgwire.session.session import SessionLimits

SSL_REQUEST = struct.pack("!II", 8, 80877103)


def refused(server: Served, **options: Any) -> psycopg.OperationalError:
    with pytest.raises(psycopg.OperationalError) as failed:
        server.connect(**options)
    return failed.value


def raw(server: Served, data: bytes) -> bytes:
    """Everything that the server answers to these bytes before it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND) as client:
        client.sendall(data)
        found = b""
        while piece := client.recv(65536):
            found += piece
    return found


def startup(**options: str) -> bytes:
    body = struct.pack("!I", 3 << 16) + b"".join(f"{k}\0{v}\0".encode() for k, v in options.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def test_a_session_has_the_name_of_its_token(server: Served) -> None:
    with server.connect(user="somebody") as connection:
        assert connection.info.parameter_status("session_authorization") == ANNE.name
        assert connection.info.parameter_status("server_encoding") == "UTF8"
        assert connection.execute("SELECT a FROM s.a").fetchall() == [(1,), (2,), (3,)]


@pytest.mark.parametrize("token", ["eyJhbGciOiJub25lIn0.e30.other", "eyJ.e30.", f"eyJ.{'e' * 20_000}."])
def test_a_wrong_token_is_refused(server: Served, token: str) -> None:
    assert "no valid token" in str(refused(server, password=token))


@pytest.mark.parametrize("password", ["other", " ", "x" * 20_000, "t\xf6ken", "eyJ.e30"])
def test_a_wrong_password_is_refused(server: Served, password: str) -> None:
    """A text that has not the form of a token."""
    assert "password authentication failed" in str(refused(server, password=password))
    assert "password authentication failed" in str(refused(server, user="x" * 2000, password="long enough for one"))


def test_the_operators_own_token_is_known_whatever_the_user(server: Served) -> None:
    """It has not the form of others."""
    with server.connect(user="No name of Kubernetes'", password="own") as connection:
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)


def test_a_connection_without_tls_is_refused_before_the_password(server: Served) -> None:
    assert "over TLS only" in str(refused(server, sslmode="disable"))
    assert b"R\0\0\0\x08\0\0\0\x03" not in raw(server, startup(user="anne", database="ns"))


def test_another_authority_is_not_trusted(server: Served, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(Authority.named("other").pair.certificate)
    assert "certificate verify failed" in str(refused(server, sslrootcert=str(other)))


def test_bytes_before_the_handshake_end_the_connection(server: Served) -> None:
    """They would count as sent over TLS, and anybody on the way can add them."""
    assert b"unencrypted data after SSL request" in raw(server, SSL_REQUEST + startup(user="anne", database="ns"))


def test_encryption_by_gssapi_is_declined(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND) as client:
        client.sendall(struct.pack("!II", 8, 80877104))
        assert client.recv(1) == b"N"


@pytest.mark.parametrize("name", ["Team", "a.b", "x" * 64, "../a"])
def test_a_database_is_a_namespace(server: Served, name: str) -> None:
    error = str(refused(server, dbname=name))
    assert "does not exist: it is the name of a namespace" in error
    assert "Connect with dbname=NAMESPACE" in error


def test_settings_come_with_the_start(server: Served) -> None:
    options = r"-c tidemark.as_of=300 -c application_name=a\ b --dialect=spark --extra-float-digits=3"
    with server.connect(options=options) as connection:
        assert connection.execute("SHOW extra_float_digits").fetchone() == ("3",)
        assert connection.execute("SHOW application_name").fetchone() == ("a b",)
        connection.execute("SELECT a FROM s.a")
    assert server.answers.asked[-1:] in ([], [("SELECT a FROM s.a", "spark")])
    assert server.answers.read[-1] == 300
    assert "unrecognized configuration parameter" in str(refused(server, options="-c nonsense=1"))


def test_without_tls_the_listener_is_on_loopback_and_told_so(tmp_path: Path) -> None:
    with served(tmp_path, tls=False) as made, made.connect() as connection:
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)

    async def listen(host: str, insecure: bool) -> None:
        await PgServer(GatewayLink(lambda: Gateway("", "")), SessionLimits(), None, insecure).start(host, 0)

    for host, insecure in (("127.0.0.1", False), ("0.0.0.0", True), ("localhost.example", True)):
        with pytest.raises(ListenerRefused):
            asyncio.run(listen(host, insecure))


@pytest.mark.parametrize("listen", ["5432", ":5432", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_what_is_no_address_is_refused_by_name(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--listen", listen, "--insecure-loopback", "--gateway", "127.0.0.1:1"]) == 1
    assert f"error: --listen is HOST:PORT, such as 127.0.0.1:5432, and not {listen}" in capsys.readouterr().err


def test_a_renewed_certificate_is_used_by_the_next_connection(tmp_path: Path) -> None:
    with served(tmp_path) as made, made.connect() as before:
        renewed = Authority.named("renewed")
        made.authority.write_bytes(renewed.pair.certificate)
        made.issue(renewed)
        with made.connect() as after:
            assert after.execute("SELECT a FROM s.a").fetchone() == (1,)
        (tmp_path / "tls.key").write_bytes(b"half a ke")
        with made.connect() as later:
            assert later.execute("SELECT a FROM s.a").fetchone() == (1,)
        assert before.execute("SELECT a FROM s.a").fetchone() == (1,)


def test_there_are_at_most_so_many_connections(tmp_path: Path) -> None:
    with served(tmp_path, limits=SessionLimits(connections=2)) as made:
        with made.connect(), made.connect():
            assert "too many clients" in str(refused(made))
        until(lambda: not made.loop.call(lambda: len(made.server._connections)))
        with made.connect():
            pass


def test_sockets_without_a_login_lock_nobody_out(tmp_path: Path) -> None:
    """They count against a limit of their own, and the oldest of them ends for a new one."""
    limits = SessionLimits(connections=3, starting=4)
    with served(tmp_path, limits=limits) as made, ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", made.port), timeout=BOUND)) for _ in range(12)
        ]
        until(lambda: made.loop.call(lambda: len(made.server._connections)) == 4)
        time.sleep(1.1)
        for _ in range(3):
            stack.enter_context(made.connect())
        assert "too many clients" in str(refused(made))
        ended = [client for client in silent if select.select([client], [], [], 0)[0]]
        assert 8 <= len(ended) < 12
        assert made.loop.call(lambda: len(made.server._connections)) <= 7


def test_a_burst_of_starts_does_not_end_those_that_began_just_now(tmp_path: Path) -> None:
    with served(tmp_path, limits=SessionLimits(starting=1)) as made, secured(made) as first:
        with socket.create_connection(("127.0.0.1", made.port), timeout=BOUND) as second:
            late = time.monotonic()
            ended = second.recv(1)
        if time.monotonic() - late < 0.5:
            assert ended == b""
            first.sendall(startup(user="anne", database="ns"))
            assert first.recv(1) == b"R"


def test_one_user_has_a_share_of_the_connections(tmp_path: Path) -> None:
    with served(tmp_path, limits=SessionLimits(user_connections=2)) as made:
        with made.connect(), made.connect():
            assert "too many connections of user" in str(refused(made))
        until(lambda: not made.loop.call(lambda: len(made.server._sessions)))
        with made.connect():
            pass
    assert (SessionLimits().of_user, SessionLimits(connections=50).of_user) == (100, 20)


def test_a_process_whose_loop_stands_is_ended() -> None:
    """A call that holds the GIL, as one of `re` does."""
    program = """
import asyncio, ctypes
from tidemark_pgwire.watchdog import watch

async def stand() -> None:
    watching = asyncio.create_task(watch(4.0))
    await asyncio.sleep(5.0)
    print("alive", flush=True)
    ctypes.PyDLL(None).sleep(600)

asyncio.run(stand())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.stdout, done.returncode) == ("alive\n", 1)
    assert "in stand" in done.stderr


def test_a_client_that_begins_nothing_is_disconnected(tmp_path: Path) -> None:
    with served(tmp_path, limits=SessionLimits(start_seconds=0.2)) as made:
        assert b"not begun in time" in raw(made, b"")
        assert b"not begun in time" in raw(made, SSL_REQUEST[:5])


def test_a_token_that_expires_ends_the_session(tmp_path: Path) -> None:
    """Also one that asks for nothing."""
    with served(tmp_path, limits=SessionLimits(token_seconds=0.1)) as made, made.connect() as connection:
        made.api_server.away = False
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)
        made.gateway._authenticator._users._answers.clear()

        async def nobody(token: str) -> None:
            return None

        made.api_server.user = nobody  # type: ignore[method-assign, assignment]
        until(lambda: not made.loop.call(lambda: len(made.server._connections)))
        with pytest.raises(psycopg.OperationalError, match="token is not valid any more"):
            connection.execute("SELECT a FROM s.a")


def test_the_gateway_restarts_while_a_session_is_open(tmp_path: Path) -> None:
    with served(tmp_path) as made, made.connect() as connection:
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)
        made.restart_gateway()
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)


def test_clients_are_told_that_the_server_ends(tmp_path: Path) -> None:
    with served(tmp_path) as made, made.connect() as connection:
        made.loop.run(made.server.close())
        with pytest.raises(psycopg.OperationalError, match="the server ends"):
            connection.execute("SELECT a FROM s.a")


@pytest.mark.parametrize("option", ["--idle-in-transaction-seconds", "--statement-seconds", "--stall-seconds"])
@pytest.mark.parametrize("given", ["-1", "nan", "-inf", "soon"])
def test_seconds_are_not_negative(option: str, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each client that waits would be ended at once."""
    with pytest.raises(SystemExit):
        parser().parse_args([f"{option}={given}"])
    assert given in capsys.readouterr().err


def test_no_token_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    with served(tmp_path) as made:
        with made.connect():
            pass
        refused(made, password="a-wrong-token")
        made.says(lambda sql, dialect: ONE)
    assert "a-wrong-token" not in caplog.text
    assert os.environ.get("PGPASSWORD") is None
