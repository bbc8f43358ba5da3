"""Queries and subscribes over HTTP: real HTTP, and the gateway's own queries and subscribes; a replica is scripted."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pyarrow as pa
import pytest

from tests.controller.harness import R1, at
from tests.gateway.registries import registry, shard_of
from tests.gateway.test_access import ApiServer
from tests.gateway.test_metrics import Deaf
from tests.gateway.test_rights import LISTS
from tests.gateway.test_stream_limits import Planner
from tests.waiting import BOUND
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import AnswerLost, SubscribeEnded
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.instance_listener import InstanceListener
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.fleet.subscription import Backlog, Subscription
from tidemark_operator.gateway.admission.limits import PEEKS_BYTES, Limits
from tidemark_operator.gateway.auth.access import Authenticator
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.gateway.server import arrow_batches
from tidemark_operator.gateway.server.http_reads import HttpReads
from tidemark_operator.gateway.server.http_server import HttpServer
from tidemark_operator.gateway.streams.query_answer import Queries
from tidemark_operator.gateway.streams.subscribe import Subscribes
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.reviews import Reviews
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlanRequest
from tidemark_protocol.messages.responses import PeekError, PeekRows, PeekStashed, SubscribeBatch
from tidemark_protocol.plan.dataflow import SubscribeSink
from tidemark_protocol.types import STRING, Column

MAY_READ = "get datasources/data s in namespace ns"
QUERY = {"namespace": "ns", "instance": "default", "sql": "SELECT * FROM s.a"}
SUBSCRIBE = {"namespace": "ns", "instance": "default", "subject": "SELECT * FROM s.a"}
ANNE = {"Authorization": "Bearer annes"}
PIECE = 100
MARK = "b9f2dc8b600b0abe"
"""Of what SUBSCRIBE reads: browsers keep it, so it must not change."""


@dataclass
class Replica:
    """The other side: how it answers peeks. `lost`: it is gone after so many bytes of a stashed answer."""

    answer: PeekRows | PeekStashed | PeekError = field(default_factory=lambda: PeekRows(arrow(range(3)), 3))
    stashed: bytes = b""
    lost: int | None = None
    released: list[str] = field(default_factory=list)

    async def peek(self, peek: Any, target: Any) -> Any:
        return self.answer

    def let_go(self, uuid: str) -> None:
        self.released.append(uuid)

    async def fetch(self, uuid: str, offset: int) -> bytes:
        if self.lost is not None and offset >= self.lost:
            raise AnswerLost("gone")
        return self.stashed[offset : offset + PIECE]


def arrow(values: Any, rows: int = 1 << 16) -> bytes:
    """An answer with column a."""
    table, sink = pa.table({"a": pa.array(values, pa.int64())}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def updates(*rows: tuple[int, int, int]) -> bytes:
    """a, time, diff; parts in order."""
    a, time, diff = ([row[at] for row in rows] for at in range(3))
    table = pa.table([a, time, diff, pa.array(range(len(rows)), pa.uint64())], ["c0", "__time", "__diff", "__part"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


async def until(holds: Callable[[], bool]) -> None:
    """Nothing tells when it changes; `play` bounds it."""
    for _ in iter(holds, True):
        await asyncio.sleep(0.001)


async def broken_off(answer: aiohttp.ClientResponse) -> str:
    """The text of a body that has no end."""
    text, payload = b"", answer.content
    with pytest.raises(aiohttp.ClientPayloadError):  # noqa: PT012
        async for piece in payload.iter_any():
            text += piece
    return text.decode()


class Served:
    """A gateway's HTTP, and what stands behind it. `session`: an HTTP client; `call(path)`: the URL."""

    def __init__(self, replica: Replica, allowed: tuple[str, ...]) -> None:
        self.replica, self.api_server, self.limits = replica, ApiServer(*allowed), Limits()
        fleet = Fleet(cast(Leadership, SimpleNamespace(term=WriterTerm(7))))
        fleet.listener = cast(InstanceListener, Deaf())
        self.running: RunningInstance = fleet.ensure("ns", InstanceConfig("default", "/data"))
        connection = SimpleNamespace(fetch=replica.fetch)
        self.running.replicas[R1] = ReplicaState(
            cast(Any, connection), cast(Any, None), asyncio.Event(), silent_since_ms=1
        )
        self.running.replicas[R1].online = True
        self.running.answers = cast(Any, replica)
        self.running.core.peeks.keeper = lambda uuid: R1  # type: ignore[method-assign]
        self.created, create = list[Dataflow](), self.running.create_transient

        def created(dataflow: Dataflow) -> None:
            self.created.append(dataflow)
            create(dataflow)

        self.running.create_transient = created  # type: ignore[method-assign]
        table, book = shard_of("s.a"), fleet.book("ns")
        book.register(table.shard_id, table.location)
        book.observe(table.shard_id, at(500), at(100))
        known, planner = registry(), cast(PlannerClient, Planner())
        self.context = context = cast(
            ReconcileContext, SimpleNamespace(registry=known, fleet=fleet, running=fleet.get, planner=planner)
        )
        statements = StatementCache(known, planner, self.limits.planner)
        queries = Queries(context, statements, cast(RetainedTables, None), self.limits)
        door = Authenticator("own", cast(Reviews, self.api_server))
        self._reads = HttpReads(queries, Subscribes(context, self.limits), door, self.limits)
        self._server = HttpServer([self._reads], None)

    async def __aenter__(self) -> Served:
        self._url = f"http://127.0.0.1:{await self._server.start('127.0.0.1', 0)}"
        self.session = aiohttp.ClientSession(headers=ANNE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self._server.close()

    def get(self, path: str, params: dict[str, str], **headers: str) -> Any:
        return self.session.get(
            self._url + path, params=params, headers={n.replace("_", "-"): v for n, v in headers.items()}
        )

    def post(self, params: dict[str, str], body: bytes) -> Any:
        return self.session.post(self._url + "/v1/query", params=params, data=body)

    async def text(self, path: str, params: dict[str, str], **headers: str) -> tuple[int, str]:
        async with self.get(path, params, **headers) as answer:
            return answer.status, await answer.text()

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", int(self._url.rpartition(":")[2]))

    async def raw(self, request: bytes) -> str:
        """The whole answer to these bytes."""
        reader, writer = await self.connected()
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer.decode()

    async def subscription(self) -> Subscription:
        """Of the only subscribe, once it runs."""
        await until(lambda: self.running.clients.subscribes == 1)
        ((_, subscription),) = self.running.clients._subscriptions.values()
        return subscription

    async def tell(self, lower: int, upper: Frontier, data: bytes = b"", upper_part: int = 0, part: int = 0) -> None:
        """A batch for the only subscribe."""
        batch = SubscribeBatch(at(lower), upper, data, None, part, upper_part)
        subscription, id = await self.subscription(), next(iter(self.running.clients._subscriptions))
        subscription.put(SubscribeAdvanced(id, batch, (at(lower), part)))


def play(
    story: Callable[[Served], Awaitable[Any]], replica: Replica | None = None, allowed: tuple[str, ...] = (MAY_READ,)
) -> Any:
    async def played() -> Any:
        async with asyncio.timeout(2 * BOUND), Served(replica or Replica(), allowed) as served:
            return await story(served)

    return asyncio.run(played())


@pytest.mark.parametrize(
    ("accept", "type", "text"),
    [
        ("*/*", "application/x-ndjson", '{"a": 0}\n{"a": 1}\n{"a": 2}\n'),
        ("text/html, application/x-ndjson;q=0.5", "application/x-ndjson", '{"a": 0}\n{"a": 1}\n{"a": 2}\n'),
        (
            "application/json",
            "application/json",
            '{"as_of": 499, "export": "s.a", "rows": [\n{"a": 0},\n{"a": 1},\n{"a": 2}\n]}\n',
        ),
        ("text/csv", "text/csv", "a\r\n0\r\n1\r\n2\r\n"),
    ],
    ids=["any", "lines", "document", "csv"],
)
def test_an_answer_has_its_time_and_is_of_the_accepted_type(accept: str, type: str, text: str) -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/query", QUERY, Accept=accept) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
            return answer.status, answer.headers["Tidemark-As-Of"], answer.content_type, await answer.text()

    assert play(story) == (200, "499", type, text)


def test_a_long_statement_is_the_body_of_a_post() -> None:
    rest = {name: value for name, value in QUERY.items() if name != "sql"}

    async def story(served: Served) -> Any:
        long = f"SELECT * FROM {' ' * 4000} s.a"
        answers = []
        for params, body in ((rest, long.encode()), (QUERY, b""), (rest, b"\xff"), (rest, b"x" * 600_000)):
            async with served.post(params, body) as answer:
                answers.append((answer.status, await answer.text()))
        return answers

    (good, rows), (both, why), (not_text, _), (large, _) = play(story)
    assert (good, rows) == (200, '{"a": 0}\n{"a": 1}\n{"a": 2}\n')
    assert (both, not_text, large) == (400, 400, 413)
    assert "has its statement in the body" in why


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("application/x-ndjson", ""),
        ("application/json", '{"as_of": 499, "export": "s.a", "rows": [\n]}\n'),
        ("text/csv", "a\r\n"),
    ],
)
def test_an_answer_without_rows_has_its_time_and_its_end(accept: str, text: str) -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/query", QUERY, Accept=accept) as answer:
            return answer.status, answer.headers["Tidemark-As-Of"], await answer.text()

    assert play(story, Replica(PeekRows(arrow([]), 0))) == (200, "499", text)


