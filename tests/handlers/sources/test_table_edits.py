"""Edits of a DataSource's tables, stored as revisions: conflicts, failures, and Dataflows that read a removed table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import ONE, OperatorHarness
from tests.handlers.revised_dataflows import dataflow, rev
from tests.protocol.samples import A
from tests.resources.manifests import body
from tidemark_operator.catalogue import relations
from tidemark_operator.catalogue.dataflow_state import DataflowState, PlanningState
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.catalogue.source_tables import tables_of
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.handlers.reconcile import source_inspection_queue, table_edits
from tidemark_operator.handlers.reconcile.data_source import EDIT_SECONDS, DataSourceReconciler
from tidemark_operator.handlers.reconcile.source_pinning import pinned_ingestion
from tidemark_operator.handlers.reconcile.table_edits import EVOLVE_SECONDS
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube import revisions
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, ApiError, Body, Conflict
from tidemark_operator.kube.revisions import RevisionOwner, Revisions
from tidemark_operator.planning.revision import Parent
from tidemark_operator.planning.shards import ShardLocations
from tidemark_operator.planning.table_edit import EvolvingSource
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId
from tidemark_protocol.messages.responses import Description, ShardDeleted
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import DeltaSource, FilesSource, SourceTable
from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.shards.shards import ShardHandles

UID, R1 = "s1", ReplicaId("r1")
KEY = Key(DATA_SOURCES, "ns", "s")


class StoredObjects:
    """The ControllerRevisions and statuses of the API server. `failure`: raised once, by the next creation."""

    def __init__(self) -> None:
        self.revisions: dict[str, Body] = {}
        self.failure: ApiError | None = None

    async def list(self, *_: object) -> list[Body]:
        return list(self.revisions.values())

    async def get(self, _: object, namespace: str, name: str) -> Body | None:
        return self.revisions.get(name)

    async def create(self, _: object, namespace: str, body: Body) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        name = body["metadata"]["name"]
        if name in self.revisions:
            raise Conflict(409, f"{name} exists already")
        self.revisions[name] = {**body, "metadata": {**body["metadata"], "uid": f"uid of {name}"}}

    async def delete(self, _: object, namespace: str, name: str, uid: str) -> None:
        del self.revisions[name]

    async def store(self, *_: object) -> None:
        """The ingester, in the status."""


class Edited:
    """A DataSource of files with `deletionPolicy: Delete`, and an operator that reconciles it; replica r1 is online."""

    def __init__(self, folder: Path, stored: StoredObjects) -> None:
        self.harness, self.stored, self.handles = OperatorHarness(), stored, ShardHandles()
        self.folder, self.deleted, self.again = folder, list[str](), list[Key]()
        self.harness.put({"storage": {"location": str(folder)}}, ONE)
        self.harness.context.revisions = self.revisions = Revisions(cast(Any, stored))
        self.deleter = deleter(self.harness)
        self.reconciler = DataSourceReconciler(self.harness.context, cast(Any, stored), self.deleter, self.again.append)
        running = self.harness.context.running("ns", "default")
        assert running is not None
        self.running, replica = running, cast(Any, running)
        running.replicas[R1].online = True
        replica.inspect, replica.describe = self.inspect, self.describe
        replica.is_too_old_for = lambda _: False
        replica.delete_shard = lambda _, id, location: self.deleted.append(id)

    async def inspect(self, source: FilesSource, _: object = None) -> compute_pb2.InspectSourceResponse:
        tables = [codec.encode(SourceTable(t.name, t.columns or ())) for t in source.tables]
        return compute_pb2.InspectSourceResponse(tables=tables)

    async def describe(self, shards: Iterable[tuple[ShardId, str]]) -> tuple[ReplicaId, Description]:
        described = tuple(self.handles.describe(id, location) for id, location in shards)
        return R1, Description("incarnation", None, 0, (), (), described)

    async def store(self, number: int, *names: str) -> None:
        """The revision of an earlier edit."""
        source = DataSource.parse(manifest(*names))
        assert isinstance(source.source, FilesSource)
        found = tuple(SourceTable(t.name, t.columns or ()) for t in source.source.tables)
        locations = ShardLocations.of(str(self.folder), "ns", "s", UID)
        owner = RevisionOwner(DATA_SOURCES.api_version, DATA_SOURCES.kind, source.meta)
        await self.revisions.store(owner, number, pinned_ingestion(source, locations, 1, found))

    async def reconcile(self, *names: str) -> float | None:
        """With these tables in the spec."""
        self.harness.cache.put(KEY, manifest(*names))
        return await self.reconciler.reconcile(KEY, manifest(*names))

    @property
    def ingested(self) -> list[str]:
        """The names of the tables that r1 was told to ingest."""
        running = self.running.core.ingestions.get(GlobalId(UID))
        assert running is not None
        return [table.table.name for table in running[1].ingestion.tables]

    @property
    def numbers(self) -> list[int]:
        return sorted(body["revision"] for body in self.stored.revisions.values())


def manifest(*names: str) -> Body:
    tables = [{"name": name, "format": "csv", "columns": [{"name": "a", "type": "BIGINT"}]} for name in names]
    spec = {"instance": "default", "deletionPolicy": "Delete", "files": {"path": "/in", "tables": tables}}
    created = "2026-01-01T00:00:00Z"
    return body("DataSource", spec, "s", uid=UID, creationTimestamp=created, finalizers=[FINALIZER])


def edited(folder: Path, scenario: Callable[[Edited], Awaitable[None]]) -> None:
    async def run() -> None:
        source = Edited(folder, StoredObjects())
        try:
            await scenario(source)
        finally:
            await source.harness.fleet.close()

    asyncio.run(run())


def test_a_conflict_loads_the_revision_that_is_stored(tmp_path: Path) -> None:
    """An earlier edit was stored, and its answer was lost: tables of both revisions before the next one are deleted."""

    async def scenario(source: Edited) -> None:
        await source.store(1, "a", "old")
        assert await source.reconcile("a", "old") is None
        await source.store(2, "a", "lost")
        ended: list[str] = []
        cast(Any, source.harness.context.fleet).end_readers = lambda _, shards, why: ended.extend(shards)

        with pytest.raises(Conflict):
            await source.reconcile("a", "b")
        assert source.ingested == ["a", "lost"]
        assert ended == [f"{UID}/old/v1"]

        assert await source.reconcile("a", "b") == EDIT_SECONDS
        assert source.ingested == ["a", "b"]
        assert source.deleted == [f"{UID}/old/v1", f"{UID}/lost/v1"]
        assert source.numbers == [1, 2, 3]

    edited(tmp_path, scenario)


DATABASE = {"host": "db", "database": "d", "secret": "db", "publication": "p"}
UPSTREAM: dict[str, Body] = {
    "delta": {"tables": [{"name": "t", "path": "/lake/t", "evolve": "addColumns"}]},
    "postgres": {**DATABASE, "tables": [{"name": "t", "table": "t", "evolve": "addColumns"}]},
    "files": {"path": "/in", "tables": [{"name": "t", "format": "parquet", "evolve": "addColumns"}]},
}


@pytest.mark.parametrize("kind", UPSTREAM)
def test_columns_that_come_are_taken_by_a_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The earlier table is ingested as long as a Dataflow reads it, others than those of Delta until their
    successor has rows. SQL's name is the successor's. The replica is not asked more often than once a minute."""
    now, names, document = 1000.0, ["a"], followed(kind, UPSTREAM[kind])
    monkeypatch.setattr(table_edits, "monotonic", lambda: now)

    async def scenario(source: Edited) -> None:
        nonlocal now
        asked = []

        async def inspect(wanted: EvolvingSource, _: object = None) -> compute_pb2.InspectSourceResponse:
            if "map" in names:
                return compute_pb2.InspectSourceResponse(error="column 'map': has no counterpart")
            asked.append([table.name for table in wanted.tables])
            columns = tuple(Column(name, BIGINT) for name in names)
            return compute_pb2.InspectSourceResponse(
                tables=[codec.encode(SourceTable(table.name, columns)) for table in wanted.tables]
            )

        async def reconcile() -> list[str]:
            source.harness.cache.put(KEY, document)
            await source.reconciler.reconcile(KEY, document)
            return source.ingested

        cast(Any, source.running).inspect = inspect
        source.harness.context.registry.allowed_hosts = AllowedHosts.parse(["db:5432"])
        assert await reconcile() == ["t"]
        reader = planned("t")
        source.harness.context.registry.put_dataflow(reader)
        names.append("b")
        now += EVOLVE_SECONDS / 2
        assert await reconcile() == ["t"]
        now += EVOLVE_SECONDS
        assert [await reconcile() for _ in range(2)] == [["t", "t.2"]] * 2
        assert asked == [["t"], ["t"], ["t"], ["t.2"]]
        state = source.harness.context.registry.source(KEY)
        assert state is not None
        (relation,) = catalogue([state], []).relations
        assert (relation.name, [c.name for c in relation.columns]) == ("t", ["a", "b"])
        assert [table.name for table in tables_of(state, source.harness.fleet)] == ["t.1", "t"]
        assert set(relations.names([state], []).values()) == {"s.t.1", "s.t"}
        assert state.edit is None

        source.harness.context.registry.forget(reader.key)
        assert await reconcile() == (["t.2"] if kind == "delta" else ["t", "t.2"])
        source.harness.context.fleet.book("ns").observe(ShardId(f"{UID}/t.2/v1"), Frontier.at(9), Frontier.at(8))
        assert await reconcile() == ["t.2"]
        names.append("map")
        now += EVOLVE_SECONDS
        for _ in range(2):
            assert await reconcile() == ["t.2"]
            assert state.edit == IngestionFailure("SourceUnreadable", "column 'map': has no counterpart")
        names.remove("map")
        now += EVOLVE_SECONDS
        assert (await reconcile(), state.edit) == (["t.2"], None)

    edited(tmp_path, scenario)


