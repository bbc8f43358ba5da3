"""The difference between the tables that a DataSource has and those that its spec names.

    spec:  a, c         pinned: a, b         ►  c is added, b is removed
    spec:  b again      once removed: b      ►  refused: the bindings may still name the first b

A table of a spec may have a second one beside it, for its dead letters, which goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tidemark_protocol.plan.ingestion import (
    DEAD_LETTER,
    IngestedTable,
    IngestionDescription,
    SourceSpec,
    TpchSource,
)

MAX_REMOVED = 1000
"""Names that one DataSource remembers."""


@dataclass(frozen=True)
class TableEdit:
    """`added`: the source with the new tables alone, None without any. `removed`: tables that the spec does not name.
    `refused`: why a table of the spec is not added, empty if all are."""

    added: SourceSpec | None = None
    removed: tuple[IngestedTable, ...] = ()
    refused: str = ""

    @property
    def is_empty(self) -> bool:
        return self == TableEdit()


def table_edit(pinned: IngestionDescription, wanted: SourceSpec) -> TableEdit:
    """What the spec changes. `wanted`: the source of the spec, its columns as declared."""
    if isinstance(wanted, TpchSource) or isinstance(pinned.source, TpchSource):
        return TableEdit()
    known: dict[str, Any] = {table.name: table for table in pinned.source.tables}
    added: list[Any] = []
    refused = ""
    for table in wanted.tables:
        before = known.pop(table.name, None)
        if before is None and table.name not in pinned.removed:
            added.append(table)
        elif before is None or _with_columns_of(table, before) != before:
            refused = (
                f"table {table.name} was removed, and a table of that name is another one: give it another name, or "
                "make another DataSource"
            )
    gone = frozenset(known) | {name + DEAD_LETTER for name in known}
    removed = tuple(table for table in pinned.tables if table.table.name in gone)
    if known and len(pinned.removed) + len(known) > MAX_REMOVED:
        refused = f"more than {MAX_REMOVED} tables were removed: make another DataSource"
        removed = ()
    return TableEdit(_with_tables(wanted, added) if added else None, removed, refused)


def edited(
    pinned: IngestionDescription,
    removed: Iterable[IngestedTable],
    source: SourceSpec | None = None,
    added: tuple[IngestedTable, ...] = (),
) -> IngestionDescription:
    """The ingestion without the removed tables, and with added ones. `source`: of the added tables, with columns."""
    assert not isinstance(pinned.source, TpchSource)
    gone = {table.table.name for table in removed}
    kept: tuple[Any, ...] = tuple(table for table in pinned.source.tables if table.name not in gone)
    new: tuple[Any, ...] = () if source is None or isinstance(source, TpchSource) else source.tables
    names = tuple(table.name for table in pinned.source.tables if table.name in gone)
    return replace(
        pinned,
        source=_with_tables(pinned.source, (*kept, *new)),
        tables=(*(table for table in pinned.tables if table.table.name not in gone), *added),
        removed=(*pinned.removed, *names),
    )


def _with_tables(source: Any, tables: Iterable[Any]) -> SourceSpec:
    """The source with these tables, which are of its kind."""
    changed: SourceSpec = replace(source, tables=tuple(tables))
    return changed


def _with_columns_of(table: Any, pinned: Any) -> Any:
    """The table with the columns that were found when it was pinned, where it declares none."""
    return replace(table, columns=pinned.columns) if getattr(table, "columns", ()) is None else table
