"""A DataSource of two tables that a replica ingests and has reported, for what the operator shows of it."""

from __future__ import annotations

from tests.controller.harness import LAG, R1, at
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import IngestionStatus, TableReport
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import IngestedTable, IngestionDescription, SourceTable, TpchSource
from tidemark_protocol.types import BIGINT, Column

BEHIND_SECONDS = 300
COLUMNS = (Column("a", BIGINT),)
REPORTS = (
    TableReport("orders", 1000, 4096, 3, "versions", 40, 2, "VersionGone: version 7 is gone", 5, Time(900), True),
    TableReport("lines", 7, 64),
)
FINISHED = Frontier.empty()
NAMES = ("orders", "lines")


def ingested(name: str) -> IngestedTable:
    shard = ShardMetadata(ShardId(f"s-{name}"), f"/data/{name}", COLUMNS)
    return IngestedTable(GlobalId(f"u-s/{name}"), SourceTable(name, COLUMNS), shard)


PINNED = IngestionDescription(
    GlobalId("u-s"), "shop", TpchSource("1", 1, 1), 1000, ShardId("r"), "/data/r", tuple(map(ingested, NAMES))
)


def registered(fleet: Fleet, ingests: bool = True) -> Registry:
    """`orders` is behind and stopped, `lines` is finished. `ingests` False: the source is suspended."""
    registry, key = Registry(), Key(DATA_SOURCES, "ns", "shop")
    report = IngestionStatus(PINNED.id, "stopped", "VersionGone: version 7 is gone", tables=REPORTS)
    ingester = Ingester("r1", WriterTerm(1))
    registry.put_source(SourceState(key, "u-s", "default", pinned=PINNED, ingester=ingester, report=report))
    book, running = fleet.book("ns"), fleet.get("ns", "default")
    assert running is not None
    for table, upper in zip(PINNED.tables, (at(now_ms() - BEHIND_SECONDS * 1000), None), strict=True):
        book.register(table.shard.shard_id, table.shard.location, LAG, owned=True)
        book.observe(table.shard.shard_id, upper or FINISHED, at(0))
    if ingests:
        running.run_ingestion(ReplicaId(R1), PINNED, WriterTerm(1))
    return registry