def followed(kind: str, source: Body) -> Body:
    spec = {"instance": "default", "deletionPolicy": "Delete", kind: source}
    created = "2026-01-01T00:00:00Z"
    return body("DataSource", spec, "s", uid=UID, creationTimestamp=created, finalizers=[FINALIZER])


def evolving(*names: str) -> Body:
    return followed("delta", {"tables": [{"name": n, "path": f"/lake/{n}", "evolve": "addColumns"} for n in names]})


class Lake:
    """Delta tables `a` and `b`, as a replica inspects them: any of them may be unreadable."""

    def __init__(self) -> None:
        self.columns = {"a": ["n"], "b": ["n"]}
        self.unreadable: set[str] = set()

    async def inspect(self, wanted: DeltaSource, _: object = None) -> compute_pb2.InspectSourceResponse:
        names = [table.name for table in wanted.tables]
        if wrong := [name for name in names if name in self.unreadable]:
            return compute_pb2.InspectSourceResponse(error=f"table {wrong[0]}: column 'm': has no counterpart")
        tables = [SourceTable(n, tuple(Column(c, BIGINT) for c in self.columns[n.partition(".")[0]])) for n in names]
        return compute_pb2.InspectSourceResponse(tables=[codec.encode(table) for table in tables])


def test_an_unreadable_table_holds_up_the_columns_of_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition names it until it can be read."""
    now, lake, document = 1000.0, Lake(), evolving("a", "b")
    monkeypatch.setattr(table_edits, "monotonic", lambda: now)

    async def scenario(source: Edited) -> None:
        nonlocal now
        cast(Any, source.running).inspect = lake.inspect
        source.harness.cache.put(KEY, document)
        await source.reconciler.reconcile(KEY, document)
        state = source.harness.context.registry.source(KEY)
        assert state is not None
        lake.columns, lake.unreadable = {"a": ["n", "m"], "b": ["n", "m"]}, {"a"}
        now += EVOLVE_SECONDS
        for ingested in (["a", "b", "b.2"], ["a", "b.2"], ["a", "b.2"]):  # `b` goes once its successor is there
            await source.reconciler.reconcile(KEY, document)
            assert sorted(source.ingested) == ingested
            assert state.edit == IngestionFailure("SourceUnreadable", "table a: column 'm': has no counterpart")
        lake.unreadable = set()
        now += EVOLVE_SECONDS
        for _ in range(2):
            await source.reconciler.reconcile(KEY, document)
        assert (sorted(source.ingested), state.edit) == (["a.2", "b.2"], None)

    edited(tmp_path, scenario)


def test_a_source_has_as_many_tables_as_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor waits until a Dataflow lets an earlier table go; all else goes on."""
    now, lake, document = 1000.0, Lake(), evolving("a")
    for module in (table_edits, source_inspection_queue):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    monkeypatch.setattr(table_edits, "MAX_TABLES", 2)

    async def scenario(source: Edited) -> None:
        nonlocal now
        cast(Any, source.running).inspect = lake.inspect
        source.harness.cache.put(KEY, document)
        reader = planned("a")
        await source.reconciler.reconcile(KEY, document)
        source.harness.context.registry.put_dataflow(reader)
        state = source.harness.context.registry.source(KEY)
        assert state is not None
        reasons = []
        for column in ("m", "x"):
            lake.columns["a"].append(column)
            now += EVOLVE_SECONDS
            for _ in range(2):
                await source.reconciler.reconcile(KEY, document)
                assert source.ingested == ["a", "a.2"]
                reasons.append(state.edit and state.edit.reason)
        assert reasons == [None, None, "TooManyTables", "TooManyTables"]

        source.harness.context.registry.forget(reader.key)
        for _ in range(3):
            now += EVOLVE_SECONDS
            await source.reconciler.reconcile(KEY, document)
        assert (source.ingested, state.edit) == (["a.3"], None)

    edited(tmp_path, scenario)


