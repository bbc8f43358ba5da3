"""The tables of a `table:` source, as it declares them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tidemark_persist import physical_schema
from tidemark_persist.errors import InvalidSchema
from tidemark_protocol.plan.ingestion import SourceTable, WrittenSource, WrittenTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.values.arrow_types import arrow_schema


def tables_of(spec: WrittenSource) -> tuple[SourceTable, ...]:
    """The source's tables. Raises SourceUnusable."""
    return tuple(_table(table) for table in spec.tables)


def _table(table: WrittenTable) -> SourceTable:
    names = [column.name for column in table.columns]
    schema: pa.Schema = arrow_schema(table.columns)
    try:
        physical_schema(schema)
    except InvalidSchema as error:
        raise SourceUnusable(f"table {table.name}: {error}") from None
    if unknown := [name for name in table.primary_key if name not in names]:
        raise SourceUnusable(f"table {table.name}: primaryKey names {unknown[0]}, which is no column")
    columns = tuple(replace(c, nullable=c.nullable and c.name not in table.primary_key) for c in table.columns)
    keys = (tuple(names.index(name) for name in table.primary_key),) if table.primary_key else ()
    return SourceTable(table.name, columns, keys, table.append_only)