def test_a_large_answer_is_the_same_whatever_its_pieces() -> None:
    """It is stashed at the replica, in batches that begin and end within pieces, and let go when it was read."""
    data = arrow(range(5000), rows=700)
    replica = Replica(PeekStashed(5000, len(data)), data)

    async def story(served: Served) -> Any:
        return (await served.text("/v1/query", QUERY))[1]

    assert [json.loads(line)["a"] for line in play(story, replica).splitlines()] == list(range(5000))
    assert len(replica.released) == 1


@pytest.mark.parametrize("path", ["/v1/query?sql=SELECT", "/v1/subscribe?subject=s.a"])
def test_a_client_that_cannot_tell_a_part_from_the_whole_is_refused(path: str) -> None:
    """HTTP/1.0 has no chunks: a body ends with its connection, however that ends."""

    async def story(served: Served) -> Any:
        return await served.raw(f"GET {path} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer annes\r\n\r\n".encode())

    head, _, body = play(story).partition("\r\n\r\n")
    assert head.splitlines()[0].split()[1] == "505"
    assert "proxy_http_version 1.1" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("request_line", "header", "status"),
    [
        (b"GET /v1/query?sql=SELECT HTTP/1.1", b"Authorization: Bearer my-secret\x01", 400),
        (b"GET /v1/query?sql=SELECT HTTP/1.1", b"Authorization: Bearer my-secret" + b"x" * 9000, 400),
        (b"GET /v1/query?sql=SELECT HTTP/1.1", b"Authorization: Bearer my-secret\xff", 401),
        (b"GET /v1/query?sql=SELECT HTTP/1.1", "Authorization: Bearer my-secret\u00fc".encode(), 401),
        ("GET /v1/query?sql=my-secret-\u00fc HTTP/1.1".encode(), b"X: y", 400),
        (b"GET /v1/query?sql=my-secret-\xff HTTP/1.1", b"X: y", 400),
        (b"GET /v1/query?sql=my-secret" + b"x" * 9000 + b" HTTP/1.1", b"X: y", 400),
        (b"GET http://[my-secret/v1/query HTTP/1.1", b"X: y", 400),
        (b"GET /v1/query?sql=my-secret HTTP/1.1 HTTP/1.1", b"X: y", 400),
        (b"my-secret /v1/query HTTP/1.1", b"X: y", 400),
    ],
)
def test_no_token_and_no_statement_is_logged(
    request_line: bytes, header: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Not that of a request that is no HTTP, either."""
    caplog.set_level(logging.DEBUG)
    answer = play(
        lambda served: served.raw(request_line + b"\r\n" + header + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    )
    assert (int(answer.split()[1]), "secret" in caplog.text) == (status, False)


@pytest.mark.parametrize("accept", ["application/x-ndjson", "application/json", "text/csv"])
def test_crash_a_part_of_an_answer_is_never_taken_for_the_whole(accept: str) -> None:
    """The replica is lost while the client reads: the body has no end."""
    data = arrow(range(5000), rows=700)
    replica = Replica(PeekStashed(5000, len(data)), data, lost=len(data) // 2)

    async def story(served: Served) -> Any:
        async with served.get("/v1/query", QUERY, Accept=accept) as answer:
            assert answer.status == 200
            return await broken_off(answer)

    text = play(story, replica)
    if accept == "application/x-ndjson":
        assert json.loads(text.splitlines()[-1])["__error"]["reason"] == "ABORTED"
    assert len(replica.released) == 1


def test_a_batch_that_is_too_large_for_memory_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES_MAX", 1000)
    data = arrow(range(5000))

    async def story(served: Served) -> Any:
        return await served.text("/v1/query", QUERY)

    status, text = play(story, Replica(PeekStashed(5000, len(data)), data))
    assert (status, json.loads(text)["reason"]) == (400, "INVALID_ARGUMENT")
    assert "which HTTP does not take" in json.loads(text)["error"]


def test_a_client_that_takes_nothing_of_a_broken_answer_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the rows that were being sent, nor its place among the calls, nor the connection."""
    monkeypatch.setattr("tidemark_operator.gateway.server.http_reads.CHUNK_SECONDS", 0.05)
    monkeypatch.setattr("tidemark_operator.gateway.streams.answer_stream.CHUNK_SECONDS", 0.05)
    data = arrow(range(1_000_000))

    async def story(served: Served) -> Any:
        reader, writer = await served.connected()
        cast(asyncio.Transport, writer.transport).pause_reading()
        path = "/v1/query?namespace=ns&instance=default&sql=SELECT%20*%20FROM%20s.a"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer annes\r\n\r\n".encode())
        await until(lambda: served.limits.peeks.free < PEEKS_BYTES)
        others = asyncio.create_task(served.limits.peeks.acquire("anne", PEEKS_BYTES))
        await until(lambda: served.limits.peeks.is_wanted("anne"))
        await until(lambda: served.limits.calls.free == 256)
        await others
        cast(asyncio.Transport, writer.transport).resume_reading()
        text = (await reader.read()).decode()
        writer.close()
        return text.splitlines()[-1]

    assert "999999" not in play(story, Replica(PeekRows(data, 1_000_000)))


def test_large_answers_that_wait_for_their_turn_delay_no_other_query() -> None:
    """The replica has them: the gateway's memory is for others."""
    data = arrow(range(5000))

    async def story(served: Served) -> Any:
        sending = [await served.limits.texts.acquire("anne") for _ in range(2)]
        large = asyncio.create_task(served.text("/v1/query", QUERY))
        await until(lambda: served.limits.texts.is_wanted("anne"))
        free = served.limits.peeks.free
        for each in sending:
            each.shrink(0)
        return free, (await large)[0]

    assert play(story, Replica(PeekStashed(5000, len(data)), data)) == (PEEKS_BYTES, 200)


@pytest.mark.parametrize(
    ("path", "change", "status", "reason", "text"),
    [
        ("/v1/query", {"sql": "SELECT * FROM s.a", "as_of": "99"}, 409, "OUT_OF_RANGE", "only from"),
        ("/v1/query", {"as_of": "yesterday"}, 400, "INVALID_ARGUMENT", "as_of: 'yesterday' is neither"),
        ("/v1/query", {"as-of": "5"}, 400, "INVALID_ARGUMENT", "no parameter 'as-of': it has namespace, sql"),
        ("/v1/query", {"strict": "maybe"}, 400, "INVALID_ARGUMENT", "true or false"),
        ("/v1/query", {"strict": "", "as_of": "400"}, 400, "INVALID_ARGUMENT", "choose one"),
        ("/v1/subscribe", {"as_of": "99"}, 409, "OUT_OF_RANGE", "only from"),
        ("/v1/subscribe", {"up_to": "100"}, 400, "INVALID_ARGUMENT", "choose a later end"),
        ("/v1/subscribe", {"Last_Event_ID": f"99.{MARK}"}, 409, "OUT_OF_RANGE", "only from"),
        ("/v1/subscribe", {"Last_Event_ID": "450"}, 409, "INVALID_ARGUMENT", "begin without Last-Event-ID"),
        ("/v1/subscribe", {"Last_Event_ID": f"450.{MARK[::-1]}"}, 409, "INVALID_ARGUMENT", "not what it was"),
        ("/v1/subscribe", {"Last_Event_ID": "x"}, 400, "INVALID_ARGUMENT", "Last-Event-ID"),
        ("/v1/query", {"Authorization": "Bearer guessed"}, 401, "UNAUTHENTICATED", "token is unknown"),
        ("/v1/subscribe", {"Authorization": ""}, 401, "UNAUTHENTICATED", "no known token"),
        ("/v1/query", {"Accept": "text/html"}, 406, "INVALID_ARGUMENT", "Accept"),
        ("/v1/nothing", {}, 404, "NOT_FOUND", "/v1/nothing"),
    ],
)
def test_what_is_wrong_is_said_by_name(path: str, change: dict[str, str], status: int, reason: str, text: str) -> None:
    headers = {name: value for name, value in change.items() if name[0].isupper()}
    params = {**(QUERY if path == "/v1/query" else SUBSCRIBE), **{n: v for n, v in change.items() if n not in headers}}
    got, answer = play(lambda served: served.text(path, params, **headers))
    assert (got, json.loads(answer)["reason"]) == (status, reason)
    assert text in json.loads(answer)["error"]


@pytest.mark.parametrize(("path", "params"), [("/v1/query", QUERY), ("/v1/subscribe", SUBSCRIBE)])
def test_rights_and_limits_are_those_of_grpc(path: str, params: dict[str, str]) -> None:
    async def story(served: Served) -> Any:
        forbidden = await served.text(path, params)
        hold = [served.limits.calls.hold("anne") for _ in range(128)]
        for each in hold:
            await each.__aenter__()
        async with served.get(path, params) as answer:
            full = answer.status, answer.headers["Retry-After"], (await answer.json())["reason"]
        for each in hold:
            await each.__aexit__(None, None, None)
        return forbidden, full

    (status, text), full = play(story, allowed=LISTS)
    assert (status, json.loads(text)["reason"]) == (403, "PERMISSION_DENIED")
    assert "may not get datasources/data s" in text
    assert full == (429, "1", "RESOURCE_EXHAUSTED")


def test_an_error_in_the_data_is_an_error_of_the_answer() -> None:
    status, text = play(lambda served: served.text("/v1/query", QUERY), Replica(PeekError("DIVIDE_BY_ZERO: 1 / 0")))
    assert (status, json.loads(text)) == (409, {"error": "DIVIDE_BY_ZERO: 1 / 0", "reason": "FAILED_PRECONDITION"})


async def told(served: Served) -> None:
    """The rows at 499, one change at 600 in two batches, and the end at 700."""
    await served.tell(0, at(500), updates((1, 499, 1), (2, 499, 1)))
    await served.tell(500, at(600))
    await served.tell(600, at(600), updates((1, 600, -1)), upper_part=1)
    await served.tell(600, Frontier.empty(), updates((0, 600, 1), (3, 600, 1)), part=1)


def test_changes_are_json_lines() -> None:
    """What another batch had is left out."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", {**SUBSCRIBE, "progress": "true"}) as answer:
            await told(served)
            return answer.headers["Tidemark-As-Of"], await answer.text()

    as_of, text = play(story)
    assert as_of == "499"
    assert [list(json.loads(line).values()) for line in text.splitlines()] == [
        [499, 1, 1],
        [499, 1, 2],
        [500],
        [600],
        [600, -1, 1],
        [600],
        [600, 1, 3],
        [None],
    ]


def test_an_event_has_all_changes_of_its_time_and_the_id_to_go_on_from() -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            assert answer.content_type == "text/event-stream"
            await told(served)
            return await answer.text()

    assert play(story).split("\n\n") == [
        f'id: 499.{MARK}\ndata: {{"__time": 499, "__diff": 1, "a": 1}}\ndata: {{"__time": 499, "__diff": 1, "a": 2}}',
        f'event: progress\nid: 499.{MARK}\ndata: {{"__progress": 500}}',
        f'event: progress\nid: 599.{MARK}\ndata: {{"__progress": 600}}',
        f'id: 600.{MARK}\ndata: {{"__time": 600, "__diff": -1, "a": 1}}\ndata: {{"__time": 600, "__diff": 1, "a": 3}}',
        "event: end\nid: end\ndata: {}",
        "",
    ]


def test_a_client_goes_on_after_the_last_event_that_it_has() -> None:
    """Without the rows; where it has everything, the answer tells it to come no more."""

    async def story(served: Served) -> Any:
        async with served.get(
            "/v1/subscribe", SUBSCRIBE, Last_Event_ID=f"450.{MARK}", Accept="text/event-stream"
        ) as answer:
            (export,) = served.created[0].description.sink_exports
            assert isinstance(export.sink, SubscribeSink)
            begun = answer.headers["Tidemark-As-Of"], export.sink.with_snapshot
        ended = [
            (await served.text("/v1/subscribe", {**SUBSCRIBE, "up_to": "700"}, Last_Event_ID=last))[0]
            for last in ("end", f"699.{MARK}")
        ]
        return begun, ended

    assert play(story) == (("450", False), [204, 204])


class Edited(Planner):
    """The same statement, after what it reads was edited, or deleted and made again."""

    def __init__(self, **change: Any) -> None:
        self._change = change

    async def plan(self, request: PlanRequest, *, patient: bool) -> Planned:
        return replace(await super().plan(request, patient=patient), **self._change)


@pytest.mark.parametrize(
    "change",
    [
        {"references": (GlobalId("s.b"),)},
        {"exports": (PlannedExport("result", "materializedView", GlobalId("o"), (Column("a", STRING),), (0,)),)},
    ],
    ids=["another relation", "another type"],
)
def test_changes_of_another_revision_never_follow_the_rows_of_the_first(change: dict[str, Any]) -> None:
    """A browser comes again by itself: it is told to begin anew, and its subscribe ends."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            await served.tell(0, at(500), updates((1, 499, 1)))
            id = (await answer.content.readline()).decode().strip().removeprefix("id: ")
            async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream", Last_Event_ID=id) as again:
                unedited = again.status
            await until(lambda: served.running.clients.subscribes == 1)
            served.context.planner = cast(PlannerClient, Edited(**change))
            edited = await served.text("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream", Last_Event_ID=id)
            await until(lambda: served.running.clients.subscribes == 1)
        return unedited, edited

    unedited, (status, text) = play(story)
    assert (unedited, status) == (200, 409)
    assert "begin without Last-Event-ID, with the rows" in json.loads(text)["error"]


@pytest.mark.parametrize(("accept", "upper"), [("text/event-stream", 499), ("application/x-ndjson", 499)])
def test_a_client_without_the_rows_has_no_time_to_go_on_from(accept: str, upper: int) -> None:
    """A view that is in error as of the first time: progress before it would be an id, after which no rows come."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", {**SUBSCRIBE, "progress": "true"}, Accept=accept) as answer:
            await served.tell(0, at(upper))
            (await served.subscription()).fail(SubscribeEnded("division by zero"))
            return await broken_off(answer)

    text = play(story)
    assert "division by zero" in text
    assert "id:" not in text
    assert "progress" not in text


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
def test_a_subscribe_that_ends_early_says_why_and_has_no_end(accept: str) -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept=accept) as answer:
            await served.tell(0, at(500), updates((1, 499, 1)))
            (await served.subscription()).fail(SubscribeEnded("division by zero"))
            return (await broken_off(answer)).strip().splitlines()[-1]

    last = play(story)
    if accept == "text/event-stream":
        assert json.loads(last.removeprefix("data: ")) == {"error": "division by zero", "reason": "FAILED_PRECONDITION"}
    else:
        assert json.loads(last)["__error"]["error"] == "division by zero"


def test_an_event_that_is_not_complete_is_never_completed() -> None:
    """A client would take a half of a time for the whole; it drops what has no empty line after it."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            await served.tell(0, at(499), updates((1, 499, 1)), upper_part=1)
            (await served.subscription()).fail(SubscribeEnded("lost"))
            return await broken_off(answer)

    text = play(story)
    assert "\n\n" not in text
    assert text.splitlines()[-1].startswith(': failed {"error": "lost"')


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_goes_ends_its_subscribe_at_once(reads: bool) -> None:
    """Also one that never read what was sent."""

    async def story(served: Served) -> None:
        answer = await served.get("/v1/subscribe", SUBSCRIBE)
        await served.tell(0, at(500), updates((1, 499, 1)))
        if reads:
            await answer.content.readline()
        assert served.running.clients.subscribes == 1
        answer.close()
        await until(lambda: not served.running.clients.subscribes)
        assert served.limits.calls.free == 256

    play(story)


def test_a_client_that_reads_nothing_is_ended_and_told_from_when_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is bounded as for gRPC; the connection takes some more."""
    monkeypatch.setattr("tidemark_operator.gateway.streams.subscribe.CHUNK_SECONDS", 0.01)
    many = updates(*((n, 499, 1) for n in range(1000)))

    async def story(served: Served) -> Any:
        answer = await served.get("/v1/subscribe", SUBSCRIBE)
        subscription = await served.subscription()
        subscription._backlog = Backlog(3 * len(many))
        upper = 500
        while subscription.failure is None:
            await served.tell(upper - 1, at(upper), many)
            upper += 1
            await asyncio.sleep(0)
        assert subscription.waiting_bytes == 0
        await until(lambda: not served.running.clients.subscribes)
        answer.close()
        return str(subscription.failure)

    assert "reads too slowly" in play(story)


def test_slow_readers_of_events_get_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an idle subscribe, so that proxies keep the connection."""
    monkeypatch.setattr("tidemark_operator.gateway.server.http_reads.BEAT_SECONDS", 0.01)

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            return await answer.content.readline()

    assert play(story) == b":\n"
