"""A gateway's HTTP for tests: real HTTP, and the gateway's own queries and subscribes; a replica is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pyarrow as pa
import pytest

from tests.controller.harness import R1, at
from tests.gateway.admission.test_stream_limits import Planner
from tests.gateway.auth.test_access import ApiServer
from tests.gateway.registries import registry, shard_of
from tests.gateway.server.test_metrics import Deaf
from tests.waiting import BOUND
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import AnswerLost
from tidemark_operator.fleet.clients.subscription import Subscription
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import InstanceListener, RunningInstance
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Authenticator
from tidemark_operator.gateway.query.statement_cache import StatementCache
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
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.responses import PeekError, PeekRows, PeekStashed, SubscribeBatch

MAY_READ = "get datasources/data s in namespace ns"
QUERY = {"namespace": "ns", "instance": "default", "sql": "SELECT * FROM s.a"}
SUBSCRIBE = {"namespace": "ns", "instance": "default", "subject": "SELECT * FROM s.a"}
ANNE = {"Authorization": "Bearer annes"}
PIECE = 100
MARK = "b9f2dc8b600b0abe"
"""The fingerprint of what SUBSCRIBE reads. Browsers keep fingerprints across releases, so this one is written out."""


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
        self.replica, self.api_server, self.limits = replica, ApiServer(*allowed), GatewayLimits()
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
        authenticator = Authenticator("own", cast(Reviews, self.api_server))
        self._reads = HttpReads(queries, Subscribes(context, self.limits), authenticator, self.limits)
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
        """The subscription of the only subscribe, once it runs."""
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
