"""Edits of a DataSource that adopted its tables: what it adds has names of its own in the bindings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.handlers.sources.test_table_edits import UID, Edited, edited, manifest
from tidemark_operator.handlers.reconcile.source_pinning import pinned_ingestion
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.kube.revisions import RevisionOwner
from tidemark_operator.planning.shards import ShardLocations
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.ingestion import SourceTable
from tidemark_protocol.types import BIGINT, Column


def bound_names(source: Edited) -> dict[str, str]:
    """The names that the bindings have for the tables that r1 ingests, by their own; empty ones are equal."""
    running = source.running.core.ingestions.get(GlobalId(UID))
    assert running is not None
    return {table.table.name: table.bound_as for table in running[1].ingestion.tables}


def test_a_table_that_is_added_to_adopted_ones_has_another_name_in_the_bindings(tmp_path: Path) -> None:
    """They may have an earlier table of its name, which was not adopted."""
    found = (SourceTable("a", (Column("a", BIGINT),)),)

    async def scenario(source: Edited) -> None:
        locations = ShardLocations.of(str(tmp_path), "ns", "s", UID)
        ids = {f"{tmp_path}/ns/s/{part}/v1": ShardId(f"old/{part}/v1") for part in ("__remap", "a")}
        adopted = DataSource.parse(manifest("a"))
        owner = RevisionOwner(DATA_SOURCES.api_version, DATA_SOURCES.kind, adopted.meta)
        stored = pinned_ingestion(adopted, replace(locations, adopted=ids), 1, found)
        await source.revisions.store(owner, 1, stored)
        await source.reconcile("a", "b")
        assert bound_names(source) == {"a": "", "b": f"b@{UID}"}

    edited(tmp_path, scenario)


def test_a_table_that_is_added_to_own_ones_has_its_own_name(tmp_path: Path) -> None:
    """No name comes again in one DataSource."""

    async def scenario(source: Edited) -> None:
        await source.store(1, "a")
        await source.reconcile("a", "b")
        assert bound_names(source) == {"a": "", "b": ""}

    edited(tmp_path, scenario)
