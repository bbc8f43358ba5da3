"""Bindings of sources whose upstream forgets: positions, and data files that were staged before their binding.

    table    entry        value
    orders   offset/3     1200                a position: one live row for each (table, entry)
    orders   staged/<n>   {"path": ...}       a data file with updates of this tick, retracted at the next one

The files are durable before the binding is minted. So a process that dies leaves either files that no binding names,
which vacuum removes, or a binding that needs nothing but its files; upstream is never asked twice. A position is
confirmed upstream only when every table's upper is past its tick (`Source.confirm` comes before that).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tidemark_persist import DIFF, Shard, StagedFile, restaged
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.ingestion import IngestedTable

REMAP_SCHEMA = pa.schema(
    [pa.field("table", pa.string()), pa.field("entry", pa.string()), pa.field("value", pa.string())]
)
_WITH_DIFF = REMAP_SCHEMA.append(pa.field(DIFF, pa.int64()))
_STAGED = "staged/"
Entry = tuple[str, str]
"""A table's name (empty: the source as a whole), and the name of one of its positions."""


class StagedBindings:
    """The live rows of the remap. `positions`: the values as of the last confirmed binding."""

    def __init__(self) -> None:
        self.positions: dict[Entry, str] = {}
        self._staged: dict[Entry, str] = {}

    def resume(self, bound: pa.Table) -> None:
        """Begins anew with the remap's consolidated rows."""
        self.positions, self._staged = {}, {}
        self.confirm(bound)

    def binding(
        self, changes: Mapping[Entry, str | None], staged: Mapping[str, Sequence[StagedFile]] | None = None
    ) -> pa.Table:
        """The rows that bind new positions (None: there is none any more) and the staged files of tables, by name.

        Raises:
            ValueError: a position's name begins with `staged/`.
        """
        rows = [(*entry, text, -1) for entry, text in self._staged.items()]
        for entry, value in changes.items():
            if entry[1].startswith(_STAGED):
                raise ValueError(f"position {entry[1]} of table {entry[0]} has the name of a staged file")
            before = self.positions.get(entry)
            if before != value:
                rows += [(*entry, text, diff) for text, diff in ((before, -1), (value, 1)) if text is not None]
        for table, files in (staged or {}).items():
            rows += [(table, f"{_STAGED}{number}", file.to_json(), 1) for number, file in enumerate(files)]
        return _table(rows)

    def confirm(self, binding: pa.Table) -> None:
        """The binding was minted."""
        for table, entry, value, diff in sorted(_rows(binding), key=lambda row: row[3]):
            rows = self._staged if entry.startswith(_STAGED) else self.positions
            if diff > 0:
                rows[(table, entry)] = value
            else:
                rows.pop((table, entry), None)


def staged_files(binding: pa.Table, tables: Iterable[IngestedTable]) -> dict[GlobalId, list[StagedFile]]:
    """The data files that the binding names for each of the tables, in the order in which they were given.

    Raises:
        InvalidStagedFile: a file is too old to be committed, and gone.
    """
    named: dict[str, list[StagedFile]] = {}
    for _, table, file in sorted(_staged(binding), key=lambda staged: staged[0]):
        named.setdefault(table, []).append(file)
    return {t.id: [restaged(t.shard.location, file) for file in named.get(t.table.name, [])] for t in tables}


def files_beside(binding: pa.Table, shards: Mapping[str, Shard]) -> list[tuple[Shard, StagedFile]]:
    """The data files that a binding of any kind of source names, each with the shard that it is beside. `shards`: by
    the tables' names."""
    if binding.schema.names[: len(REMAP_SCHEMA)] != REMAP_SCHEMA.names:
        return []
    return [(shards[table], file) for _, table, file in _staged(binding) if table in shards]


def _staged(binding: pa.Table) -> Iterator[tuple[int, str, StagedFile]]:
    """The data files that the binding names, each behind its number and its table."""
    for table, entry, value, diff in _rows(binding):
        if diff > 0 and entry.startswith(_STAGED):
            yield int(entry.removeprefix(_STAGED)), table, StagedFile.from_json(value)


def _rows(binding: pa.Table) -> Iterator[tuple[str, str, str, int]]:
    if binding.num_rows:
        yield from zip(*(binding.column(name).to_pylist() for name in _WITH_DIFF.names), strict=True)


def _table(rows: Sequence[tuple[str, str, str, int]]) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(_WITH_DIFF)]
    return pa.Table.from_arrays(columns, schema=_WITH_DIFF)
