"""The PostgreSQL protocol before a gateway, for tests: real TLS and gRPC, the gateway's own queries and rights.

The planner and the replica are scripted: a statement has the answer that `Answers` says, as of the time 499.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import psycopg
import pyarrow as pa

from tests.authorities import Authority
from tests.controller.harness import LAG, R1, at
from tests.gateway.auth.test_access import JWT, ApiServer
from tests.gateway.registries import registry, shard_of
from tests.gateway.server.test_metrics import Deaf
from tests.waiting import BOUND
from tidemark.gateway.discovery import Gateway as GatewayAddress
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import InstanceListener
from tidemark_operator.gateway.auth.access import Authenticator
from tidemark_operator.gateway.server.listener import ListenerConfig
from tidemark_operator.gateway.server.server import Gateway
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.reviews import Reviews
from tidemark_operator.planning.client import PlannerClient
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.server import PgServer, ServerCertificate
from tidemark_pgwire.session.session import SessionLimits
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.planning import (
    Finishing,
    Planned,
    PlannedExport,
    PlannedPeek,
    PlanQueryRequest,
    PlanRequest,
    Refused,
)
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.plan.dataflow import SourceImport
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT, Column, ColumnType

T = TypeVar("T")
LISTS = "list dataflows in namespace ns", "list datasources in namespace ns"
MAY_READ = "get datasources/data s in namespace ns"
ALLOWED = (MAY_READ, *LISTS)
TOKEN, NAMESPACE = JWT, "ns"


@dataclass(frozen=True)
class Rows:
    """An answer: its columns, and rows of them."""

    columns: tuple[Column, ...]
    table: pa.Table


ONE = Rows((Column("a", BIGINT),), pa.table({"a": pa.array([1, 2, 3], pa.int64())}))
Script = Callable[[str, str], Rows | Refused]
"""SQL and dialect to the answer."""


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@dataclass
class Answers:
    """Planner and replica in one. `asked`: statements that were planned, and their dialects; `read`: times of peeks.
    `held`: while set, peeks are not answered."""

    script: Script = lambda sql, dialect: ONE
    asked: list[tuple[str, str]] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    held: asyncio.Event | None = None
    canceled: int = 0
    _rows: dict[tuple[Column, ...], Rows] = field(default_factory=dict)
    """By their columns: a plan that is kept is not asked for again."""

    async def plan_query(self, request: PlanQueryRequest) -> PlannedPeek | Refused:
        self.asked.append((request.sql, request.dialect))
        made = self.script(request.sql, request.dialect)
        if isinstance(made, Refused):
            return made
        self._rows[made.columns] = made
        mfp = MapFilterProject((ColumnType(BIGINT),))
        return PlannedPeek(GlobalId("s.a"), mfp, Finishing(), made.columns)

    async def plan(self, request: PlanRequest, *, patient: bool) -> Planned | Refused:
        self.asked.append((request.views[0].sql, request.dialect))
        made = self.script(request.views[0].sql, request.dialect)
        if isinstance(made, Refused):
            return made
        export = PlannedExport("result", "materializedView", GlobalId("o"), (Column("a", BIGINT),), (0,))
        reads = (SourceImport(GlobalId("s.a"), shard_of("s.a"), (0,)),)
        return Planned(reads, (), (export,), tuple(source.id for source in reads), "")

    async def peek(self, peek: Any, target: Any) -> Any:
        self.read.append(int(peek.timestamp))
        rows = self._rows.get(peek.columns, ONE)  # a plain SELECT is read without the planner
        if self.held is not None:
            try:
                await self.held.wait()
            except asyncio.CancelledError:
                self.canceled += 1
                raise
        return PeekRows(_ipc(rows.table), rows.table.num_rows)

    def let_go(self, uuid: str) -> None:
        pass


class Objects:
    """The API server's Dataflows and DataSources, by name."""

    def __init__(self) -> None:
        self.bodies: dict[str, dict[str, Any]] = {}
        self.sources: dict[str, dict[str, Any]] = {}

    def _of(self, resource: Any) -> dict[str, dict[str, Any]]:
        return self.sources if resource == DATA_SOURCES else self.bodies

    async def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any] | None:
        return self._of(resource).get(name)

    async def create(self, resource: Any, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        marks = {"uid": body["metadata"]["name"], "generation": 1, "resourceVersion": "1"}
        made = {**body, "metadata": {**body["metadata"], **marks}}
        return self._of(resource).setdefault(body["metadata"]["name"], made)

    async def patch(self, resource: Any, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        found = self._of(resource)[name]
        found["spec"] |= patch["spec"]
        found["metadata"]["generation"] += 1
        return found

    async def delete(self, resource: Any, namespace: str, name: str, uid: str, **_: Any) -> None:
        del self._of(resource)[name]


class Loop:
    """An event loop in a thread of its own, for clients that block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(BOUND)

    def call(self, what: Callable[[], T]) -> T:
        async def called() -> T:
            return what()

        return self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND)
        self._loop.close()


class Served:
    """`answers`: what statements are answered; `port`, `authority`: of the server."""

    def __init__(self, folder: Path, allowed: Sequence[str], limits: SessionLimits, tls: bool, defines: bool) -> None:
        self.loop, self.folder, self.answers, self.objects = Loop(), folder, Answers(), Objects()
        self.api_server = ApiServer(*allowed)
        self.leadership = SimpleNamespace(term=WriterTerm(7), leads=True)
        self._limits, self._tls, self._defines = limits, tls, defines
        self.authority = folder / "authority.crt"
        signing = Authority.named("pgwire")
        self.authority.write_bytes(signing.pair.certificate)
        self.issue(signing)
        self.address = GatewayAddress("", "")
        self.loop.run(self._start())

    def issue(self, signing: Authority) -> None:
        """A new certificate of the server."""
        issued = signing.server("127.0.0.1")
        (self.folder / "tls.crt").write_bytes(issued.certificate)
        (self.folder / "tls.key").write_bytes(issued.key)

    async def _start(self) -> None:
        await self._start_gateway()
        self.link = GatewayLink(lambda: self.address)
        files = self.folder / "tls.crt", self.folder / "tls.key"
        certificate = ServerCertificate(*files) if self._tls else None
        self.server = PgServer(self.link, self._limits, certificate, insecure=not self._tls)
        self.port = await self.server.start("127.0.0.1", 0)

    async def _start_gateway(self, stands: bool = False) -> None:
        fleet = self.running_fleet = Fleet(cast(Leadership, self.leadership))
        if stands:
            fleet.stand()
        fleet.listener = cast(InstanceListener, Deaf())
        self.running = running = fleet.ensure("ns", InstanceConfig("default", "/data"))
        state = ReplicaState(cast(Any, None), cast(Any, None), asyncio.Event(), silent_since_ms=1)
        running.replicas[R1], state.online = state, True
        running.answers = cast(Any, self.answers)
        table, book = shard_of("s.a"), fleet.book("ns")
        book.register(table.shard_id, table.location, LAG, owned=True)  # as its DataSource does: it outlives readers
        book.observe(table.shard_id, at(500), at(100))
        self.registry, planner = registry(), cast(PlannerClient, self.answers)
        cache = SimpleNamespace(
            all=lambda kind, namespace: [(SimpleNamespace(name="default"), None)], get=lambda key: None
        )
        parts = {"registry": self.registry, "fleet": fleet, "running": fleet.get, "planner": planner, "cache": cache}
        context = cast(ReconcileContext, SimpleNamespace(**parts, kube=self.objects, peers=None))
        sources, tables = cast(DataSourceReconciler, None), cast(RetainedTables, None)
        file = self.folder / "gateway.json"
        self.gateway = Gateway(context, sources, tables, self.folder, ListenerConfig(), file, self._defines)
        self.gateway._authenticator = Authenticator("own", cast(Reviews, self.api_server))
        await self.gateway.start()
        self.address = replace(self.address, address=json.loads((self.folder / "gateway.json").read_text())["address"])

    def restart_gateway(self, stands: bool = False) -> None:
        """Restart the gateway as a leader that ends, and the next one, which has another address. `stands`: it waits
        with sinces until leases are renewed."""
        self.loop.run(self.gateway.close())
        self.loop.run(self._start_gateway(stands))

    def close(self) -> None:
        with suppress(Exception):
            self.loop.run(self.server.close())
        self.loop.run(self.gateway.close())
        self.loop.close()

    # --- clients ---

    def options(self, **more: Any) -> dict[str, Any]:
        """The options of libpq."""
        tls = {"sslmode": "verify-full", "sslrootcert": str(self.authority)} if self._tls else {"sslmode": "disable"}
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "dbname": NAMESPACE,
            "user": "anne",
            "password": TOKEN,
            "connect_timeout": 60,
            **tls,
            **more,
        }

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(**self.options(**{"autocommit": True, **more}))

    def says(self, script: Script) -> None:
        """From now on, also for statements whose plan the gateway has kept."""
        self.answers.script = script
        self.answers.asked.clear()
        self.loop.call(self.gateway._statements._known.clear)


@contextmanager
def served(
    folder: Path,
    allowed: Sequence[str] = ALLOWED,
    limits: SessionLimits | None = None,
    tls: bool = True,
    defines: bool = True,
) -> Iterator[Served]:
    made = Served(folder, allowed, limits or SessionLimits(), tls, defines)
    try:
        yield made
    finally:
        made.close()
