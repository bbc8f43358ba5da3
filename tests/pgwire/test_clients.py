"""Real clients: psql, psycopg (async, pools of connections), cancel requests, clients that read nothing, SUBSCRIBE."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.controller.harness import at
from tests.gateway.auth.test_access import ANNE
from tests.gateway.registries import add_dataflow
from tests.pgwire.frames import Frames, secured
from tests.pgwire.served import LISTS, MAY_READ, TOKEN, Rows, Served, served
from tests.waiting import BOUND, until
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_pgwire import gateway
from tidemark_pgwire.messages.wire import WRITE_AHEAD_BYTES
from tidemark_pgwire.session.session import SessionLimits
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.messages.responses import SubscribeBatch
from tidemark_protocol.types import BIGINT, STRING, Column

WIDE = Rows((Column("a", STRING),), pa.table({"a": ["x" * 1000] * 20_000}))


def psql(server: Served, *statements: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed: make test-packages")
    target = f"host=127.0.0.1 port={server.port} dbname=ns user=anne sslmode=verify-full sslrootcert={server.authority}"
    given = [argument for each in statements for argument in ("-c", each)]
    return subprocess.run(
        [program, "-X", "--csv", "-v", "ON_ERROR_STOP=1", *options, target, *given],
        env={**os.environ, "PGPASSWORD": TOKEN},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


def test_psql(server: Served) -> None:
    done = psql(
        server,
        "SELECT a FROM s.a; SHOW dialect",
        "BEGIN",
        "SET LOCAL tidemark.as_of = 300",
        "COPY (SELECT a FROM s.a) TO STDOUT WITH CSV HEADER",
        "COMMIT",
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = ["a", "1", "2", "3", "dialect", "postgres", "BEGIN", "SET", "a", "1", "2", "3", "COMMIT"]
    assert done.stdout.split() == expected
    failed = psql(server, "SELECT a FROM s.a; TRUNCATE x")
    assert failed.returncode == 1
    assert "cannot execute TRUNCATE" in failed.stderr


def test_psql_reads_rows_in_parts(server: Served) -> None:
    """FETCH_COUNT makes cursors of its queries."""
    many = Rows((Column("a", BIGINT),), pa.table({"a": pa.array(range(2500), pa.int64())}))
    server.says(lambda sql, dialect: many)
    done = psql(server, "SELECT a FROM s.a", options=("-v", "FETCH_COUNT=1000", "-t"))
    assert done.stdout.split() == [str(n) for n in range(2500)]


def test_asynchronous_connections(server: Served) -> None:
    async def ask(number: int) -> int:
        async with await psycopg.AsyncConnection.connect(**server.options(autocommit=True)) as connection:
            cursor = await connection.execute("SELECT a FROM s.a WHERE a > %s", [number], binary=bool(number % 2))
            return len(await cursor.fetchall())

    async def together() -> list[int]:
        return await asyncio.gather(*map(ask, range(12)))

    assert asyncio.run(together()) == [3] * 12


def test_pipelines(server: Served) -> None:
    with server.connect() as connection, connection.pipeline():
        cursors = [connection.execute("SELECT a FROM s.a WHERE a > %s", [n]) for n in range(20)]
        assert [len(cursor.fetchall()) for cursor in cursors] == [3] * 20
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), connection.pipeline():  # noqa: PT012
            connection.execute("SELECT a FROM s.a")
            connection.execute("TRUNCATE s.a")
            connection.execute("SELECT a FROM s.a")
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)


def test_a_cancel_request_ends_the_statement(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.connect() as connection:
        server.answers.held = server.loop.call(asyncio.Event)
        seen = len(server.answers.read)
        timer = threading.Thread(
            target=lambda: (until(lambda: len(server.answers.read) > seen), connection.cancel_safe())
        )
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="due to user request"):
            connection.execute("SELECT a FROM s.a")
        timer.join()
        until(lambda: server.answers.canceled == 1)
        server.answers.held = None
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)


def test_a_wrong_key_cancels_nothing(server: Served) -> None:
    with Frames(server) as frames:
        pid, secret = struct.unpack("!II", frames.key)
        with secured(server) as other:
            other.sendall(struct.pack("!IIII", 16, 80877102, pid, secret ^ 1))
            assert other.recv(1) == b""
        frames.send(b"Q", b"SELECT a FROM s.a\0")
        assert b"".join(kind for kind, _ in frames.until_ready()) == b"TDDDCZ"


def test_a_statement_has_its_time(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.connect() as connection:
        server.answers.held = server.loop.call(asyncio.Event)
        for limit in ("1s", "20s"):  # on a busy machine the time may be over before a replica is asked
            connection.execute(f"SET statement_timeout = '{limit}'".encode())
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute("SELECT a FROM s.a")
            if server.answers.read:
                break
        assert server.answers.read
        until(lambda: server.answers.canceled == len(server.answers.read))


def test_no_word_and_no_setting_lifts_the_limit_of_a_statement(tmp_path: Path) -> None:
    with served(tmp_path, limits=SessionLimits(statement_seconds=0.5)) as server, server.connect() as connection:
        server.answers.held = server.loop.call(asyncio.Event)
        for setting in ("0", "'20d'"):
            connection.execute(f"SET statement_timeout = {setting}")
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute("SELECT a FROM s.a WHERE a > 0 /* SUBSCRIBE */")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET statement_timeout = '999999999999d'")


def streamed(connection: psycopg.Connection[Any]) -> list[Any]:
    return list(connection.cursor().stream("SUBSCRIBE s.a AS OF 300"))


def fetched(connection: psycopg.Connection[Any]) -> list[Any]:
    with connection.transaction():
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE s.a AS OF 300")
        return connection.execute("FETCH 10 FROM c").fetchall()


@pytest.mark.parametrize("ask", [streamed, fetched])
def test_subscribe_has_no_limit_of_time(tmp_path: Path, ask: Callable[[psycopg.Connection[Any]], list[Any]]) -> None:
    """In the extended protocol, and by a cursor."""
    with served(tmp_path, limits=SessionLimits(statement_seconds=0.5)) as server, server.connect() as connection:

        def late() -> None:
            until(lambda: server.running.clients.subscribes == 1)
            time.sleep(1.0)
            tell(server, 0, Frontier.empty(), updates((7, 499, 1)))

        teller = threading.Thread(target=late)
        teller.start()
        assert ask(connection) == [(499, 1, 7)]
        teller.join()


def test_a_query_goes_on_where_the_gateway_has_another_address(tmp_path: Path) -> None:
    """Its channel is closed once it has ended, whatever its time."""
    with served(tmp_path) as server, server.connect() as connection, ThreadPoolExecutor(1) as threads:
        server.answers.held = held = server.loop.call(asyncio.Event)
        asking = threads.submit(connection.execute, "SELECT a FROM s.a")
        until(lambda: server.answers.read)
        before, server.address = server.link._channel, replace(server.address, token="another")
        server.loop.run(server.link._find_again())
        assert server.loop.run(server.link.user(TOKEN)) == "anne"
        assert before is not None
        assert (before._closing, before._calls) == (None, 1)
        server.loop.call(held.set)
        assert asking.result(BOUND).fetchall() == [(1,), (2,), (3,)]
        until(lambda: before._closing is not None and before._closing.done())


def test_a_channel_that_was_replaced_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements on it are neither canceled nor late: they can be asked again."""
    monkeypatch.setattr(gateway, "REPLACED_SECONDS", 0.1)
    with served(tmp_path) as server, ThreadPoolExecutor(2) as threads:
        server.answers.held = server.loop.call(asyncio.Event)
        with server.connect() as first, server.connect() as second:
            asking = [
                threads.submit(first.execute, "SELECT a FROM s.a"),
                threads.submit(second.execute, "SUBSCRIBE s.a AS OF 300"),
            ]
            until(lambda: server.answers.read and server.running.clients.subscribes == 1)
            server.address = replace(server.address, token="another")
            server.loop.run(server.link._find_again())
            for each in asking:
                with pytest.raises(psycopg.errors.CannotConnectNow) as failed:
                    each.result(BOUND)
                assert "address changed" in str(failed.value.diag.message_hint)


