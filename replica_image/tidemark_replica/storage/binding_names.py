"""The names of tables in bindings: a table has another one there, where an earlier table may have its own.

    in the source    in the bindings
    orders           orders@<uid>      a table that was added to a DataSource with adopted bindings (`bound_as`)
    orders@          orders            an earlier table of the name, if there was one

A kind of source keeps positions by the table's name. It leaves alone the rows of tables that it does not have: those of
removed tables, and by this renaming those of earlier ones. The name is what column `table` has before the first slash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.plan.ingestion import IngestedTable

TABLE = "table"
_EARLIER = "@"


class BindingNames:
    """Renames the tables of bindings. `tables`: those of the source."""

    def __init__(self, tables: Iterable[IngestedTable] = ()) -> None:
        renamed = {table.table.name: table.bound_as for table in tables if table.bound_as}
        self._bound = renamed | {name + _EARLIER: name for name in renamed}
        self._own = {bound: own for own, bound in self._bound.items()}

    def in_source(self, rows: pa.Table) -> pa.Table:
        """Rows of bindings, with the names that the tables have in the source."""
        return _renamed(rows, self._own)

    def in_bindings(self, rows: pa.Table) -> pa.Table:
        """Rows that the source gives, with the names that the tables have in bindings."""
        return _renamed(rows, self._bound)


def names_in(rows: pa.Table) -> set[str]:
    """The names of the tables that the rows have."""
    return {value.partition("/")[0] for value in pc.unique(rows.column(TABLE)).to_pylist()}


def _renamed(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    if not names or not rows.num_rows:
        return rows
    encoded = pc.dictionary_encode(rows.column(TABLE).combine_chunks())
    parts = (value.partition("/") for value in encoded.dictionary.to_pylist())
    values = pa.array(["".join((names.get(name, name), *rest)) for name, *rest in parts], pa.string())
    at = rows.schema.get_field_index(TABLE)
    return rows.set_column(at, rows.schema.field(at), values.take(encoded.indices))
