"""A DataSource that follows a whole publication: tables are found, stored as revisions, and then ingested."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.handlers.sources.test_source_adoption import TERM, leave
from tests.handlers.sources.test_table_edits import KEY, R1, UID, Edited, StoredObjects, followed, planned
from tests.waiting import BOUND
from tidemark_operator.handlers.reconcile import publication_looks, source_inspection_queue, table_edits
from tidemark_operator.handlers.reconcile.publication_looks import LOOK_SECONDS
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.client import ApiError, Body
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import PostgresSource, PublicationTable, SourceTable
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.shards.shards import with_owner

COLUMNS = (Column("id", BIGINT),)


class Upstream:
    """A publication, as a replica looks at it. `gone`: tables that went after the look. `asked`: the tables that each
    look knew. `error`: what the replica answers. `columns`: of tables that have others than COLUMNS."""

    def __init__(self, *names: str) -> None:
        self.published = {name: PublicationTable("public", name) for name in names}
        self.gone, self.asked, self.error, self.inspected = set[str](), list[list[str]](), "", list[list[str]]()
        self.columns: dict[str, tuple[Column, ...]] = {}
        self.answers = asyncio.Event()
        """Looks are answered while it is set."""
        self.answers.set()

    async def inspect(self, source: PostgresSource, _: object = None) -> compute_pb2.InspectSourceResponse:
        if self.error:
            return compute_pb2.InspectSourceResponse(error=self.error)
        if source.all_tables:
            known = {table.table for table in source.tables}
            self.asked.append(sorted(known))
            await self.answers.wait()
            found = [codec.encode(table) for name, table in self.published.items() if name not in known]
            return compute_pb2.InspectSourceResponse(published=found)
        self.inspected.append([table.name for table in source.tables])
        if missing := [table.table for table in source.tables if table.table in self.gone]:
            return compute_pb2.InspectSourceResponse(error=f"table {missing[0]}: TableMissing")
        tables = [SourceTable(table.name, self.columns.get(table.table, COLUMNS)) for table in source.tables]
        return compute_pb2.InspectSourceResponse(tables=map(codec.encode, tables))


class Followed:
    """The DataSource with its operator, its clock and its upstream. `spec`: of postgres, beside the database."""

    def __init__(self, edited: Edited, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
        self.edited, self.upstream, self.now = edited, upstream, 1000.0
        self.spec: Body = {"allTables": True}
        self.suspended = self.deleted = self.adopts = False
        for module in (publication_looks, source_inspection_queue, table_edits):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)
        cast(Any, edited.running).inspect = upstream.inspect
        edited.harness.context.registry.allowed_hosts = AllowedHosts.parse(["db:5432"])

    @property
    def manifest(self) -> Body:
        database = {"host": "db", "database": "d", "secret": "db", "publication": "p"}
        document = followed("postgres", database | self.spec)
        document["spec"] |= {"suspend": self.suspended, "adopt": self.adopts}
        document["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if self.deleted else {}
        return document

    async def reconcile(self, times: int = 1) -> list[str]:
        """The operator tells the replica to ingest these tables, after a minute; none before it told it any."""
        self.now += LOOK_SECONDS
        self.edited.harness.cache.put(KEY, self.manifest)
        for _ in range(times):
            await self.edited.reconciler.reconcile(KEY, self.manifest)
        running = self.edited.running.core.ingestions.get(GlobalId(UID))
        return self.edited.ingested if running is not None else []

    async def is_due_again(self) -> None:
        """Waits until the DataSource is put into the work queue."""
        while not self.edited.again:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    @property
    def failure(self) -> IngestionFailure | None:
        state = self.edited.harness.context.registry.source(KEY)
        assert state is not None
        return state.edit or state.failure

    def condition(self, name: str) -> Body:
        status = status_of(self.edited.harness.context, KEY, self.manifest, 0)
        assert status is not None
        return next(each for each in status["conditions"] if each["type"] == name)


def follow(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    upstream: Upstream,
    scenario: Callable[[Followed], Awaitable[None]],
    stored: StoredObjects | None = None,
) -> None:
    async def run() -> None:
        edited = Edited(folder, stored or StoredObjects())
        try:
            await asyncio.wait_for(scenario(Followed(edited, upstream, monkeypatch)), BOUND)
        finally:
            await edited.harness.fleet.close()

    asyncio.run(run())


def test_published_tables_are_followed_and_later_ones_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that leaves the publication stays. The operator looks no sooner than a minute after its last look."""
    upstream = Upstream("a", "b")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a", "b"]
        upstream.published["c"] = PublicationTable("public", "c")
        del upstream.published["a"]
        looks = len(upstream.asked)
        for _ in range(3):
            await source.edited.reconciler.reconcile(KEY, source.manifest)
        assert (source.edited.ingested, len(upstream.asked)) == (["a", "b"], looks)
        assert await source.reconcile() == ["a", "b", "c"]
        assert await source.reconcile() == ["a", "b", "c"]
        assert upstream.asked[-1] == ["a", "b", "c"]
        assert (source.failure, source.edited.numbers) == (None, [2])

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_columns_that_come_to_a_publication_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `evolve` of the source: of tables without an entry, and of which no column is left out."""
    upstream = Upstream("a", "b", "c")
    upstream.published["c"] = PublicationTable("public", "c", ("id",), ("g (column g is generated)",))

    async def scenario(source: Followed) -> None:
        source.spec |= {"tables": [{"name": "b", "table": "b"}]}
        assert await source.reconcile() == ["b", "a", "c"]
        upstream.columns = dict.fromkeys("ab", (*COLUMNS, Column("vip", BIGINT)))
        assert await source.reconcile(2) == ["b", "a", "c"]
        source.spec |= {"evolve": "addColumns"}
        assert await source.reconcile(2) == ["b", "a", "c", "a.2"]
        assert source.failure is None
        upstream.published["d"] = PublicationTable("public", "d")
        assert await source.reconcile(2) == ["b", "a", "c", "a.2", "d"]
        upstream.columns["d"] = (*COLUMNS, Column("vip", BIGINT))
        assert await source.reconcile(2) == ["b", "a", "c", "a.2", "d", "d.2"]

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_an_operator_that_begins_follows_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where upstream is away, or has other tables by now: each shard stays its table's."""
    stored, upstream = StoredObjects(), Upstream("a", "b")

    async def before(source: Followed) -> None:
        assert await source.reconcile() == ["a", "b"]

    async def after(source: Followed) -> None:
        upstream.error = "connection refused"
        assert await source.reconcile() == ["a", "b"]
        assert source.failure == IngestionFailure("SourceUnreadable", "connection refused")
        upstream.error = ""
        upstream.published = {"c": PublicationTable("public", "c")}
        assert await source.reconcile() == ["a", "b", "c"]
        assert source.failure is None

    follow(tmp_path, monkeypatch, upstream, before, stored)
    follow(tmp_path, monkeypatch, upstream, after, stored)


