"""Columns that are added to a written table, stored as a revision: when the table of before goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from tests.handlers.sources.test_table_edits import KEY, UID, Edited, edited, planned
from tests.resources.manifests import body
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.handlers.reconcile.data_source import EDIT_SECONDS
from tidemark_operator.kube.client import Body
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import WrittenSource
from tidemark_replica.storage.written.inspect import tables_of as written_tables


def columns(*names: str) -> list[Body]:
    return [{"name": name, "type": "BIGINT"} for name in names]


class Written:
    """A DataSource of written tables `t` and `u`, which the operator of `source` reconciles. `tables`: of its spec."""

    def __init__(self, source: Edited) -> None:
        self.source, self.book = source, source.harness.fleet.book("ns")
        self.tables: list[Body] = [{"name": "t", "columns": columns("a"), "primaryKey": ["a"]}]
        self.tables += [{"name": "u", "columns": columns("a")}]
        spec = {"instance": "default", "deletionPolicy": "Delete", "table": {"tables": self.tables}}
        created = "2026-01-01T00:00:00Z"
        self.document = body("DataSource", spec, "s", uid=UID, creationTimestamp=created, finalizers=[FINALIZER])
        cast(Any, source.running).inspect = self.inspect
        self.again: float | None = None

    async def inspect(self, wanted: WrittenSource, _: object = None) -> compute_pb2.InspectSourceResponse:
        return compute_pb2.InspectSourceResponse(tables=[codec.encode(table) for table in written_tables(wanted)])

    async def reconcile(self, *names: str) -> list[str]:
        """The tables that are ingested then. `names`: columns of `t` from now on; without any, those of before."""
        if names:
            self.tables[0]["columns"] = columns(*names)
        self.source.harness.cache.put(KEY, self.document)
        self.again = await self.source.reconciler.reconcile(KEY, self.document)
        return self.source.ingested

    def begins(self, table: str) -> None:
        """The replica reports it."""
        self.book.observe(ShardId(f"{UID}/{table}/v1"), Frontier.at(9), Frontier.at(8))

    @property
    def state(self) -> SourceState:
        found = self.source.harness.context.registry.source(KEY)
        assert found is not None
        return found


def written(folder: Path, scenario: Callable[[Written], Awaitable[None]]) -> None:
    async def run(source: Edited) -> None:
        await scenario(Written(source))

    edited(folder, run)


def test_a_table_goes_once_the_one_with_more_columns_has_its_rows(tmp_path: Path) -> None:
    """A replica may be away for long: until it has begun with the rows, the first table stays."""

    async def scenario(place: Written) -> None:
        assert (await place.reconcile(), place.again) == (["t", "u"], None)
        for _ in range(2):
            assert (await place.reconcile("a", "b"), place.again) == (["t", "u", "t.2"], EDIT_SECONDS)
        assert place.state.edit is None
        assert [(r.name, r.keys) for r in catalogue([place.state], []).relations] == [("t", ((0,),)), ("u", ())]
        place.book.observe(ShardId(f"{UID}/t.2/v1"), Frontier.at(0), Frontier.at(0))
        assert (await place.reconcile(), place.again) == (["t", "u", "t.2"], EDIT_SECONDS)
        place.begins("t.2")
        assert await place.reconcile() == ["u", "t.2"]
        assert place.source.deleted == [f"{UID}/t/v1"]

    written(tmp_path, scenario)


def test_an_edit_that_does_more_than_to_add_columns_changes_nothing(tmp_path: Path) -> None:
    async def scenario(place: Written) -> None:
        await place.reconcile("a", "b")
        place.tables[0]["columns"] = [*columns("a"), {"name": "b", "type": "INT"}]
        assert (await place.reconcile(), place.again) == (["t", "u"], EDIT_SECONDS)
        assert place.state.edit is not None
        assert place.state.edit.reason == "ColumnsNotAdded"
        assert await place.reconcile("a", "b", "c") == ["t", "u", "t.2"]
        assert place.state.edit is None
        del place.tables[0]
        assert await place.reconcile() == ["u"]

    written(tmp_path, scenario)


def test_a_table_stays_for_one_that_is_read_still(tmp_path: Path) -> None:
    """The spec names none of them any more, and `t.2` has not begun: `t` goes after that, and the others go with the
    reader of `t.2`."""

    async def scenario(place: Written) -> None:
        for names in ("a", "ab", "abc"):
            await place.reconcile(*names)
        assert place.source.ingested == ["t", "u", "t.2", "t.3"]
        registry, reader = place.source.harness.context.registry, planned("t.2")
        registry.put_dataflow(reader)
        del place.tables[0]
        assert await place.reconcile() == ["t", "u", "t.2", "t.3"]
        place.begins("t.2")
        assert await place.reconcile() == ["u", "t.2", "t.3"]
        registry.forget(reader.key)
        assert await place.reconcile() == ["u"]

    written(tmp_path, scenario)


def test_a_chain_of_tables_stays_until_the_last_has_begun(tmp_path: Path) -> None:
    async def scenario(place: Written) -> None:
        for names in ("a", "ab", "abc"):
            await place.reconcile(*names)
        assert await place.reconcile() == ["t", "u", "t.2", "t.3"]
        for name, left in (("t.2", ["u", "t.2", "t.3"]), ("t.3", ["u", "t.3"])):
            place.begins(name)
            assert await place.reconcile() == left

    written(tmp_path, scenario)


def test_a_table_that_is_named_again_has_the_values_of_its_added_columns(tmp_path: Path) -> None:
    """Where a view of before keeps the first table, the last one stays beside it, also if nobody reads it."""

    async def scenario(place: Written) -> None:
        registry, reader = place.source.harness.context.registry, planned("t")
        for names in ("a", "ab", "abc"):
            await place.reconcile(*names)
        place.begins("t.2")
        place.begins("t.3")
        registry.put_dataflow(reader)
        table = place.tables.pop(0)
        for _ in range(2):
            assert (await place.reconcile(), place.again) == (["t", "u", "t.3"], EDIT_SECONDS)
            assert place.state.edit is not None
            assert (place.state.edit.reason, place.source.deleted) == ("TableInUse", [f"{UID}/t.2/v1"])
        place.tables.insert(0, table)
        assert (await place.reconcile(), place.state.edit) == (["t", "u", "t.3"], None)
        del place.tables[0]
        registry.forget(reader.key)
        assert await place.reconcile() == ["u"]

    written(tmp_path, scenario)


def test_a_table_whose_successor_has_not_begun_is_named_again(tmp_path: Path) -> None:
    """Without its reader of before: its rows are still to be copied."""

    async def scenario(place: Written) -> None:
        registry, reader = place.source.harness.context.registry, planned("t")
        await place.reconcile("a")
        await place.reconcile("a", "b")
        registry.put_dataflow(reader)
        table = place.tables.pop(0)
        assert await place.reconcile() == ["t", "u", "t.2"]
        place.tables.insert(0, table)
        registry.forget(reader.key)
        for _ in range(2):
            assert (await place.reconcile(), place.again) == (["t", "u", "t.2"], EDIT_SECONDS)
        assert (place.state.edit, place.source.deleted) == (None, [])
        place.begins("t.2")
        assert await place.reconcile() == ["u", "t.2"]

    written(tmp_path, scenario)


def test_two_additions_in_a_row_delete_nothing(tmp_path: Path) -> None:
    """The spec names neither `t` nor `t.2` any more, and `t.3` is to begin with their rows."""

    async def scenario(place: Written) -> None:
        for names in ("a", "ab", "abc", "abc", "abc"):
            await place.reconcile(*names)
        assert (place.source.ingested, place.source.deleted) == (["t", "u", "t.2", "t.3"], [])
        assert (place.again, place.state.edit) == (EDIT_SECONDS, None)

    written(tmp_path, scenario)
