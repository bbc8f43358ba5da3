"""Tables as a file's statements make them, with everything that ever happened to them.

    moment 1   CREATE TABLE t, INSERT ...      t: +(1, 'a') +(2, 'b')
    moment 2   UPDATE t ...                    t: -(1, 'a') +(1, 'c')
               query                           is asked after moment 2

A table that is dropped keeps its history: another one of the same name is another table. So the whole history of a
file is known before any view is maintained over it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.sqllogictest.alter_table import altered
from tests.sqllogictest.evaluate import Evaluator
from tests.sqllogictest.insert_rows import clashing, with_defaults
from tests.sqllogictest.lexer import created_name, words_of
from tests.sqllogictest.statements import (
    Alter,
    CreateIndex,
    CreateTable,
    CreateView,
    Delete,
    Drop,
    Insert,
    Nothing,
    NotOurs,
    Parsed,
    Select,
    Transaction,
    Update,
    Violation,
)
from tidemark_protocol.messages.planning import ViewRequest
from tidemark_protocol.types import Column

Row = tuple[Any, ...]


State = tuple[dict[str, "StoredTable"], dict[str, ViewRequest], dict[str, list[Row]]]


@dataclass
class StoredTable:
    """`id` is unique in the file; `changes` are (row, moment, diff), in order."""

    id: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    defaults: Mapping[int, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    changes: list[tuple[Row, int, int]] = field(default_factory=list)
    broken: str = ""
    """The reason why its contents are not what the file means: a statement that could not be carried out."""


class Database:
    """The tables and views that names mean now, and all tables that there ever were."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self.tables: dict[str, StoredTable] = {}
        self.views: dict[str, ViewRequest] = {}
        self.indexes: dict[str, tuple[StoredTable, tuple[int, ...]]] = {}
        self.all: list[StoredTable] = []
        self.moment = 0
        self.missing: dict[str, str] = {}
        """Names that a statement should have made that could not be carried out, and why it could not."""
        self._before: State | None = None

    def execute(self, statement: Parsed) -> int:
        """Carry it out: how many rows it changed. Raises Violation or NotOurs with nothing changed."""
        match statement:
            case CreateTable():
                return self._create(statement)
            case CreateView():
                return self._create_view(statement)
            case Drop():
                return self._drop(statement)
            case Insert():
                table = self._table(statement.table)
                made = self._inserted(table, statement)
                gone, made = clashing(table, made, statement.clash) if statement.clash else ([], made)
                return self._change(table, gone, made)
            case CreateIndex():
                return self._create_index(statement)
            case Alter():
                return self._alter(statement)
            case Transaction():
                return self._transaction(statement.does)
            case Delete():
                table = self._table(statement.table)
                where = (statement.alias, statement.condition)
                gone = self._evaluator.chosen(table.name, table.columns, table.rows, *where, self._contents(statement))
                return self._change(table, gone, [])
            case Update():
                return self._update(statement)
            case Nothing():
                return 0
            case Select():
                raise NotOurs("a query is no statement")

    @property
    def in_transaction(self) -> bool:
        return self._before is not None

    @property
    def columns(self) -> dict[str, tuple[Column, ...]]:
        """The columns of the tables, by name."""
        return {name: table.columns for name, table in self.tables.items()}

    def state(self) -> State:
        """The state that `restore` goes back to."""
        return dict(self.tables), dict(self.views), {t.id: list(t.rows) for t in self.tables.values()}

    def restore(self, state: State) -> None:
        """Everything as it was; what tables held meanwhile stays in their history."""
        self.tables, self.views, rows = state
        for table in self.tables.values():
            then = rows[table.id]
            if then != table.rows:
                self._change(table, table.rows, then)

    def reset(self) -> None:
        """Begin anew, without tables."""
        self.tables, self.views, self.indexes, self.missing, self._before = {}, {}, {}, {}, None

    def batch(self, sql: str) -> list[Row]:
        """The rows of a query, by Spark."""
        tables = {t.name: (t.columns, t.rows) for t in self.tables.values()}
        return self._evaluator.query(sql, (), {**tables, **{v.name: v.sql for v in self.views.values()}})[1]

    def spoil(self, sql: str, why: str) -> None:
        """A statement could not be carried out: what it would have changed is not to be relied on."""
        words = words_of(sql)
        if name := created_name(sql):
            self.missing[name] = self.missing.get(name, why)
        for name, table in self.tables.items():
            if name in words:
                table.broken = table.broken or why
        if words & {"alter", "replace"}:
            self.missing.update((name, why) for name in self.views if name in words)

    def broken(self, sql: str) -> str:
        """The reason why a query's answer would mean nothing, if there is one."""
        words = self.reached(sql)
        missing = next((why for n, why in self.missing.items() if n in words and n not in self.tables), "")
        return missing or next((t.broken for name, t in self.tables.items() if name in words and t.broken), "")

    def views_for(self, sql: str) -> tuple[ViewRequest, ...]:
        """The views that a text reads, directly or not, in order."""
        words = self.reached(sql)
        return tuple(view for name, view in self.views.items() if name in words)

    def reached(self, sql: str) -> frozenset[str]:
        """All words of a text and of the views that it names."""
        words, seen = words_of(sql), set[str]()
        while fresh := [n for n in self.views if n in words and n not in seen]:
            seen.update(fresh)
            words = words.union(*(words_of(self.views[n].sql) for n in fresh))
        return words

    def _create(self, statement: CreateTable) -> int:
        name = statement.name.lower()
        there = name in self.tables or (name in self.views and name not in self.missing)
        if there and not (statement.replaces and name in self.tables):
            if statement.unless_there:
                return 0
            raise Violation(f"{statement.name} is there already")
        columns, rows = statement.columns, list[Row]()
        if statement.query:
            columns, rows = self._evaluator.query(statement.query, columns, self._contents(statement))
        id = f"t{len(self.all)}"
        self.missing.pop(name, None)
        table = StoredTable(id, statement.name, columns, statement.keys, dict(statement.defaults))
        self.tables[name] = table
        self.all.append(table)
        return self._change(table, [], rows)

    def _create_view(self, statement: CreateView) -> int:
        name = statement.name.lower()
        if name in self.tables or (name in self.views and name not in self.missing and not statement.replaces):
            if statement.unless_there:
                return 0
            raise Violation(f"{statement.name} is there already")
        columns = ", ".join(f"`{c}`" for c in statement.columns)
        sql = f"SELECT * FROM ({statement.query}) AS v({columns})" if columns else statement.query
        self.views.pop(name, None)
        self.missing.pop(name, None)
        self.views[name] = ViewRequest(statement.name, sql)
        return 0

    def _create_index(self, statement: CreateIndex) -> int:
        table, name = self._table(statement.table), statement.name.lower()
        if name in self.indexes:
            if statement.unless_there:
                return 0
            raise Violation(f"{statement.name} is there already")
        names = [c.name.lower() for c in table.columns]
        if unknown := [n for n in statement.key if n.lower() not in names]:
            raise Violation(f"{table.name} has no column {unknown[0]}")
        key = tuple(names.index(n.lower()) for n in statement.key)
        if key:
            self._check(replace(table, keys=(key,)), table.rows)
            table.keys = (*table.keys, key)
        self.indexes[name] = table, key
        return 0

    def _drop(self, statement: Drop) -> int:
        kinds: dict[str, dict[str, Any]] = {"TABLE": self.tables, "VIEW": self.views, "INDEX": self.indexes}
        there = kinds[statement.kind]
        missing = [n for n in statement.names if n.lower() not in there and n.lower() not in self.missing]
        if missing and not statement.if_there:
            raise Violation(f"there is no {statement.kind.lower()} {missing[0]}")
        for name in statement.names:
            self.missing.pop(name.lower(), None)
            gone = there.pop(name.lower(), None)
            if statement.kind == "TABLE" and gone is not None:
                self.indexes = {n: of for n, of in self.indexes.items() if of[0] is not gone}
            elif statement.kind == "INDEX" and gone is not None:
                table, key = gone
                table.keys = tuple(k for k in table.keys if k != key)
        return 0

    def _inserted(self, table: StoredTable, statement: Insert) -> list[Row]:
        names = [c.name.lower() for c in table.columns]
        chosen = [n.lower() for n in statement.columns] or names
        if unknown := [n for n in chosen if n not in names]:
            raise Violation(f"{table.name} has no column {unknown[0]}")
        into = tuple(table.columns[names.index(n)] for n in chosen)
        if any(c.type.name == "binary" for c in into) and "\\x" in statement.source:
            raise NotOurs("text as bytes, with escapes")
        source = with_defaults(statement.source, [table.defaults.get(names.index(n), "NULL") for n in chosen])
        rows = self._evaluator.rows(source, into, self._contents(statement))
        if chosen == names:
            return rows
        defaults = self._defaults(table, [i for i, n in enumerate(names) if n not in chosen])
        places = [chosen.index(n) if n in chosen else -1 for n in names]
        return [tuple(row[p] if p >= 0 else defaults.get(i) for i, p in enumerate(places)) for row in rows]

    def _defaults(self, table: StoredTable, positions: Iterable[int]) -> dict[int, Any]:
        wanted = [i for i in positions if i in table.defaults]
        if not wanted:
            return {}
        text = "VALUES (" + ", ".join(table.defaults[i] for i in wanted) + ")"
        (row,) = self._evaluator.rows(text, tuple(table.columns[i] for i in wanted), {})
        return dict(zip(wanted, row, strict=True))

    def _update(self, statement: Update) -> int:
        table = self._table(statement.table)
        names = [c.name.lower() for c in table.columns]
        if unknown := [n for n, _ in statement.assignments if n.lower() not in names]:
            raise Violation(f"{table.name} has no column {unknown[0]}")
        assigned = {names.index(n.lower()): text for n, text in statement.assignments}
        gone, made = self._evaluator.updated(
            table.name, table.columns, table.rows, statement.alias, statement.condition, assigned,
            self._contents(statement),
        )  # fmt: skip
        return self._change(table, gone, made)

    def _change(self, table: StoredTable, gone: list[Row], made: list[Row]) -> int:
        """Rows go and come at the next moment, if no constraint says no."""
        counts = Counter(table.rows)
        counts.subtract(gone)
        counts.update(made)
        rows = list(counts.elements())
        self._check(table, rows)
        self.moment += 1
        table.rows = rows
        net = Counter(made)
        net.subtract(gone)
        table.changes += [(row, self.moment, diff) for row, diff in net.items() if diff]
        return max(len(gone), len(made))

    def _check(self, table: StoredTable, rows: list[Row]) -> None:
        for i, column in enumerate(table.columns):
            if not column.nullable and any(row[i] is None for row in rows):
                raise Violation(f"{table.name}.{column.name} would be NULL")
        for key in table.keys:
            values = Counter(tuple(row[i] for i in key) for row in rows)
            twice = [v for v, n in values.items() if n > 1 and None not in v]
            if twice:
                raise Violation(f"{table.name} would have {twice[0]} twice in a key")

    def _alter(self, statement: Alter) -> int:
        view = self.views.get(statement.table.lower())
        if view is not None and statement.does == "rename table" and statement.to.lower() not in self.views:
            del self.views[statement.table.lower()]
            self.views[statement.to.lower()] = replace(view, name=statement.to)
            return 0
        table = self._table(statement.table)
        name = statement.to.lower()
        if statement.does == "rename table":
            if name in self.tables or name in self.views:
                raise Violation(f"{statement.to} is there already")
            self.tables.pop(table.name.lower())
        default = self._evaluator.rows(f"VALUES ({statement.default})", (statement.added,), {}) if (
            statement.added and statement.default
        ) else [(None,)]  # fmt: skip
        columns, keys, defaults, rows = altered(table, statement, default[0][0])
        named = statement.to if statement.does == "rename table" else table.name
        made = StoredTable(f"t{len(self.all)}", named, columns, keys, defaults)
        self.tables[named.lower()] = made
        self.all.append(made)
        return self._change(made, [], rows)

    def _transaction(self, does: str) -> int:
        if does == "begin":
            self._before = self._before or self.state()
        elif self._before is not None:
            if does == "rollback":
                self.restore(self._before)
            self._before = None
        return 0

    def _table(self, name: str) -> StoredTable:
        table = self.tables.get(name.lower())
        if table is None and name.lower() in self.missing:
            raise NotOurs(f"{name} was not made: {self.missing[name.lower()]}")
        if table is None:
            raise Violation(f"there is no table {name}")
        return table

    def _contents(self, statement: Insert | Delete | Update | CreateTable) -> dict[str, Any]:
        """The meanings of names inside a statement: tables' rows, views' texts."""
        text = " ".join(map(str, vars(statement).values()))
        words = self.reached(text)
        tables = {t.name: (t.columns, t.rows) for name, t in self.tables.items() if name in words}
        return {**tables, **{v.name: v.sql for n, v in self.views.items() if n in words}}