def test_a_client_that_goes_ends_its_statement(tmp_path: Path) -> None:
    with served(tmp_path) as server, Frames(server) as frames:
        server.answers.held = server.loop.call(asyncio.Event)
        frames.send(b"Q", b"SELECT a FROM s.a\0")
        until(lambda: server.answers.read)
        frames.socket.close()
        until(lambda: server.answers.canceled == 1)
        until(lambda: not server.loop.call(lambda: len(server.server._connections)))


def test_a_client_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    """The server holds what may be written ahead of its 20 MB, and a slice."""
    with served(tmp_path, limits=SessionLimits(stall_seconds=1.0)) as server, Frames(server) as frames:
        server.says(lambda sql, dialect: WIDE)
        held = 0
        frames.send(b"Q", b"SELECT a FROM s.a\0")

        def written_ahead() -> int:
            connected = [each._wire for each in server.server._connections.values() if not each._wire.lost.done()]
            wires = [wire._transport for wire in connected]
            return sum(wire.get_write_buffer_size() for wire in wires if wire is not None)

        def ended() -> bool:
            nonlocal held
            held = max(held, server.loop.call(written_ahead))
            return not server.loop.call(lambda: len(server.server._connections))

        until(ended)
        assert 0 < held < WRITE_AHEAD_BYTES + (2 << 20)
        with server.connect() as connection:
            assert len(connection.execute("SELECT a FROM s.a").fetchall()) == 20_000