def test_a_slow_look_holds_up_no_ingestion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it hold up a worker of the queue. Once it has ended the DataSource is reconciled. There is one look at a
    time, and none of a DataSource that is gone."""
    stored, upstream = StoredObjects(), Upstream("a")
    monkeypatch.setattr(publication_looks, "MOMENT_SECONDS", 0.01)

    async def before(source: Followed) -> None:
        assert await source.reconcile() == ["a"]

    async def after(source: Followed) -> None:
        upstream.published["b"] = PublicationTable("public", "b")
        upstream.answers, looks = asyncio.Event(), len(upstream.asked)
        for _ in range(3):
            assert await source.reconcile() == ["a"]
        assert (len(upstream.asked), source.edited.again) == (looks + 1, [])
        upstream.answers.set()
        await source.is_due_again()
        assert source.edited.again == [KEY]
        source.now -= LOOK_SECONDS
        assert await source.reconcile() == ["a", "b"]
        assert len(upstream.asked) == looks + 1

        upstream.answers.clear()
        assert await source.reconcile() == ["a", "b"]
        source.edited.reconciler.forget(KEY)
        upstream.answers.set()
        await asyncio.sleep(0.01)
        assert source.edited.again == [KEY]

    follow(tmp_path, monkeypatch, upstream, before, stored)
    follow(tmp_path, monkeypatch, upstream, after, stored)


def test_a_look_that_fails_in_the_operator_fails_its_reconciliation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its work queue tries it again with growing pauses, and says why; also where it failed later. Tables go on."""
    upstream = Upstream("a")
    monkeypatch.setattr(publication_looks, "MOMENT_SECONDS", 0.01)

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        upstream.answers = asyncio.Event()

        async def fail(*_: object) -> compute_pb2.InspectSourceResponse:
            await upstream.answers.wait()
            raise ApiError(500, "away")

        cast(Any, source.edited.running).inspect = fail
        assert await source.reconcile() == ["a"]
        upstream.answers.set()
        await source.is_due_again()
        for _ in range(2):
            with pytest.raises(ApiError):
                await source.reconcile()
        assert source.edited.ingested == ["a"]

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_a_find_that_could_not_be_stored_is_ingested_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = Upstream("a")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        upstream.published["b"] = PublicationTable("public", "b")
        source.edited.stored.failure = ApiError(500, "the API server is away")
        with pytest.raises(ApiError):
            await source.reconcile()
        assert source.edited.ingested == ["a"]
        assert await source.reconcile() == ["a", "b"]

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_tables_that_cannot_be_followed_are_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold nothing up. An exception in the spec ends the message; so does what is mended upstream."""
    upstream = Upstream("a")
    upstream.published["b"] = PublicationTable("public", "b", refused="ReplicaIdentity: no key")
    upstream.published["c"] = PublicationTable("public", "c", ("id",), ("total (it is generated)",))

    async def scenario(source: Followed) -> None:
        assert await source.reconcile(2) == ["a", "c"]
        assert source.failure is not None
        assert source.failure.reason == "TablesLeftOut"
        assert "public.b: ReplicaIdentity: no key" in source.failure.message
        assert source.condition("SchemaKnown")["reason"] == "TablesLeftOut"

        source.spec["exceptTables"] = [{"table": "b"}]
        assert await source.reconcile(2) == ["a", "c"]
        assert source.failure is None
        assert source.condition("SchemaKnown")["status"] == "True"
        assert source.condition("SchemaKnown")["message"] == "followed are public.c without total (it is generated)"

        del source.spec["exceptTables"]
        upstream.published["b"] = PublicationTable("public", "b")
        assert await source.reconcile(2) == ["a", "c", "b"]
        assert source.failure is None

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_a_publication_without_tables_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = Upstream()

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == []
        assert source.failure is not None
        assert (source.failure.reason, source.failure.passes) == ("NothingPublished", True)
        upstream.error = "password authentication failed"
        assert await source.reconcile() == []
        assert source.failure == IngestionFailure("SourceUnreadable", "password authentication failed")
        upstream.error = ""
        upstream.published["a"] = PublicationTable("public", "a")
        assert await source.reconcile(2) == ["a"]
        assert source.failure is None

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_a_table_that_goes_between_the_look_and_its_inspection_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = Upstream("a")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        upstream.published |= {name: PublicationTable("public", name) for name in ("b", "c")}
        upstream.gone.add("b")
        assert await source.reconcile() == ["a", "c"]
        del upstream.published["b"]
        source.now += source_inspection_queue.PAUSE_SECONDS_MAX
        await source.edited.reconciler.reconcile(KEY, source.manifest)
        assert source.edited.ingested == ["a", "c"]

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_a_suspended_source_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = Upstream("a")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        upstream.published["b"] = PublicationTable("public", "b")
        looks, source.suspended = len(upstream.asked), True
        assert await source.reconcile(3) == []
        assert len(upstream.asked) == looks
        source.suspended = False
        assert await source.reconcile(2) == ["a", "b"]

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_from_named_tables_to_all_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table keeps its shard while the spec wants it; one that comes again is another one."""
    upstream = Upstream("a", "b")

    async def scenario(source: Followed) -> None:
        source.spec = {"tables": [{"name": "a", "table": "a"}]}
        assert await source.reconcile() == ["a"]
        assert upstream.asked == []
        source.spec = {"allTables": True}
        assert await source.reconcile(2) == ["a", "b"]
        source.spec = {"tables": [{"name": "a", "table": "a"}]}
        assert await source.reconcile(2) == ["a"]
        assert source.edited.deleted == [f"{UID}/b/v1"]
        source.spec = {"allTables": True, "tables": [{"name": "a", "table": "a"}]}
        assert await source.reconcile(2) == ["a", "b.2"]
        assert await source.reconcile(2) == ["a", "b.2"]
        assert source.failure is None

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_a_replica_of_an_earlier_release_finds_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica ingests the stored tables as before."""
    upstream = Upstream("a")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        cast(Any, source.edited.running).is_too_old_for = lambda asked: getattr(asked, "all_tables", False)
        assert await source.reconcile() == ["a"]
        assert source.failure is not None
        assert source.failure.reason == "ImageTooOld"

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_an_entry_that_cannot_be_read_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither tables that are found with it or later, nor other entries. It is named until it is mended."""
    upstream = Upstream("a")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        upstream.gone.add("typo")
        source.spec["tables"] = [{"name": "t", "table": "typo"}, {"name": "good", "table": "b"}]
        upstream.published |= {name: PublicationTable("public", name) for name in ("b", "c")}
        assert await source.reconcile() == ["a", "good", "c"]
        assert source.failure == IngestionFailure("SourceUnreadable", "table typo: TableMissing")
        assert source.condition("SchemaKnown")["reason"] == "SourceUnreadable"
        upstream.published["d"] = PublicationTable("public", "d")
        assert await source.reconcile(2) == ["a", "good", "c", "d"]
        assert source.failure == IngestionFailure("SourceUnreadable", "table typo: TableMissing")
        upstream.gone.clear()
        source.now += source_inspection_queue.PAUSE_SECONDS_MAX
        assert await source.reconcile(2) == ["a", "good", "c", "d", "t"]
        assert source.failure is None

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_an_entry_that_cannot_be_read_makes_no_further_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the inspection of added tables pauses, no replica looks again and again, either."""
    upstream = Upstream("a")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        upstream.gone.add("typo")
        source.spec["tables"] = [{"name": "t", "table": "typo"}]
        looks = len(upstream.asked)
        for _ in range(5):
            assert await source.reconcile(20) == ["a"]
        assert source.failure == IngestionFailure("SourceUnreadable", "table typo: TableMissing")
        assert len(upstream.asked) - looks <= 2 * 5

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_a_source_that_is_deleted_gets_no_further_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ingested on as long as a Dataflow reads it."""
    upstream = Upstream("a")

    async def scenario(source: Followed) -> None:
        assert await source.reconcile() == ["a"]
        upstream.published["b"] = PublicationTable("public", "b")
        looks, source.deleted = len(upstream.asked), True
        source.edited.harness.context.registry.put_dataflow(planned("a"))
        assert await source.reconcile(3) == ["a"]
        assert len(upstream.asked) == looks

    follow(tmp_path, monkeypatch, upstream, scenario)


