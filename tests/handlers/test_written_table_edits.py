"""Columns that are added to a written table, stored as a revision: when the table of before goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.handlers.test_table_edits import KEY, UID, Edited, edited
from tests.resources.manifests import body
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.handlers.reconcile.data_source import EDIT_SECONDS
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import WrittenSource
from tidemark_replica.storage.written.inspect import tables_of as written_tables


def test_a_table_goes_once_the_one_with_more_columns_has_its_rows(tmp_path: Path) -> None:
    """A replica may be away for long: until it has begun with the rows, the first table stays. Where neither is in the
    spec, both go."""
    columns = [{"name": "a", "type": "BIGINT"}]
    tables = [{"name": "t", "columns": columns, "primaryKey": ["a"]}, {"name": "u", "columns": columns}]
    spec = {"instance": "default", "deletionPolicy": "Delete", "table": {"tables": tables}}
    document = body("DataSource", spec, "s", uid=UID, creationTimestamp="2026-01-01T00:00:00Z", finalizers=[FINALIZER])

    async def scenario(source: Edited) -> None:
        async def inspect(wanted: WrittenSource) -> compute_pb2.InspectSourceResponse:
            return compute_pb2.InspectSourceResponse(tables=[codec.encode(table) for table in written_tables(wanted)])

        async def reconcile() -> tuple[list[str], float | None]:
            source.harness.cache.put(KEY, document)
            again = await source.reconciler.reconcile(KEY, document)
            return source.ingested, again

        cast(Any, source.running).inspect = inspect
        assert await reconcile() == (["t", "u"], None)
        tables[0]["columns"] = [*columns, {"name": "b", "type": "BIGINT"}]
        assert await reconcile() == (["t", "u", "t.2"], EDIT_SECONDS)
        assert await reconcile() == (["t", "u", "t.2"], EDIT_SECONDS)
        state = source.harness.context.registry.source(KEY)
        assert state is not None
        assert state.edit is None
        assert [r.name for r in catalogue([state], []).relations] == ["t", "u"]
        assert [r.keys for r in catalogue([state], []).relations] == [((0,),), ()]
        book = source.harness.fleet.book("ns")
        book.observe(ShardId(f"{UID}/t.2/v1"), Frontier.at(0), Frontier.at(0))
        assert await reconcile() == (["t", "u", "t.2"], EDIT_SECONDS)
        book.observe(ShardId(f"{UID}/t.2/v1"), Frontier.at(9), Frontier.at(8))
        assert (await reconcile())[0] == ["u", "t.2"]
        assert source.deleted == [f"{UID}/t/v1"]

        tables[0]["columns"] = [*columns, {"name": "b", "type": "INT"}]
        assert await reconcile() == (["u", "t.2"], EDIT_SECONDS)
        assert state.edit is not None
        assert state.edit.reason == "ColumnsNotAdded"
        tables[0]["columns"] = [*columns, {"name": "b", "type": "BIGINT"}, {"name": "c", "type": "BIGINT"}]
        assert await reconcile() == (["u", "t.2", "t.3"], EDIT_SECONDS)
        del tables[0]
        assert (await reconcile())[0] == ["u"]

    edited(tmp_path, scenario)
