"""`tidemark.connect()` against scripted gateways, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

import tidemark
from tests.cli.test_commands import ROWS
from tests.cli.test_commands import Scripted as Answers
from tests.cli.test_subscribe import FIRST, HEADER
from tests.cli.test_subscribe import Scripted as Subscribes
from tidemark.errors import is_passing, of_code
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server

TUPLES = [tuple(row.values()) for row in ROWS.to_pylist()]


@pytest.mark.parametrize(
    ("code", "sqlstate", "passes"),
    [
        (grpc.StatusCode.UNAVAILABLE, "", True),
        (grpc.StatusCode.UNAUTHENTICATED, "28000", True),
        (grpc.StatusCode.CANCELLED, "", True),
        (grpc.StatusCode.FAILED_PRECONDITION, "57P03", True),
        (grpc.StatusCode.FAILED_PRECONDITION, "22000", False),
        (grpc.StatusCode.FAILED_PRECONDITION, "55000", False),
        (grpc.StatusCode.PERMISSION_DENIED, "42501", False),
        (grpc.StatusCode.INVALID_ARGUMENT, "40001", False),
        (grpc.StatusCode.OUT_OF_RANGE, "72000", False),
    ],
)
def test_a_gateway_that_is_away_or_begins_is_asked_again(code: grpc.StatusCode, sqlstate: str, passes: bool) -> None:
    """And not one that refuses the call, or whose rows are in error."""
    assert is_passing(of_code("why", code, sqlstate)) is passes


@contextmanager
def connected(gateway: GatewayServicer | None) -> Iterator[tidemark.Connection]:
    """To a gateway; None: one that has no calls at all."""
    server = grpc.server(ThreadPoolExecutor(4))
    if gateway is not None:
        add_GatewayServicer_to_server(gateway, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with tidemark.connect(f"127.0.0.1:{port}", token="secret", namespace="ns", instance="i") as connection:
            yield connection
    finally:
        server.stop(None).wait()


def test_rows_are_tuples_in_parts_or_at_once() -> None:
    answers = Answers()
    with connected(answers) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT ?", ["it's"], as_of=7, strict=True) is cursor
        assert cursor.description is not None
        assert cursor.description[0][:2] == ("carrier", "string")
        assert cursor.description[1][1] == tidemark.NUMBER == cursor.description[2][1] != tidemark.STRING
        assert (cursor.as_of, cursor.rowcount) == (1000, -1)
        assert [cursor.fetchone(), *cursor.fetchmany(1), *cursor.fetchall(), cursor.fetchone()] == [*TUPLES, None]
        assert list(cursor.execute("SELECT 1")) == TUPLES
    asked = answers.asked[0]
    found = (asked.sql, asked.namespace, asked.instance, asked.as_of, asked.strict)
    assert found == (
        "SELECT  'it\\'s' ",
        "ns",
        "i",
        7,
        True,
    )


@pytest.mark.parametrize("taken", range(4))
def test_the_rest_is_an_arrow_table(taken: int) -> None:
    with connected(Answers()) as connection:
        cursor = connection.cursor().execute("SELECT 1")
        assert cursor.fetchmany(taken) == TUPLES[:taken]
        table = cursor.fetch_arrow()
        assert table.equals(ROWS.slice(taken))
        assert (cursor.fetchone(), cursor.fetch_arrow().num_rows) == (None, 0)
        assert len(table.to_pandas()) == 3 - taken
        cursor = connection.cursor().execute("SELECT 1")
        assert cursor.fetchmany(taken) == TUPLES[:taken]
        batches = list(cursor.fetch_batches())
        assert [row for batch in batches for row in batch.to_pylist()] == ROWS.slice(taken).to_pylist()
        assert cursor.fetchone() is None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, tidemark.ProgrammingError),
        (grpc.StatusCode.OUT_OF_RANGE, tidemark.DataError),
        (grpc.StatusCode.PERMISSION_DENIED, tidemark.OperationalError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, tidemark.OperationalError),
        (grpc.StatusCode.INTERNAL, tidemark.InternalError),
        (grpc.StatusCode.UNAVAILABLE, tidemark.OperationalError),
    ],
)
def test_each_status_is_an_error_of_pep_249(code: grpc.StatusCode, error: type[tidemark.Error]) -> None:
    answers = Answers()
    answers.failure = (code, "why")
    with connected(answers) as connection:
        with pytest.raises(error) as failed:
            connection.cursor().execute("SELECT 1")
        assert failed.value.code is code
        answers.failure = None
        assert connection.cursor().execute("SELECT 1").fetchall() == TUPLES


def test_a_call_that_an_older_gateway_does_not_have_says_so() -> None:
    refused = pytest.raises(tidemark.NotSupportedError, match=r"no such call .*: operator and client are of different")
    with connected(None) as connection, connection.cursor() as cursor, refused:
        cursor.execute("SELECT 1")


def test_a_lost_way_is_found_again_once() -> None:
    """A token that the gateway does not know, or a gateway that is away: a read is asked for again."""

    class Restarted(Answers):
        def Query(self, request: pb.QueryRequest, context: grpc.ServicerContext) -> Iterator[pb.QueryReply]:
            if not self.asked:
                self.asked.append(request)
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "begun anew")
            yield from super().Query(request, context)

    with connected(Restarted()) as connection:
        assert connection.cursor().execute("SELECT 1").fetchall() == TUPLES


def test_an_answer_that_breaks_off_is_an_error() -> None:
    """The cursor gives none of the rows that came before the connection was lost."""

    class Lost(Answers):
        def Query(self, request: pb.QueryRequest, context: grpc.ServicerContext) -> Iterator[pb.QueryReply]:
            replies = list(super().Query(request, context))
            yield from replies[: 2 * len(replies) // 3]
            context.abort(grpc.StatusCode.ABORTED, "the replica that keeps the answer was lost")

    with connected(Lost()) as connection:
        with pytest.raises(tidemark.OperationalError, match="was lost"):
            connection.cursor().execute("SELECT 1").fetchall()
        with pytest.raises(tidemark.OperationalError, match="was lost"):
            connection.cursor().execute("SELECT 1").fetch_arrow()
        cursor = connection.cursor().execute("SELECT 1")
        for fetch in (cursor.fetchall, cursor.fetchone, cursor.fetch_arrow, cursor.fetchmany, lambda: list(cursor)):
            with pytest.raises(tidemark.OperationalError, match="was lost"):
                fetch()


def interrupted() -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("fetch", ["fetchone", "fetchall", "fetch_arrow"])
def test_an_answer_that_is_interrupted_is_an_error_and_its_call_ends(fetch: str) -> None:
    """Ctrl-C interrupts it: the rows that come next are not the rest of the answer, and no answer is not an empty
    one."""
    with connected(Answers()) as connection:
        cursor = connection.cursor().execute("SELECT 1")
        cursor._batches, call = iter(interrupted, None), cursor._call
        with pytest.raises(KeyboardInterrupt):
            getattr(cursor, fetch)()
        assert not call.is_active()
        for again in (cursor.fetchone, cursor.fetchall, cursor.fetch_arrow):
            with pytest.raises(tidemark.OperationalError, match=r"broken off \(KeyboardInterrupt\): execute it again"):
                again()
        assert cursor.execute("SELECT 1").fetchall() == TUPLES


def test_a_subscribe_after_one_that_was_lost_finds_the_gateway_anew() -> None:
    class Restarted(Subscribes):
        def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
            if not self.asked:
                self.asked.append(request)
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "begun anew")
            yield from super().Subscribe(request, context)

    with connected(Restarted()) as connection:
        before = connection.link.gateway()
        with pytest.raises(tidemark.OperationalError, match="does not know this token"):
            asyncio.run(changes_by_time(connection))
        assert len(asyncio.run(changes_by_time(connection))) == 2
        assert connection.link.gateway() is not before


def test_what_is_closed_or_wrong_is_refused() -> None:
    with connected(Answers()) as connection:
        cursor = connection.cursor()
        with pytest.raises(tidemark.InterfaceError, match="execute a statement first"):
            cursor.fetchone()
        cursor.close()
        with pytest.raises(tidemark.InterfaceError, match="cursor is closed"):
            cursor.execute("SELECT 1")
        connection.commit()
        with pytest.raises(tidemark.NotSupportedError):
            connection.rollback()
        connection.close()
        with pytest.raises(tidemark.InterfaceError, match="connection is closed"):
            connection.cursor().execute("SELECT 1")
    with pytest.raises(tidemark.InterfaceError, match="token and service_account exclude each other"):
        tidemark.connect("127.0.0.1:1", token="a", service_account="b", namespace="ns")
    with pytest.raises(tidemark.OperationalError, match="not on loopback, so the token needs TLS"):
        tidemark.connect("gateway:1", token="a", namespace="ns")


async def changes_by_time(connection: tidemark.Connection, **options: Any) -> list[tuple[int, list[tuple[Any, ...]]]]:
    return [
        (time, [tuple(row.values()) for row in changes.to_pylist()])
        async for time, changes in connection.subscribe("delays", **options)
    ]


def test_changes_of_a_time_come_together_and_once() -> None:
    """Also those that came in several batches, of which one has what another had."""
    gateway = Subscribes()
    with connected(gateway) as connection:
        changes = asyncio.run(changes_by_time(connection, as_of=5, snapshot=False))
    assert changes == [(1000, [(1, "a", 1), (1, "b", 2), (1, "c", 3)]), (2000, [(-1, "a", 1)])]
    (asked,) = gateway.asked
    assert (asked.as_of, asked.without_snapshot, asked.namespace, asked.instance) == (5, True, "ns", "i")


def test_progress_has_times_without_changes() -> None:
    with connected(Subscribes()) as connection:
        changes = asyncio.run(changes_by_time(connection, progress=True))
    assert [(time, len(rows)) for time, rows in changes] == [(1000, 3), (2000, 1), (2999, 0)]


def test_no_progress_comes_before_the_rows() -> None:
    """To go on from such a time, without the rows, would miss them."""

    class Empty(Subscribes):
        def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
            yield pb.SubscribeReply(header=HEADER)
            for lower, upper in ((0, HEADER.as_of), (HEADER.as_of, HEADER.as_of + 1)):
                yield pb.SubscribeReply(batch=pb.SubscribeBatch(lower=lower, upper=upper))

    with connected(Empty()) as connection:
        assert asyncio.run(changes_by_time(connection, progress=True)) == [(HEADER.as_of, [])]


def test_half_of_a_time_is_never_told() -> None:
    """The subscribe ends within one."""

    class Broken(Subscribes):
        def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
            yield pb.SubscribeReply(header=HEADER)
            yield pb.SubscribeReply(batch=pb.SubscribeBatch(upper=1000, arrow=FIRST))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "division by zero")

    with connected(Broken()) as connection, pytest.raises(tidemark.OperationalError, match="division by zero"):
        assert asyncio.run(changes_by_time(connection)) == []