def test_an_edit_that_cannot_be_stored_stops_no_ingestion(tmp_path: Path) -> None:
    """The first reconcile of an operator fails at the edit: the tables that are stored are ingested all the same."""

    async def scenario(source: Edited) -> None:
        await source.store(1, "a")
        source.stored.failure = ApiError(503, "no leader")

        with pytest.raises(ApiError, match="no leader"):
            await source.reconcile("a", "b")
        assert source.ingested == ["a"]
        assert source.numbers == [1]

        await source.reconcile("a", "b")
        assert source.ingested == ["a", "b"]

    edited(tmp_path, scenario)


def test_how_a_kafka_table_goes_on_behind_a_gap_is_stored_and_sent(tmp_path: Path) -> None:
    """Without a look at the brokers, and once: no table comes or goes."""

    def document(gap: str) -> Body:
        table = {"name": "t", "topic": "t", "format": "text", "onGap": gap}
        spec = {"instance": "default", "deletionPolicy": "Delete", "kafka": {"brokers": ["k:9"], "tables": [table]}}
        return body("DataSource", spec, "s", uid=UID, creationTimestamp="2026-01-01T00:00:00Z", finalizers=[FINALIZER])

    async def scenario(source: Edited) -> None:
        asked = []

        async def inspect(wanted: KafkaSource, _: object = None) -> compute_pb2.InspectSourceResponse:
            asked.append(wanted)
            columns = (Column("value", STRING),)
            return compute_pb2.InspectSourceResponse(tables=[codec.encode(SourceTable("t", columns))])

        async def reconcile(gap: str) -> str:
            source.harness.cache.put(KEY, document(gap))
            assert await source.reconciler.reconcile(KEY, document(gap)) is None
            running = source.running.core.ingestions.get(GlobalId(UID))
            assert running is not None
            ingestion = running[1].ingestion
            assert isinstance(ingestion.source, KafkaSource)
            assert [table.shard.shard_id for table in ingestion.tables] == [f"{UID}/t/v1"]
            return ingestion.source.tables[0].on_gap

        source.harness.context.registry.allowed_hosts = AllowedHosts.parse(["k:9"])
        cast(Any, source.running).inspect = inspect
        assert await reconcile("stop") == "stop"
        source.harness.context.registry.put_dataflow(planned("t"))
        assert await reconcile("skip") == "skip"
        assert await reconcile("skip") == "skip"
        source.reconciler.forget(KEY)
        source.harness.context.registry.forget(KEY)
        assert await reconcile("skip") == "skip"
        assert await reconcile("stop") == "stop"
        assert (len(asked), source.numbers, source.deleted) == (1, [3], [])

    edited(tmp_path, scenario)


