"""Columns that are added to a table of files: the replica looks for the files first; the first table stays until the
next one has begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.handlers.sources.test_table_edits import KEY, UID, Edited, edited
from tests.resources.manifests import body
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.kube.client import Body
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import FilesSource, IngestionDescription, SourceTable
from tidemark_protocol.plan.successors import dead_letters

GONE = "table t cannot begin with its further columns: files that it read are gone, or others by now (1.json)"


def document(*columns: str) -> Body:
    table = {"name": "t", "format": "json", "onBadRecord": "deadLetter"}
    table["columns"] = cast(Any, [{"name": name, "type": "BIGINT"} for name in columns])
    spec = {"instance": "default", "deletionPolicy": "Delete", "files": {"path": "/in", "tables": [table]}}
    return body("DataSource", spec, "s", uid=UID, creationTimestamp="2026-01-01T00:00:00Z", finalizers=[FINALIZER])


def test_columns_that_are_added_are_taken_where_the_files_are_there(tmp_path: Path) -> None:
    """The edit is refused while they are not, and nothing changes; what is refused can be taken back."""
    pinned: list[list[str]] = []
    failures = [GONE]

    async def scenario(source: Edited) -> None:
        async def inspect(
            wanted: FilesSource, before: IngestionDescription | None = None
        ) -> compute_pb2.InspectSourceResponse:
            if before is not None:
                pinned.append([table.table.name for table in before.tables])
                if failures:
                    return compute_pb2.InspectSourceResponse(error=failures[0])
            found = [
                SourceTable(name, t.columns or ()) for t in wanted.tables for name in (t.name, dead_letters(t.name))
            ]
            return compute_pb2.InspectSourceResponse(tables=[codec.encode(table) for table in found])

        async def reconcile(*columns: str) -> list[str]:
            source.harness.cache.put(KEY, document(*columns))
            await source.reconciler.reconcile(KEY, document(*columns))
            return source.ingested

        cast(Any, source.running).inspect = inspect
        first = ["t", "t_dead_letter"]
        assert await reconcile("a") == first
        state = source.harness.context.registry.source(KEY)
        assert state is not None
        assert await reconcile("b", "a") == first
        assert (state.edit, pinned) == (IngestionFailure("SourceUnreadable", GONE), [first])
        assert (await reconcile("a"), state.edit) == (first, None)

        failures.clear()
        both = [*first, "t.2", "t_dead_letter.2"]
        assert [await reconcile("c", "a") for _ in range(2)] == [both, both]
        assert state.pinned is not None
        assert isinstance(state.pinned.source, FilesSource)
        assert state.pinned.source.tables[1].added == ("c",)
        assert sorted(name for name, _ in state.tables()) == ["t", "t.1", "t_dead_letter", "t_dead_letter.1"]
        book = source.harness.context.fleet.book("ns")
        for name in both[2:]:
            assert await reconcile("c", "a") == both
            book.observe(ShardId(f"{UID}/{name}/v1"), Frontier.at(9), Frontier.at(8))
        assert await reconcile("c", "a") == both[2:]
        assert await reconcile("c", "a") == both[2:]
        assert sorted(source.deleted) == [f"{UID}/t/v1", f"{UID}/t_dead_letter/v1"]

    edited(tmp_path, scenario)
