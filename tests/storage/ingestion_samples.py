"""Descriptions and comparisons for the tests of ingestion."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidemark_persist import DIFF, ERROR, open_shard
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import IngestedTable, IngestionDescription, SourceSpec, SourceTable
from tidemark_replica.storage.tpch.tables import TABLES


def description(
    root: Path, spec: SourceSpec, tables: tuple[SourceTable, ...], tick_ms: int = 100
) -> IngestionDescription:
    """An ingestion of these tables, its shards under `root`."""
    return IngestionDescription(
        id=GlobalId("src"),
        name="src",
        source=spec,
        tick_ms=100,
        remap_id=ShardId("remap"),
        remap_location=f"{root}/remap",
        tables=tuple(ingested(root, t) for t in tables),
    )


def ingested(root: Path, table: SourceTable) -> IngestedTable:
    shard = ShardMetadata(ShardId(table.name), f"{root}/{table.name}", table.columns)
    return IngestedTable(GlobalId(f"src/{table.name}"), table, shard)


def tpch_tables(*names: str) -> tuple[SourceTable, ...]:
    return tuple(TABLES[n] for n in names)


def contents(root: Path, table: str, as_of: int | None = None) -> pa.Table:
    """A table's consolidated contents, by default at the last complete time."""
    shard = open_shard(f"{root}/{table}")
    return shard.snapshot(shard.state().upper - 1 if as_of is None else as_of)


def oks(root: Path, table: str, as_of: int | None = None) -> list[tuple[object, ...]]:
    """The ok rows, each as often as it is there, sorted."""
    return ok_rows(contents(root, table, as_of))


def ok_rows(found: pa.Table) -> list[tuple[object, ...]]:
    """The ok rows of contents, each as often as it is there, sorted."""
    rows = []
    for row in found.to_pylist():
        diff, error = row.pop(DIFF), row.pop(ERROR)
        if error is None:
            rows += [tuple(row.values())] * diff
    return sorted(rows, key=repr)


def errors(root: Path, table: str) -> dict[str, int]:
    """The errors, and how often each is there."""
    return {r[ERROR]: r[DIFF] for r in contents(root, table).to_pylist() if r[ERROR] is not None}