def updates(*rows: tuple[int, int, int]) -> bytes:
    """a, time, diff."""
    a, time, diff = ([row[at] for row in rows] for at in range(3))
    table = pa.table([a, time, diff, pa.array(range(len(rows)), pa.uint64())], ["c0", "__time", "__diff", "__part"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def tell(server: Served, lower: int, upper: Frontier, data: bytes) -> None:
    """A batch for the only subscribe, once it runs."""
    clients = server.running.clients
    until(lambda: clients.subscribes == 1)

    def put() -> None:
        ((id, (_, subscription)),) = clients._subscriptions.items()
        subscription.put(SubscribeAdvanced(id, SubscribeBatch(at(lower), upper, data, None), (at(lower), 0)))

    server.loop.call(put)


def test_subscribe_sends_rows_as_they_come(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.connect() as connection:
        teller = threading.Thread(target=tell, args=(server, 0, at(600), updates((7, 499, 1), (8, 500, 1))))
        teller.start()
        rows = connection.cursor().stream("SUBSCRIBE (SELECT a FROM s.a)")
        assert [next(rows), next(rows)] == [(499, 1, 7), (500, 1, 8)]
        teller.join()
        tell(server, 600, Frontier.empty(), updates((7, 600, -1)))
        assert list(rows) == [(600, -1, 7)]
        assert server.answers.asked[-1] == ("SELECT a FROM s.a", "postgres")


def test_subscribe_by_a_cursor(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE s.a AS OF 300")
        tell(server, 0, at(600), updates((7, 300, 1), (8, 500, 1)))
        assert connection.execute("FETCH 1 FROM c").fetchall() == [(300, 1, 7)]
        assert connection.execute("FETCH 10 FROM c").fetchall() == [(500, 1, 8)]
        connection.execute("ROLLBACK")
        until(lambda: server.running.clients.subscribes == 0)


def read_all(connection: psycopg.Connection[Any], text: str) -> None:
    if not text.startswith("COPY"):
        connection.execute(text.encode())
        return
    with connection.cursor().copy(text.encode()) as copy:
        list(copy)


@pytest.mark.parametrize("text", ["SUBSCRIBE s.a", "COPY (SUBSCRIBE s.a) TO STDOUT", "FETCH ALL FROM c"])
def test_the_session_goes_on_after_a_canceled_subscribe(tmp_path: Path, text: str) -> None:
    with served(tmp_path) as server, server.connect() as connection:
        if "FETCH" in text:
            connection.execute("BEGIN")
            connection.execute("DECLARE c CURSOR FOR SUBSCRIBE s.a")

        def stop() -> None:
            tell(server, 0, at(600), updates((7, 499, 1), (8, 500, 1)))
            connection.cancel_safe(timeout=BOUND)

        stopping = threading.Thread(target=stop)
        stopping.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            read_all(connection, text)
        stopping.join()
        connection.execute("ROLLBACK")
        until(lambda: server.running.clients.subscribes == 0)
        assert connection.execute("SELECT a FROM s.a").fetchall() == [(1,), (2,), (3,)]


def test_subscribe_by_copy(tmp_path: Path) -> None:
    """psql shows its lines as they come."""
    with served(tmp_path) as server, server.connect() as connection:
        teller = threading.Thread(target=tell, args=(server, 0, Frontier.empty(), updates((9, 499, 1))))
        teller.start()
        with connection.cursor().copy("COPY (SUBSCRIBE s.a) TO STDOUT") as copy:
            assert [bytes(each) for each in copy] == [b"499\t1\t9\n"]
        teller.join()


def test_explain(server: Served) -> None:
    with server.connect() as connection:
        assert connection.execute("EXPLAIN SELECT a FROM s.a").fetchall()
    assert server.answers.asked[-1] == ("SELECT a FROM s.a", "postgres")


def test_the_catalogue_has_what_the_user_may_see(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        found = server.loop.run(server.link.relations(TOKEN, "ns"))
        assert [(each.namespace, each.name, each.kind) for each in found] == [("s", "a", "table"), ("s", "b", "table")]
        assert server.loop.run(server.link.relations(TOKEN, "elsewhere")) == ()
        server.api_server.allowed = ()
        server.gateway._authenticator._answers._answers.clear()
        assert server.loop.run(server.link.relations(TOKEN, "ns")) == ()


def test_who_may_not_list_objects_sees_those_whose_rows_it_may_read(tmp_path: Path) -> None:
    """And learns no name of another one."""
    with served(tmp_path, allowed=(MAY_READ,)) as server:
        server.loop.call(lambda: add_dataflow(server.registry, "secret", shards=("s.a",)))
        found = server.loop.run(server.link.relations(TOKEN, "ns"))
        assert [(each.namespace, each.name) for each in found] == [("s", "a"), ("s", "b")]
        server.api_server.allowed = (*LISTS, MAY_READ)
        server.gateway._authenticator._answers._answers.clear()
        found = server.loop.run(server.link.relations(TOKEN, "ns"))
        assert [(each.namespace, each.name, each.kind, each.short) for each in found] == [
            ("s", "a", "table", False),
            ("s", "b", "table", False),
            ("secret", "e", "view", True),
        ]


def test_the_catalogue_answers_for_itself(server: Served) -> None:
    """By a process beside the server, with the relations that the gateway shows to the user."""
    with server.connect() as connection:
        server.answers.read.clear()
        assert connection.execute("SELECT current_user, current_database()").fetchone() == (ANNE.name, "ns")
        found = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 2", ["s"]
        ).fetchall()
        assert found == [("s", "a"), ("s", "b")]
        assert server.answers.read == []
    with Frames(server) as frames:
        frames.send(b"P", b"s\0SELECT relname FROM pg_catalog.pg_class WHERE oid = $1\0\0\0")
        frames.send(b"D", b"Ss\0")
        frames.send(b"B", b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\x04\xeb\0\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        told = dict(frames.until_ready())
    assert told[b"t"] == struct.pack("!HI", 1, 26)
    assert b"pg_class" in told[b"D"]


@pytest.mark.slow
def test_a_thousand_idle_connections(tmp_path: Path) -> None:
    """Each takes little memory, and the next client is answered as if it were alone."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with (
        served(tmp_path, limits=SessionLimits(connections=1001, user_connections=1001, starting=1001)) as server,
        ExitStack() as stack,
    ):
        before = resource_bytes()
        for _ in range(1000):
            stack.enter_context(Frames(server))
        gc.collect()
        assert (resource_bytes() - before) / 1000 < 600_000  # both ends, of which each has a buffer of 256 KiB for TLS
        with server.connect() as connection:
            assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)


def resource_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