def describe_owners(source: Followed) -> None:
    """The replica says whose a table is."""
    handles = source.edited.handles

    async def describe(shards: Iterable[tuple[ShardId, str]]) -> tuple[ReplicaId, Description]:
        seen = [(handles.describe(id, location), location) for id, location in shards]
        described = [with_owner(handles.reader(at), shard) if shard.exists else shard for shard, at in seen]
        return R1, Description("incarnation", None, 0, (), (), tuple(described))

    cast(Any, source.edited.running).describe = describe


@pytest.mark.parametrize("is_whole", [True, False])
def test_adopted_tables_are_found_by_their_stored_names_and_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """`a` was taken out and came again, so its rows are those of `a.2`; a column was added upstream that the earlier
    DataSource did not take. A column that it did not have is added."""
    for part, upper, since in (("__remap", 50, 40), ("a", 30, 0), ("a.2", 50, 0), ("b", 50, 0)):
        shard = leave(tmp_path, part, 1, "id")
        shard.compare_and_append(None, expected_upper=0, new_upper=Time(upper), term=WriterTerm(TERM))
        shard.downgrade_since(Time(since))
    upstream = Upstream("a", "b", "c")
    upstream.columns = {"a": (Column("id", BIGINT), Column("later", BIGINT)), "b": (Column("later", BIGINT), *COLUMNS)}
    named = [{"name": name, "table": name} for name in "ab"]

    async def scenario(source: Followed) -> None:
        describe_owners(source)
        source.spec, source.adopts = {"allTables": True} if is_whole else {"tables": named}, True
        followed = ["a.2", "b", "c"] if is_whole else ["a.2", "b"]
        assert await source.reconcile() == followed
        running = source.edited.running.core.ingestions.get(GlobalId(UID))
        assert running is not None
        assert [each.shard.shard_id for each in running[1].ingestion.tables][:2] == ["old/a.2/v1", "old/b/v1"]
        assert [each.table.columns for each in running[1].ingestion.tables] == [COLUMNS] * len(followed)
        assert await source.reconcile(2) == followed
        source.spec = {"allTables": True, "exceptTables": [{"table": "c"}]}
        assert await source.reconcile(2) == ["a.2", "b"]
        assert source.failure is None

    follow(tmp_path, monkeypatch, upstream, scenario)


def test_an_adopted_table_has_the_columns_that_an_entry_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is not adopted."""
    for part in ("__remap", "a"):
        shard = leave(tmp_path, part, 1, "id")
        shard.compare_and_append(None, expected_upper=0, new_upper=Time(9), term=WriterTerm(TERM))
    upstream = Upstream("a")
    upstream.columns = {"a": (Column("id", BIGINT), Column("later", BIGINT))}

    async def scenario(source: Followed) -> None:
        describe_owners(source)
        source.adopts = True
        source.spec = {"tables": [{"name": "a", "table": "a", "columns": ["id", "later"]}]}
        assert await source.reconcile() == []
        assert source.failure is not None
        assert source.failure.reason == "CannotAdopt"
        assert "a in v1 has columns (id bigint), not (id bigint, later bigint)" in source.failure.message

    follow(tmp_path, monkeypatch, upstream, scenario)
