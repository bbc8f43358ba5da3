"""The queries of all sessions go over one stream to the gateway: each has its own answer, end, token and place."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pyarrow as pa
import pytest

from tests.pgwire.served import NAMESPACE, ONE, Rows, Served, _ipc, served
from tests.waiting import BOUND, until
from tidemark_operator.errors import QueryRefused
from tidemark_pgwire import gateway
from tidemark_pgwire.query_stream import SharedStream
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Finishing, PlannedPeek, PlanQueryRequest
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT, Column, ColumnType

CLIENTS, ROUNDS = 32, 40
LOOKUP = b"SELECT a FROM s.a WHERE a = %s"
LARGE = pa.table({"a": pa.array(range(600_000), pa.int64())})


class Keyed:
    """Each lookup has the row of its own key, and those with a key in `held` have it once `go` is set."""

    def __init__(self, server: Served) -> None:
        self._server, self.held, self.seen = server, set[int](), list[int]()
        self.go = server.loop.call(asyncio.Event)
        server.answers.plan_query = self._plan  # type: ignore[method-assign]
        server.answers.peek = self._peek  # type: ignore[method-assign]

    async def _plan(self, request: PlanQueryRequest) -> PlannedPeek:
        if (found := re.search(r"'(-?\d+)'", request.sql)) is None:
            raise QueryRefused("no key")
        key = ((Literal(found[1], BIGINT),),)
        return PlannedPeek(
            GlobalId("s.a"), MapFilterProject((ColumnType(BIGINT),)), Finishing(), (Column("a", BIGINT),), key
        )

    async def _peek(self, peek: Any, target: Any) -> PeekRows:
        key = int(peek.literals[0][0].value)
        self.seen.append(key)
        try:
            if key in self.held:
                await self.go.wait()
            else:
                await asyncio.sleep(random.choice((0, 0, 0.001, 0.02)))
        except asyncio.CancelledError:
            self._server.answers.canceled += 1
            raise
        rows = pa.table({"a": pa.array([key], pa.int64())}) if key >= 0 else LARGE
        return PeekRows(_ipc(rows), rows.num_rows)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


def stream_of(server: Served) -> SharedStream | None:
    return server.link._channel._stream if server.link._channel is not None else None


def test_each_connection_has_its_own_rows_among_cancels_and_timeouts(server: Served) -> None:
    Keyed(server)

    def one(number: int) -> int:
        rng, answered = random.Random(number), 0
        with server.connect() as connection:
            for turn in range(ROUNDS):
                key = number * ROUNDS + turn
                fate = rng.choice(("none", "none", "timeout", "cancel"))
                limit = "3ms" if fate == "timeout" else "0"
                connection.execute(f"SET statement_timeout = '{limit}'".encode())
                timer = threading.Timer(rng.random() / 50, connection.cancel_safe) if fate == "cancel" else None
                if timer is not None:
                    timer.start()
                try:
                    found = connection.execute(LOOKUP, [key]).fetchall()
                    assert found == [(key,)]
                    answered += 1
                except psycopg.errors.QueryCanceled:
                    assert fate != "none"
                finally:
                    if timer is not None:
                        timer.join(BOUND)
                        settle(connection)
        return answered

    with ThreadPoolExecutor(CLIENTS) as threads:
        answered = list(threads.map(one, range(CLIENTS)))
    assert all(answered)
    assert stream_of(server) is not None
    until(lambda: not server.loop.call(lambda: [each._running for each in server.gateway._streams if each._running]))
    assert server.loop.call(lambda: stream_of(server)._queries) == {}  # type: ignore[union-attr]


def settle(connection: psycopg.Connection[Any]) -> None:
    """A cancel request may come after its statement has ended, and end the next one."""
    connection.execute("SET statement_timeout = 0")
    for _ in range(2):
        try:
            connection.execute(LOOKUP, [0])
        except psycopg.errors.QueryCanceled:
            continue


def test_answers_are_not_held_up_by_one_that_nobody_reads(server: Served) -> None:
    """It goes on where it was, in several pieces, and is whole."""
    Keyed(server)
    with server.connect() as slow, server.connect() as quick, slow.transaction(), slow.cursor("slow") as cursor:
        cursor.execute(b"SELECT a FROM s.a WHERE a = %s" % b"'-1'")
        cursor.itersize = 10_000
        rows = iter(cursor)
        assert next(rows) == (0,)
        assert [quick.execute(LOOKUP, [key]).fetchall() for key in range(50)] == [[(key,)] for key in range(50)]
        assert [key for (key,) in rows] == list(range(1, len(LARGE)))


def test_a_canceled_query_is_canceled_at_the_gateway(server: Served) -> None:
    keyed = Keyed(server)
    keyed.held.add(7)
    with server.connect() as connection:
        timer = threading.Thread(target=lambda: (until(lambda: 7 in keyed.seen), connection.cancel_safe()))
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(LOOKUP, [7])
        timer.join(BOUND)
        until(lambda: server.answers.canceled == 1)
        assert connection.execute(LOOKUP, [8]).fetchall() == [(8,)]


def test_queries_of_a_stream_that_breaks_are_asked_again(server: Served) -> None:
    """By calls of their own, then by a stream of the next gateway."""
    keyed = Keyed(server)
    keys = range(100, 108)
    keyed.held.update(keys)
    with ThreadPoolExecutor(len(keys)) as threads:
        connections = [server.connect() for _ in keys]
        asked = [threads.submit(c.execute, LOOKUP, [key]) for c, key in zip(connections, keys, strict=True)]
        until(lambda: set(keys) <= set(keyed.seen))
        before = stream_of(server)
        server.restart_gateway()
        server.running.answers = server.answers  # type: ignore[assignment]
        server.loop.call(keyed.go.set)
        assert [each.result(BOUND).fetchall() for each in asked] == [[(key,)] for key in keys]
        assert before is not None
        assert before.ended

        def again() -> bool:
            assert connections[0].execute(LOOKUP, [5]).fetchall() == [(5,)]
            now = stream_of(server)
            return now is not None and now is not before and not now.ended

        until(again)
        for each in connections:
            each.close()


def test_an_answer_that_is_cut_off_is_an_error(server: Served) -> None:
    """Its client has a part of it."""
    Keyed(server)
    with server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute(b"DECLARE c CURSOR FOR SELECT a FROM s.a WHERE a = '-1'")
        assert connection.execute("FETCH 1 FROM c").fetchall() == [(0,)]
        server.restart_gateway()
        with pytest.raises(psycopg.errors.CannotConnectNow):
            connection.execute("FETCH ALL FROM c")


def test_a_statement_that_is_too_long_for_a_message_ends_no_other(server: Served) -> None:
    """Its parameters are part of it."""
    Keyed(server)
    with server.connect() as reader, server.connect() as other:
        reader.execute("BEGIN")
        reader.execute(b"DECLARE c CURSOR FOR SELECT a FROM s.a WHERE a = '-1'")
        assert reader.execute("FETCH 1 FROM c").fetchall() == [(0,)]
        before = stream_of(server)
        with pytest.raises(psycopg.errors.DatabaseError):
            other.execute(f"SELECT a FROM s.a WHERE a IN ({','.join(['%(x)s'] * 12)})", {"x": "y" * 400_000})  # type: ignore[arg-type]
        assert len(reader.execute("FETCH ALL FROM c").fetchall()) == len(LARGE) - 1
        assert stream_of(server) is before


def test_a_stream_of_an_unknown_token_fails_its_own_query_alone(server: Served) -> None:
    """Another one that waits on the same stream is asked by a call of its own."""
    Keyed(server)
    asked = pb.QueryRequest(namespace=NAMESPACE, sql="SELECT a FROM s.a WHERE a = '3'", dialect="postgres")

    async def both() -> list[Any]:
        tokens = ("nobodys", "annes")
        return await asyncio.gather(*(server.link.query(token, asked) for token in tokens), return_exceptions=True)

    refused, answered = server.loop.run(both())
    assert refused.sqlstate == "28000"
    assert pa.ipc.open_stream(b"".join(read(server, answered))).read_all().to_pydict() == {"a": [3]}


def read(server: Served, reading: Any) -> list[bytes]:
    async def pieces() -> list[bytes]:
        try:
            return [reading.first, *[piece async for piece in reading.further_pieces()]]
        finally:
            await reading.close()

    return server.loop.run(pieces())


def test_a_query_of_an_open_stream_has_its_own_rights(server: Served) -> None:
    Keyed(server)
    with server.connect() as connection:
        assert connection.execute(LOOKUP, [1]).fetchall() == [(1,)]
        opened = stream_of(server)
        request = pb.QueryRequest(namespace=NAMESPACE, sql="SELECT a FROM s.a WHERE a = '1'", dialect="postgres")

        async def ask() -> Any:
            return await asyncio.gather(server.link.query("nobodys", request), return_exceptions=True)

        (refused,) = server.loop.run(ask())
        assert refused.sqlstate == "28000"
        assert connection.execute(LOOKUP, [2]).fetchall() == [(2,)]
        server.api_server.allowed = ()
        server.loop.call(server.gateway._authenticator._answers._answers.clear)  # they are kept for TTL_SECONDS
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(LOOKUP, [3])
        assert stream_of(server) is opened


def test_a_gateway_that_knows_no_stream_is_asked_by_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version of the operator."""

    async def unknown(self: Any, requests: Any, rpc: Any) -> None:
        await rpc.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    monkeypatch.setattr("tidemark_operator.gateway.server.server.Gateway.Queries", unknown)
    monkeypatch.setattr(gateway, "STREAM_SECONDS", 0.0)
    with served(tmp_path) as server, server.connect() as connection:
        opened = list[SharedStream]()
        for _ in range(3):
            assert len(connection.execute("SELECT a FROM s.a").fetchall()) == len(ONE.table)
            opened += [each] if (each := stream_of(server)) is not None and each not in opened else []
        assert len(opened) == 1  # and none for a minute


def test_an_operator_that_ends_waits_for_no_open_stream(server: Served) -> None:
    Keyed(server)
    with server.connect() as connection:
        assert connection.execute(LOOKUP, [1]).fetchall() == [(1,)]
        (stream,) = server.gateway._streams
        server.restart_gateway()
        assert stream._finishing
        assert connection.execute(LOOKUP, [2]).fetchall() == [(2,)]


def test_an_answer_without_rows_has_its_columns(server: Served) -> None:
    table = pa.table({"a": pa.array([], pa.int64())})
    server.says(lambda sql, dialect: Rows((Column("a", BIGINT),), table))
    with server.connect() as connection:
        assert connection.execute("SELECT a FROM s.a").fetchall() == []
        assert connection.execute("SELECT a FROM s.a WHERE a > %s", [1]).fetchall() == []
