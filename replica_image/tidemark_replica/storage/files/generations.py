"""The tables of a source that have one name in the spec (`successors.py`), and which of them have begun.

orders      first: it looks for files, and binds them            from its first tick on
orders.2    a successor, which binds the same files              once it has read again what is bound (read_again.py)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tidemark_persist import Shard
from tidemark_protocol.plan.ingestion import FilesTable, IngestedTable
from tidemark_protocol.plan.successors import dead_letters, number, spec_name, without_dead_letters
from tidemark_replica.storage.files.bindings import BEGUN, BOUND, BindingRow, staged_row
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.read_again import ReadAgain
from tidemark_replica.storage.source import SourceShards


class FileGenerations:
    """The tables of one source. `names`: those of the spec. `first`, `begun`: by these, the stored name of the first
    table, which has begun, and the names of all that have, in order. `again`: by the stored name, what a table that has
    not begun has read."""

    def __init__(self, tables: Iterable[FilesTable]) -> None:
        self.specs = {table.name: table for table in sorted(tables, key=lambda table: number(table.name))}
        self.names = tuple(dict.fromkeys(map(spec_name, self.specs)))
        self.begun: dict[str, list[str]] = {}
        for table in self.specs:
            self.begun.setdefault(spec_name(table), [table])
        self.first = {name: tables[0] for name, tables in self.begun.items()}
        self.again: dict[str, ReadAgain] = {}
        self._shards: dict[str, tuple[IngestedTable, Shard]] = {}

    def resume(self, rows: Sequence[BindingRow], shards: SourceShards) -> None:
        """Begins anew with the rows of the remap."""
        self._shards = {ingested.table.name: (ingested, shard) for ingested, shard in shards.tables}
        begun, self.again = set(beginning(rows)), {}
        self.begun = {name: [first] for name, first in self.first.items()}
        for table in self.specs:
            name = spec_name(table)
            if table == self.first[name]:
                continue
            if table in begun:
                self.begun[name].append(table)
                continue
            files = [row.file for row in rows if row.table == self.first[name] and row.kind == BOUND]
            self.again[table] = ReadAgain(self.place(table)[0], self.dead_letters(table), files)

    def last(self, name: str) -> str:
        """The last table of the name that has begun: people are shown its files."""
        return self.begun[name][-1]

    def spec_names(self) -> dict[str, str]:
        """The names in the spec of the last tables that have begun, and of the tables of their dead letters, by
        table."""
        last = {self.last(name): name for name in self.names}
        return last | {dead_letters(table): name for table, name in last.items()}

    def complete(self, name: str) -> list[str]:
        """The tables of the name that can begin."""
        return [table for table, again in self.again.items() if spec_name(table) == name and again.is_complete]

    def beginning(self, table: str, marks: Iterable[BindingRow]) -> list[BindingRow]:
        """The rows by which a table begins. `marks`: the last requests about files of the first table."""
        again = self.again[table]
        staged = again.staged()
        return [
            *(BindingRow(table, BOUND, file) for file in again.files()),
            *(BindingRow(table, row.kind, row.file, request=row.request) for row in marks),
            BindingRow(table, BEGUN, FileVersion("", 0, 0)),
            *(staged_row(table, file) for file in staged.table),
            *(staged_row(dead_letters(table), file) for file in staged.dead_letters),
        ]

    def confirm(self, rows: Sequence[BindingRow]) -> Mapping[str, list[FileVersion]]:
        """The rows were minted. Returns the tables that have begun by that, and their files."""
        for table, again in self.again.items():
            bound = [r for r in rows if r.table == self.first[spec_name(table)] and r.kind == BOUND]
            again.unbind(row.file.name for row in bound if row.diff < 0)
            again.bind(row.file for row in bound if row.diff > 0)
        begun = {}
        for table in beginning(rows):
            begun[table] = [row.file for row in rows if row.table == table and row.kind == BOUND and row.diff > 0]
            del self.again[table]
            self.begun[spec_name(table)] = sorted([*self.begun[spec_name(table)], table], key=number)
        return begun

    def takes(self, table: IngestedTable, begins: Collection[str]) -> bool:
        """Whether the table takes a binding: a successor, and its dead letters, begin with the one that says so.
        `begins`: the tables that begin with this one."""
        name = self.owner(table.table.name)
        is_later = name in self.specs and name != self.first[spec_name(name)]
        return not is_later or name in begins or self._shards[table.table.name][1].state().upper > 0

    def owner(self, table: str) -> str:
        """The table, or that whose dead letters it has."""
        return table if table in self.specs else without_dead_letters(table)

    def unbound_tables(self) -> Collection[str]:
        """The tables that have not begun, and those of their dead letters."""
        return {each for table in self.again for each in (table, dead_letters(table))}

    def place(self, table: str) -> tuple[IngestedTable, Shard]:
        return self._shards[table]

    def dead_letters(self, table: str) -> IngestedTable | None:
        found = self._shards.get(dead_letters(table))
        return found[0] if found is not None else None

    def close(self) -> None:
        for again in self.again.values():
            if not again.is_complete:  # else a binding that was not confirmed may name its data files
                again.discard()


def beginning(rows: Iterable[BindingRow]) -> list[str]:
    """The tables that begin with a binding of these rows."""
    return [row.table for row in rows if row.kind == BEGUN and row.diff > 0]