def test_conditions_until_an_edit_is_stored_are_of_the_generation_before(tmp_path: Path) -> None:
    """Also those that the next operator writes before it has reconciled anything."""

    async def scenario(source: Edited) -> None:
        await source.reconcile("a")
        document = manifest("a", "b")
        document["metadata"]["generation"] = 2

        def observed() -> set[int]:
            status = status_of(source.harness.context, KEY, document, 0)
            assert status is not None
            document["status"] = status
            return {status["observedGeneration"], *(each["observedGeneration"] for each in status["conditions"])}

        assert observed() == {1}
        source.stored.failure = ApiError(503, "no leader")
        source.harness.cache.put(KEY, document)
        with pytest.raises(ApiError, match="no leader"):
            await source.reconciler.reconcile(KEY, document)
        assert observed() == {1}
        source.reconciler.forget(KEY)
        source.harness.context.registry.forget(KEY)
        source.reconciler.adopt(KEY, document)
        assert observed() == {1}
        await source.reconciler.reconcile(KEY, document)
        assert observed() == {2}

    edited(tmp_path, scenario)


def test_an_edit_that_stands_in_line_says_so(tmp_path: Path) -> None:
    """Its conditions carry its generation, so they must not say that its tables are known."""

    async def scenario(source: Edited) -> None:
        await source.reconcile("a")
        source.reconciler._pinning.inspections._running = 2  # two other sources are inspected
        await source.reconcile("a", "b")
        status = status_of(source.harness.context, KEY, manifest("a", "b"), 0)
        assert status is not None
        (known,) = [each for each in status["conditions"] if each["type"] == "SchemaKnown"]
        assert (known["status"], known["reason"]) == ("False", "WaitingForInspection")
        source.reconciler._pinning.inspections._running = 0
        await source.reconcile("a", "b")
        status = status_of(source.harness.context, KEY, manifest("a", "b"), 0)
        assert status is not None
        assert [each["status"] for each in status["conditions"] if each["type"] == "SchemaKnown"] == ["True"]

    edited(tmp_path, scenario)


