"""The expected table of a continual task: a fold by DuckDB over the times at which the watched table changes.

    out(t) = out(t-1) + from(t) - (delete(t), as far as out(t-1) holds it)       at each change, nothing in between

The SQL is the task's own: `table_changes()` is a macro over the rows that changed at t, tables are what they are at t,
and the task's name is its output as it was before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from tests.oracle.harness import plain
from tests.oracle.histories import History, Table
from tidemark_protocol.messages.planning import TaskRequest
from tidemark_protocol.types import STRING, TIMESTAMP, Column
from tidemark_replica.values.arrow_types import arrow_type

Row = tuple[Any, ...]
Rows = Counter[Row]
NAME = "log"
"""The task's, by which its SQL reads the output."""


@dataclass(frozen=True)
class Task:
    """Views in order, and what the task is asked to do with the last ones."""

    name: str
    views: Mapping[str, str]
    tables: Mapping[str, Table]
    watch: str = "t"
    delete: str | None = None
    columns: tuple[Column, ...] | None = None

    @property
    def request(self) -> TaskRequest:
        return TaskRequest(self.watch, self.delete, self.columns)

    @property
    def added(self) -> str:
        """The view whose rows are added."""
        return next(name for name in self.views if name != self.delete)


def changes_at(history: History, table: str, time: int) -> Rows:
    """The changes of the table at a time."""
    found: Rows = Counter()
    for row, at, diff in history.changes[table]:
        if at == time:
            found[row] += diff
    return Counter({row: n for row, n in found.items() if n})


def fold(task: Task, history: History, columns: tuple[Column, ...]) -> dict[int, Rows]:
    """By time, by how much each row's multiplicity in the output changes."""
    out: Rows = Counter()
    made = {}
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for time in sorted({t for _, t, _ in history.changes[task.watch] if t > history.as_of}):
        changes = changes_at(history, task.watch, time)
        if changes:
            rows = _rows(connection, task, history, columns, time, changes, out)
            gone = rows[task.delete] & out if task.delete is not None else Counter()
            change = Counter(rows[task.added])
            change.subtract(gone)
            out.update(change)
            assert min(out.values(), default=0) >= 0
            out = +out
            made[time] = Counter({row: n for row, n in change.items() if n})
    connection.close()
    return {time: change for time, change in made.items() if change}


def _rows(
    connection: Any, task: Task, history: History, columns: tuple[Column, ...], time: int, changes: Rows, out: Rows
) -> dict[str, Rows]:
    for name, table in task.tables.items():
        _register(connection, name, table.named, history.rows_at(name, time))
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
    changed = [(*row, "insert" if n > 0 else "delete", moment) for row, n in changes.items() for _ in range(abs(n))]
    ours = (Column("_change_type", STRING), Column("_commit_timestamp", TIMESTAMP))
    _register(connection, "changes_now", (*task.tables[task.watch].named, *ours), changed)
    connection.execute("CREATE OR REPLACE MACRO table_changes(name) AS TABLE SELECT * FROM changes_now")
    _register(connection, NAME, columns, list(out.elements()))
    now = f"to_timestamp({time} / 1000)"
    texts = {name: sql.replace("now()", now) for name, sql in task.views.items()}
    return {name: _counted(connection.sql(sql).to_arrow_table()) for name, sql in texts.items()}


def _register(connection: Any, name: str, columns: tuple[Column, ...], rows: list[Row]) -> None:
    arrays = {c.name: pa.array([row[i] for row in rows], arrow_type(c.type)) for i, c in enumerate(columns)}
    connection.register(name, pa.table(arrays))


def _counted(table: pa.Table) -> Rows:
    columns = [c.to_pylist() for c in table.columns]
    return Counter(tuple(map(plain, row)) for row in zip(*columns, strict=True))
