"""A DataSource with `adopt`, on tables that another has left: real tables, a replica's own look at them, no Spark."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.protocol.samples import INGESTION
from tests.resources.manifests import body
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import RevisionUnreadable
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.cache import Key, key_of
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.resources.relation_columns import COLUMNS as COLUMNS_OF
from tidemark_persist import Shard, create_or_open, open_shard
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import IntrospectionTable, SourceTable
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.shards.shards import ShardHandles, with_owner

SPEC = {"instance": "default", "loadGenerator": {"tpch": {}}}
TABLE = SourceTable("t", (Column("a", BIGINT),))
TERM = 7


class Kept:
    """The state of a source: the revision that pinning stored, or the failure of pinning."""

    def __init__(self) -> None:
        self.failure: Any = None
        self.pinned: Any = None
        self.ingester: Any = None

    async def all(self, *_: object) -> dict[int, Any]:
        return {1: self.pinned} if self.pinned is not None else {}

    async def store(self, first: object, second: Any, third: Any) -> None:
        """A revision of the tables, or the ingester in the status."""
        if isinstance(second, dict):
            self.ingester = second["ingester"]
        else:
            self.pinned = third


def leave(folder: Path, part: str, version: int, column: str = "a") -> Shard:
    """A table as an earlier source left it, written under a term."""
    schema = pa.schema([(column, pa.int64())])
    shard = create_or_open(str(folder / "ns" / "s" / part / f"v{version}"), schema, shard_id=f"old/{part}/v{version}")
    shard.fence(TERM)
    return shard


class Unreadable(Kept):
    """A newer operator stored it."""

    async def all(self, *_: object) -> dict[int, Any]:
        raise RevisionUnreadable("revision s-1 has format 99")


def reconciled(
    folder: Path, buried: Sequence[str] = (), kept: Kept | None = None, found: SourceTable | None = None, **spec: Any
) -> tuple[Kept, dict[str, str]]:
    """The document that is stored after a DataSource of this spec was looked at, and the reasons of its conditions."""
    kept = kept or Kept()

    async def scenario() -> tuple[Kept, dict[str, str]]:
        harness, handles = OperatorHarness(), ShardHandles()
        harness.put({"storage": {"location": str(folder)}}, {"instance": "default"})
        running = harness.context.running("ns", "default")
        assert running is not None
        running.replicas[ReplicaId("r1")].online = True

        async def inspect(*_: object) -> compute_pb2.InspectSourceResponse:
            return compute_pb2.InspectSourceResponse(tables=[codec.encode(found or TABLE)])

        async def describe(shards: Iterable[tuple[ShardId, str]]) -> tuple[ReplicaId, Description]:
            seen = [(handles.describe(id, location), location) for id, location in shards]
            described = [with_owner(handles.reader(at), shard) if shard.exists else shard for shard, at in seen]
            return ReplicaId("r1"), Description("incarnation", None, 0, (), (), tuple(described))

        answers = cast(Any, running)
        answers.inspect, answers.describe = inspect, describe
        written = body("DataSource", {**SPEC, **spec}, "s", uid="new", creationTimestamp="2026-01-01T00:00:00Z")
        key = key_of(DATA_SOURCES, written)
        harness.cache.put(key, written)
        harness.context.revisions = cast(Any, kept)
        reconciler = DataSourceReconciler(harness.context, cast(Any, kept), deleter(harness, *buried), lambda _: None)
        await reconciler.reconcile(key, written)
        kept.failure = reconciler.adopt(key, written).failure
        assert (running.core.ingestions.get(GlobalId("new")) is not None) == (kept.pinned is not None)
        status = status_of(harness.context, key, written, 0)
        await harness.fleet.close()
        assert status is not None
        return kept, {condition["type"]: condition["reason"] for condition in status["conditions"]}

    return asyncio.run(scenario())


def test_its_ingester_writes_to_the_very_tables_under_a_higher_term(tmp_path: Path) -> None:
    """The newest that have bindings; who wrote to them before is shut out."""
    for part in ("__remap", "t"):
        leave(tmp_path, part, 1)
        leave(tmp_path, part, 2)

    kept, _ = reconciled(tmp_path, adopt=True)

    (table,) = kept.pinned.tables
    assert (kept.pinned.remap_id, kept.pinned.remap_location) == ("old/__remap/v2", f"{tmp_path}/ns/s/__remap/v2")
    assert (table.shard.shard_id, table.shard.location) == ("old/t/v2", f"{tmp_path}/ns/s/t/v2")
    assert kept.ingester == {"replica": "r1", "writerTerm": TERM + 1}
    create_or_open(table.shard.location, pa.schema([("a", pa.int64())]), shard_id=table.shard.shard_id).fence(TERM + 1)
    assert open_shard(table.shard.location).refresh().term == TERM + 1


@pytest.mark.parametrize("adopt", [False, True])
def test_without_tables_or_without_adopt_it_begins_with_its_own(tmp_path: Path, adopt: bool) -> None:
    """Beside what is there."""
    if not adopt:
        leave(tmp_path, "__remap", 1)
        leave(tmp_path, "t", 1)

    kept, _ = reconciled(tmp_path, adopt=adopt)

    (table,) = kept.pinned.tables
    version = 1 if adopt else 2
    assert (table.shard.shard_id, table.shard.location) == (f"new/t/v{version}", f"{tmp_path}/ns/s/t/v{version}")
    assert kept.ingester["writerTerm"] == 1


def test_tables_of_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    """Nothing is stored, and nothing is ingested."""
    leave(tmp_path, "__remap", 1)
    leave(tmp_path, "t", 1, column="b")

    kept, reasons = reconciled(tmp_path, adopt=True)

    assert kept.pinned is None
    assert reasons["Ingesting"] == "CannotAdopt"


@pytest.mark.parametrize("adopt", [False, True])
def test_the_planner_is_told_no_key_of_an_adopted_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopt: bool
) -> None:
    """The earlier rows need not keep it: the earlier DataSource may have had another one, or none."""
    monkeypatch.setattr(sys.modules[__name__], "TABLE", replace(TABLE, keys=((0,),)))
    leave(tmp_path, "__remap", 1)
    leave(tmp_path, "t", 1)

    lake = {"tables": [{"name": "t", "path": "/lake", "primaryKey": ["a"]}]}
    kept, _ = reconciled(tmp_path, adopt=adopt, delta=lake)

    assert [table.table.keys for table in kept.pinned.tables] == [() if adopt else ((0,),)]


COLUMNS = [{"name": column.name, "type": str(column.type).upper()} for column in TABLE.columns]
KEYED = {"tables": [{"name": "t", "columns": COLUMNS, "primaryKey": [TABLE.columns[0].name]}]}
TOPIC = {"name": "t", "topic": "t", "format": "json", "columns": COLUMNS}
BROKER = {"bootstrapServers": "kafka:9092", "tables": [TOPIC]}


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("source", [{"table": KEYED}, {"kafka": BROKER}], ids=["written", "kafka"])
def test_the_planner_is_told_nothing_that_an_adopted_tables_earlier_rows_need_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopt: bool, source: dict[str, object]
) -> None:
    """The earlier DataSource may have had no key, or have retracted rows. A plan that takes a column for NOT NULL would
    leave rows out, and one that takes the table for append-only would keep what was retracted."""
    never_null = tuple(replace(column, nullable=False) for column in TABLE.columns)
    strict = replace(TABLE, columns=never_null, keys=((0,),), monotonic=True)
    monkeypatch.setattr(sys.modules[__name__], "TABLE", strict)
    leave(tmp_path, "__remap", 1)
    leave(tmp_path, "t", 1)

    kept, _ = reconciled(tmp_path, adopt=adopt, **source)

    [ingested] = kept.pinned.tables
    assert ingested.table.monotonic != adopt
    assert {column.nullable for column in ingested.table.columns} == {adopt}
    assert {column.nullable for column in ingested.shard.columns} == {adopt}


def test_a_table_that_was_removed_from_its_source_is_not_adopted(tmp_path: Path) -> None:
    """The bindings went on without it, and those that it lacks were compacted."""
    for part, upper, since in (("__remap", 50, 40), ("t", 30, 0)):
        shard = leave(tmp_path, part, 1)
        shard.compare_and_append(None, expected_upper=0, new_upper=Time(upper), term=TERM)
        shard.downgrade_since(Time(since))

    kept, reasons = reconciled(tmp_path, adopt=True)

    assert kept.pinned is None
    assert reasons["Ingesting"] == "CannotAdopt"
    assert not kept.failure.passes


def test_tables_that_a_tombstone_lists_are_not_adopted(tmp_path: Path) -> None:
    """Deletion goes by the id in the table, which adoption leaves as it is: a living table would go."""
    for part in ("__remap", "t"):
        leave(tmp_path, part, 1)

    kept, reasons = reconciled(tmp_path, [f"{tmp_path}/ns/s/t/v1"], adopt=True)

    assert kept.pinned is None
    assert reasons["Ingesting"] == "TablesBeingDeleted"
    assert kept.failure.passes


def test_a_location_that_a_tombstone_lists_is_not_given_to_a_new_table(tmp_path: Path) -> None:
    """Also where nothing is there any more."""
    kept, _ = reconciled(tmp_path, [f"{tmp_path}/ns/s/t/v1"])

    (table,) = kept.pinned.tables
    assert table.shard.location == f"{tmp_path}/ns/s/t/v2"


def test_nothing_of_a_source_that_is_gone_holds_its_bindings() -> None:
    """The next one of its name may adopt the very same table."""

    async def scenario() -> None:
        harness = OperatorHarness()
        harness.put(READABLE, ONE)
        running = harness.context.running("ns", "default")
        assert running is not None
        key = Key(DATA_SOURCES, "ns", "s")
        state = SourceState(key, INGESTION.id, "default", pinned=INGESTION)
        harness.context.registry.put_source(state)
        running.run_ingestion(ReplicaId("r1"), INGESTION, WriterTerm(1))
        book = harness.fleet.book("ns")
        held = book.get(INGESTION.remap_id)
        assert held is not None
        assert held.holds

        DataSourceReconciler(harness.context, cast(Any, None), deleter(harness), lambda _: None).forget(key)

        assert book.get(INGESTION.remap_id) is None
        await harness.fleet.close()

    asyncio.run(scenario())


def test_a_revision_of_a_newer_operator_is_a_condition(tmp_path: Path) -> None:
    """Nothing is pinned beside it, and nothing is ingested."""
    kept, reasons = reconciled(tmp_path, kept=Unreadable())
    assert kept.pinned is None
    assert (reasons["Ingesting"], reasons["Ready"]) == ("RevisionUnreadable", "RevisionUnreadable")


def test_the_last_of_the_tables_that_got_columns_is_adopted(tmp_path: Path) -> None:
    """It keeps its stored name, as its first rows are bound by it. One that has not begun is none; a manifest of before
    the columns is refused, as the earlier table may lack rows."""
    columns = {"t": ("a",), "t.3": ("a", "b"), "t.4": ("a", "b", "c")}  # `t.2` was deleted
    for part, names in {"__remap": ("a",), **columns}.items():
        schema = pa.schema([(name, pa.int64()) for name in names])
        shard = create_or_open(str(tmp_path / "ns" / "s" / part / "v1"), schema, shard_id=f"old/{part}/v1")
        shard.fence(TERM)
        if part != "t.4":
            shard.compare_and_append(None, expected_upper=0, new_upper=Time(10), term=TERM)
    spec = {"loadGenerator": None, "table": {"tables": [{"name": "t", "columns": []}]}}
    for names in (("a",), ("a", "b", "c")):
        wanted = [{"name": name, "type": "BIGINT"} for name in names]
        found = SourceTable("t", tuple(Column(name, BIGINT) for name in names))
        spec["table"]["tables"][0]["columns"] = wanted  # type: ignore[index]
        kept, _ = reconciled(tmp_path, found=found, adopt=True, **spec)
        assert kept.pinned is None
        assert "t.3 in v1 has columns (a bigint, b bigint)" in str(kept.failure)

    spec["table"]["tables"][0]["columns"] = [{"name": name, "type": "BIGINT"} for name in ("a", "b")]  # type: ignore[index]
    found = SourceTable("t", (Column("a", BIGINT), Column("b", BIGINT)), ((0,),))
    kept, _ = reconciled(tmp_path, found=found, adopt=True, **spec)
    (table,) = kept.pinned.tables
    assert (table.table.name, table.table.keys, table.shard.shard_id) == ("t.3", (), "old/t.3/v1")
    assert [each.name for each in kept.pinned.source.tables] == ["t.3"]
    assert open_shard(f"{tmp_path}/ns/s/t/v1").refresh().term == TERM


def test_relations_of_introspection_are_adopted_with_their_stored_names_and_columns(tmp_path: Path) -> None:
    """One was removed and added again, by an operator of another version: nobody can say so in a spec."""
    for part, names in {"__remap": ("a",), "errors": ("a",), "errors.2": ("a", "b")}.items():
        schema = pa.schema([(name, pa.int64()) for name in names])
        shard = create_or_open(str(tmp_path / "ns" / "s" / part / "v1"), schema, shard_id=f"old/{part}/v1")
        shard.fence(TERM)
        shard.compare_and_append(None, expected_upper=0, new_upper=Time(10), term=TERM)
    spec = {"loadGenerator": None, "introspection": {"relations": ["errors"]}}

    kept, _ = reconciled(tmp_path, found=SourceTable("errors", COLUMNS_OF["errors"]), adopt=True, **spec)

    (table,) = kept.pinned.tables
    stored = (Column("a", BIGINT), Column("b", BIGINT))
    assert (table.table.name, table.shard.shard_id) == ("errors.2", "old/errors.2/v1")
    assert kept.pinned.source.tables == (IntrospectionTable("errors.2", stored),)
    assert table.table.columns == table.shard.columns == stored