@pytest.mark.parametrize("stored", [(), ("a",)], ids=["at first", "by an edit"])
def test_tables_that_no_revision_holds_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: tuple[str, ...]
) -> None:
    """Their description is too large. An exception would be in the operator's log alone, and retried for ever."""

    async def scenario(source: Edited) -> None:
        if stored:
            await source.store(1, *stored)
        monkeypatch.setattr(revisions, "MAX_STORED_BYTES", 100)
        await source.reconcile("a", "b")

        status = status_of(source.harness.context, KEY, manifest("a", "b"), 0)
        assert status is not None
        conditions = {each["type"]: each for each in status["conditions"]}
        reported = conditions["SchemaKnown" if stored else "Ingesting"]
        assert reported["reason"] == "PlanTooLarge"
        assert reported["message"].endswith("split the DataSource")
        assert source.numbers == ([1] if stored else [])
        if stored:
            assert source.ingested == list(stored)

    edited(tmp_path, scenario)


def planned(table: str = "b") -> DataflowState:
    """Its plan reads the table."""
    mark = rev("d", 1, tables=[ShardMetadata(ShardId(f"{UID}/{table}/v1"), "/data", (A,))])
    return dataflow("d", replace(mark, revision=replace(mark.revision, reads=(Parent("DataSource", "s"),))))


def being_stored() -> DataflowState:
    """Its plan is being stored, and may read any table."""
    return replace(dataflow("d", None), planning=PlanningState(reads=(Parent("DataSource", "s"),)))


@pytest.mark.parametrize("reader", [planned, being_stored])
def test_a_removed_table_that_a_dataflow_reads_is_not_deleted(
    tmp_path: Path, reader: Callable[[], DataflowState]
) -> None:
    """The operator died after it had stored the edit, and the Dataflow began meanwhile. The table's revision stays
    until a replica has deleted the table."""

    async def scenario(source: Edited) -> None:
        await source.store(1, "a", "b")
        await source.store(2, "a")
        registry, state = source.harness.context.registry, reader()
        registry.put_dataflow(state)

        assert await source.reconcile("a") == EDIT_SECONDS
        assert (source.ingested, source.deleted, source.numbers) == (["a"], [], [1, 2])

        registry.forget(state.key)
        assert await source.reconcile("a") == EDIT_SECONDS
        assert (source.deleted, source.numbers) == ([f"{UID}/b/v1"], [1, 2])

        source.deleter.requests.record_answer("default", R1, ShardDeleted(ShardId(f"{UID}/b/v1")), now_ms())
        assert await source.reconcile("a") is None
        assert (source.deleted, source.numbers) == ([f"{UID}/b/v1"], [2])

    edited(tmp_path, scenario)
