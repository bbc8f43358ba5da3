"""Columns that a schema of a topic's values gets, by an edit or at the registry: a successor has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.handlers.sources.test_table_edits import KEY, UID, Edited, edited, followed
from tidemark_operator.handlers.reconcile import source_inspection_queue, table_edits
from tidemark_operator.handlers.reconcile.table_edits import EVOLVE_SECONDS
from tidemark_operator.kube.client import Body
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import SourceTable
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column

N, S, VIP = Column("n", BIGINT), Column("s", STRING), Column("vip", STRING)
BROKERS = {"brokers": ["k:9"], "registry": {"url": "http://r:8081"}}


class Topics:
    """A DataSource of topics in Avro, and what a replica finds at its registry. `versions`: the columns of each version
    of each subject; `error`: what the replica answers instead. `asked`: the tables of each look."""

    def __init__(self, source: Edited, monkeypatch: pytest.MonkeyPatch, *tables: Body) -> None:
        self.source, self.tables, self.now, self.error = source, tables, 1000.0, ""
        self.versions: dict[str, list[tuple[Column, ...]]] = {"s": [(N, S)], "u": [(N,)]}
        self.asked: list[list[str]] = []
        for module in (table_edits, source_inspection_queue):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)
        cast(Any, source.running).inspect = self.inspect
        source.harness.context.registry.allowed_hosts = AllowedHosts.parse(["k:9", "r:8081"])

    async def inspect(self, wanted: KafkaSource, _: object = None) -> compute_pb2.InspectSourceResponse:
        if self.error:
            return compute_pb2.InspectSourceResponse(error=self.error)
        self.asked.append([table.name for table in wanted.tables])
        return compute_pb2.InspectSourceResponse(tables=[codec.encode(self.found(table)) for table in wanted.tables])

    def found(self, table: KafkaTable) -> SourceTable:
        assert table.schema is not None
        versions, text = self.versions[table.schema.subject], table.schema.text
        version = int(text or table.schema.version or len(versions))
        return SourceTable(table.name, versions[version - 1], schema=f"{version}")

    async def reconcile(self) -> list[str]:
        """The tables that are ingested, a minute later."""
        self.now += EVOLVE_SECONDS
        document = followed("kafka", {**BROKERS, "tables": list(self.tables)})
        self.source.harness.cache.put(KEY, document)
        await self.source.reconciler.reconcile(KEY, document)
        return self.source.ingested

    @property
    def schemas(self) -> dict[str, str]:
        """The texts of the pinned schemas, by table."""
        running = self.source.running.core.ingestions.get(GlobalId(UID))
        assert running is not None
        pinned = running[1].ingestion.source
        assert isinstance(pinned, KafkaSource)
        return {table.name: table.schema.text for table in pinned.tables if table.schema is not None}

    @property
    def failure(self) -> IngestionFailure | None:
        state = self.source.harness.context.registry.source(KEY)
        assert state is not None
        return state.edit

    def begin(self, table: str) -> None:
        """A replica reports that the table has rows."""
        shard = ShardId(f"{UID}/{table}/v1")
        self.source.harness.context.fleet.book("ns").observe(shard, Frontier.at(9), Frontier.at(8))


def topic(name: str = "t", subject: str = "s", **more: Any) -> Body:
    schema = {"subject": subject} | ({"version": more.pop("version")} if "version" in more else {})
    return {"name": name, "topic": name, "format": "avro", "schema": schema, **more}


def test_a_newer_version_in_the_spec_is_a_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first table goes once its successor has rows. A version that lacks a column is refused, and holds up no
    other table that is added."""

    async def scenario(source: Edited) -> None:
        topics = Topics(source, monkeypatch, topic(version=1))
        topics.versions["s"] += [(VIP, N, S), (N, VIP), (VIP, N, S)]
        assert await topics.reconcile() == ["t"]
        topics.tables = (topic(version=2),)
        assert await topics.reconcile() == ["t", "t.2"]
        assert (topics.schemas, topics.failure) == ({"t": "1", "t.2": "2"}, None)
        topics.begin("t.2")
        assert await topics.reconcile() == ["t.2"]

        topics.tables = (topic(version=3), topic("u", "u"))
        text = "table t: column s is another one in the schema, or is not there; columns can only be added"
        for _ in range(2):
            assert await topics.reconcile() == ["t.2", "u"]
            assert topics.failure == IngestionFailure("ColumnsNotAdded", text)
        topics.tables = (topic(version=4), topic("u", "u"))
        assert await topics.reconcile() == ["t.2", "u"]
        text = "table t: the schema has no column that the table does not have"
        assert topics.failure == IngestionFailure("ColumnsNotAdded", text)
        topics.tables = (topic(version=2), topic("u", "u"))
        assert (await topics.reconcile(), topics.failure) == (["t.2", "u"], None)

        topics.versions["s"] = topics.versions["s"][:2]
        topics.tables, looks = (topic(onGap="skip"), topic("u", "u")), len(topics.asked)
        for _ in range(3):  # the newest version is the one that is pinned
            assert (await topics.reconcile(), topics.failure) == (["t.2", "u"], None)
        assert (topics.schemas, len(topics.asked)) == ({"t.2": "2", "u": "1"}, looks + 1)
        topics.tables = (topic(onGap="skip", evolve="addColumns"), topic("u", "u"))
        topics.versions["s"].append((*topics.versions["s"][-1], Column("more", STRING)))
        assert (await topics.reconcile(), topics.failure) == (["t.2", "u", "t.3"], None)

    edited(tmp_path, scenario)


def test_a_newer_version_at_the_registry_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that says `evolve` takes it, by the schema that a look each minute found. A column that is another one is
    told; one that is gone changes nothing."""

    async def scenario(source: Edited) -> None:
        topics = Topics(source, monkeypatch, topic(evolve="addColumns"), topic("u", "u"))
        assert await topics.reconcile() == ["t", "u"]
        for versions in topics.versions.values():
            versions.append((*versions[-1], VIP))
        assert await topics.reconcile() == ["t", "u", "t.2"]
        assert topics.schemas == {"t": "1", "t.2": "2", "u": "1"}
        assert topics.asked == [["t", "u"], ["t"], ["t"], ["t.2"]]
        topics.begin("t.2")
        assert await topics.reconcile() == ["u", "t.2"]

        topics.versions["s"].append((N, S))
        assert (await topics.reconcile(), topics.failure) == (["u", "t.2"], None)
        topics.versions["s"].append((N, Column("s", BIGINT), VIP, Column("more", STRING)))
        assert await topics.reconcile() == ["u", "t.2"]
        assert topics.failure is not None
        assert (topics.failure.reason, "column s is another one" in topics.failure.message) == ("ColumnsNotAdded", True)
        topics.error = "table t: subject s: RegistryAway"
        assert await topics.reconcile() == ["u", "t.2"]
        assert topics.failure == IngestionFailure("SourceUnreadable", topics.error)
        topics.error = ""
        topics.versions["s"].append((N, S, VIP, Column("more", STRING)))
        assert (await topics.reconcile(), topics.failure) == (["u", "t.2", "t.3"], None)
        assert topics.schemas == {"t.2": "2", "t.3": "5", "u": "1"}

    edited(tmp_path, scenario)
