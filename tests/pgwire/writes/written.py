"""A DataSource of kind `table` behind the server of the protocol: the replica's own server, ingester and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc

from tests.controller.harness import LAG, R1, at
from tests.gateway.source_tables import FINISHED, PINNED, ingested
from tests.pgwire.served import ALLOWED, Served, served
from tests.replica.server import test_write_calls as replica
from tests.storage.ingestion_samples import ok_rows
from tests.storage.written.written_tables import Writer
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_persist import Shard, open_shard
from tidemark_protocol.ids import ReplicaId, WriterTerm
from tidemark_protocol.pb import compute_pb2_grpc
from tidemark_protocol.plan.ingestion import SourceTable, WrittenSource, WrittenTable
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.written.receive import WriteHeader

MAY_INSERT = "create datasources/rows shop in namespace ns"
KINDS = ("boolean", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "string", "date", "timestamp")
WIDE = ("id", "bigint"), ("x", "string"), ("y", "bigint")
PAIR = ("a", "bigint"), ("B", "string"), ("n", "bigint")
NAMES = ("yes", "small", "i", "big", "f", "d", "price", "name", "day", "at")
SPEC = WrittenSource((
    WrittenTable("orders", (Column("id", SqlType("bigint")), Column("name", SqlType("string"))), ("id",)),
    WrittenTable("plain", (Column("id", SqlType("bigint")), Column("name", SqlType("string")))),
    WrittenTable("wide", tuple(Column(name, SqlType(kind)) for name, kind in WIDE), ("id",)),
    WrittenTable("deep", tuple(Column(name, SqlType(kind)) for name, kind in WIDE), ("id",)),
    WrittenTable("pairs", tuple(Column(name, SqlType(kind)) for name, kind in PAIR), ("a", "B")),
    WrittenTable("kinds", tuple(Column(name, SqlType.parse(kind)) for name, kind in zip(NAMES, KINDS, strict=True))),
))  # fmt: skip
Write = Callable[[str, WriteHeader, Iterable[bytes]], Any]


class Written:
    """`writer`: of the tables; `calls`: the keys of the calls that the replica got. `write`: what takes a call."""

    def __init__(self, server: Served, writer: Writer) -> None:
        self.server, self.writer, self.calls = server, writer, list[str]()
        self.write: Write = self.put
        self._shards = dict[str, Shard]()

    def put(self, ingestion: str, header: WriteHeader, pieces: Iterable[bytes]) -> Any:
        return self.writer.inbox.put(self.writer.receiver.receive(header, pieces))

    def received(self, ingestion: str, header: WriteHeader, pieces: Iterable[bytes]) -> Any:
        self.calls.append(header.key)
        return self.write(ingestion, header, pieces)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The ok rows now, sorted. Each table is opened once, and then followed."""
        if table not in self._shards:
            self._shards[table] = open_shard(f"{self.writer.root}/{table}")
        shard = self._shards[table]
        return ok_rows(shard.snapshot(shard.refresh().upper - 1))

    def rows_at(self, table: str, time: int) -> list[tuple[Any, ...]]:
        """The ok rows of a time, sorted."""
        self.rows(table)
        return ok_rows(self._shards[table].snapshot(time))

    def attach(self) -> None:
        """Have the gateway know the source and its ingester."""
        self.server.loop.call(self._attach)

    def _attach(self) -> None:
        server, key = self.server, Key(DATA_SOURCES, "ns", "shop")
        tables = tuple(replace(ingested(table.name), table=_shown(table)) for table in SPEC.tables)
        pinned = replace(PINNED, source=SPEC, tables=tables)
        state = SourceState(key, "u-s", "default", pinned=pinned, ingester=Ingester("r1", WriterTerm(1)))
        server.registry.put_source(state)
        book = server.gateway._context.fleet.book("ns")
        for table in tables:
            book.register(table.shard.shard_id, table.shard.location, LAG, owned=True)
            book.observe(table.shard.shard_id, FINISHED, at(0))
        channel = grpc.aio.insecure_channel(f"unix://{self.writer.root}/socket")
        stub = compute_pb2_grpc.ComputeStub(channel)  # type: ignore[no-untyped-call]
        connection = SimpleNamespace(write_rows=lambda: stub.WriteRows())
        server.running.replicas[ReplicaId(R1)].connection = cast(Any, connection)
        cast(Any, server.running).is_ingesting = lambda id: True


def _shown(table: WrittenTable) -> SourceTable:
    names = [column.name for column in table.columns]
    key = tuple(map(names.index, table.primary_key))
    return SourceTable(table.name, table.columns, (key,) if key else ())


@contextmanager
def written(folder: Path, allowed: tuple[str, ...] = (MAY_INSERT,), **more: Any) -> Iterator[Written]:
    with served(folder, (*ALLOWED, *allowed), **more) as server:
        made = Written(server, Writer(folder / "replica", SPEC))
        made.writer.tick()
        with replica.served(made.writer, made.received), replica.ticking(made.writer):
            made.attach()
            yield made
