"""`subscribe --live`: the rows that there are, as a live table.

changes of a time ──► rows by their text, each n times ──► the first ones in order ──► output/live.py

A subscribe that lost its gateway begins anew, with all rows: what it reads may be another revision by then. Until they
are there, the rows that were stay on the screen.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tidemark.changes import TimedChanges, TimeDivider, subscribed
from tidemark.errors import Error, is_passing
from tidemark.gateway.discovery import Gateway
from tidemark.link import Link
from tidemark_cli.errors import CliError
from tidemark_cli.output import times
from tidemark_cli.output.live import ScreenFrame, live_table
from tidemark_cli.output.values import cell
from tidemark_protocol.pb.gateway_pb2 import SubscribeHeader, SubscribeRequest
from tidemark_protocol.rows.updates import DIFF_COLUMN
from tidemark_protocol.rows.values import values

ROWS_MAX, BYTES_MAX = 100_000, 256 << 20
"""The bytes are those of the rows' text, and of the changes of a time that is not complete."""
AGAIN_SECONDS = 2.0
_NUMBERS = ("int", "bigint", "smallint", "tinyint", "float", "double", "decimal")
Cells = tuple[str, ...]


@dataclass
class _Row:
    order: tuple[Any, ...]
    count: int
    time: int


class CurrentRows:
    """The rows at a time, each with its number of copies. `sort_by`: a column, with `-` before it the largest first;
    by default all columns, from the left. Methods may be called from several threads."""

    def __init__(self, subject: str, sort_by: str) -> None:
        self._subject, self._sort_by = subject, sort_by
        self._lock = threading.Lock()
        self._rows: dict[Cells, _Row] = {}
        self._bytes = 0
        """The bytes of the cells of `_rows`, at a byte a character."""
        self._names: list[str] = []
        self._numeric: list[bool] = []
        self._next: tuple[list[str], list[bool]] | None = None
        """Names and kinds of a subscribe whose first changes have not come."""
        self._time: int | None = None
        self._changed: int | None = None
        self.note = "waiting for the first rows"

    def begin(self, header: SubscribeHeader) -> None:
        """A subscribe began: its first changes replace all rows. Raises CliError: there is no column to sort by."""
        names = list(header.column_names)
        if self._sort_by and self._sort_by.removeprefix("-") not in names:
            raise CliError(
                f"{self._subject} has no column {self._sort_by.removeprefix('-')} to sort by: it has {', '.join(names)}"
            )
        with self._lock:
            self._next = names, [type.startswith(_NUMBERS) for type in header.column_types]

    def take(self, changes: TimedChanges) -> None:
        """Apply all changes of one time. Raises CliError where there are more rows or bytes than a table holds."""
        if changes.changes.num_rows > 2 * ROWS_MAX:
            raise self.too_many()
        columns = [values(column) for column in changes.changes.columns[1:]]
        diffs = changes.changes.column(DIFF_COLUMN).to_pylist()
        with self._lock:
            if self._next is not None:
                self._rows, self._bytes, (self._names, self._numeric), self._next = {}, 0, self._next, None
            for diff, *row in zip(diffs, *columns, strict=True):
                self._add(row, diff, changes.time)
            self._time, self.note = changes.time, ""
            if diffs:
                self._changed = changes.time
            if len(self._rows) > ROWS_MAX or self._bytes > BYTES_MAX:
                raise self.too_many()

    def too_many(self) -> CliError:
        return CliError(
            f"{self._subject} has more than {ROWS_MAX} rows, or {BYTES_MAX >> 20} MiB of them, which a live "
            "table does not hold: subscribe to a SELECT with WHERE, or with ORDER BY and LIMIT"
        )

    def _add(self, row: list[Any], diff: int, time: int) -> None:
        cells = tuple(map(cell, row))
        known = self._rows.get(cells)
        if known is None:
            self._rows[cells] = _Row(self._order(row, cells), diff, time if diff > 0 else -1)
            self._bytes += sum(map(len, cells))
            return
        known.count += diff
        if diff > 0:
            known.time = time
        if known.count == 0:
            del self._rows[cells]
            self._bytes -= sum(map(len, cells))

    def _order(self, row: list[Any], cells: Cells) -> tuple[Any, ...]:
        keys = [_key(value, text, n) for value, text, n in zip(row, cells, self._numeric, strict=True)]
        if not self._sort_by:
            return tuple(keys)
        rank, value = keys[self._names.index(self._sort_by.removeprefix("-"))]
        return (rank, _Descending(value) if self._sort_by.startswith("-") else value, *keys)

    def frame(self, height: int) -> ScreenFrame:
        """The first rows. Rows that came with the last change are marked."""
        with self._lock:
            first = heapq.nsmallest(height, self._rows.items(), key=lambda item: item[1].order)
            total, changed = sum(row.count for row in self._rows.values()), self._changed
            names, numeric, at, note = self._names, self._numeric, self._time, self.note
        shown = [(cells, row.time == changed) for cells, row in first for _ in range(min(row.count, height))][:height]
        rows = "row" if total == 1 else "rows"
        footer = [f"{total} {rows}" + (f", {len(shown)} shown" if len(shown) < total else "")] if names else []
        footer += [f"as of {times.show(at)}"] if at is not None else []
        marked = frozenset(at for at, (_, is_marked) in enumerate(shown) if is_marked)
        text = ", ".join([*footer, *([note] if note else [])])
        return ScreenFrame(names, [cells for cells, _ in shown], text, marked=marked, right=numeric)


class _Descending:
    """A value in the other order."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def __lt__(self, other: _Descending) -> bool:
        return bool(other._key < self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(other._key == self._key)


def _key(value: Any, text: str, is_number: bool) -> tuple[int, Any]:
    """Numbers by their size, others by their text; NaN after numbers, and NULL last."""
    if value is None:
        return 2, 0
    if is_number and isinstance(value, int | float | Decimal):
        return (1, 0) if math.isnan(value) else (0, value)
    return 0, text


def follow(find: Callable[[], Gateway], request: SubscribeRequest, sort_by: str) -> None:
    """Show the rows until no change can come any more. Raises Error where the subscribe is refused, CliError."""
    rows, link = CurrentRows(request.subject, sort_by), Link(find)
    try:
        with live_table(rows.frame) as changed:
            for change in _changes(link, request, rows, changed):
                rows.take(change)
                changed()
    finally:
        link.close()


def _changes(
    link: Link, request: SubscribeRequest, rows: CurrentRows, changed: Callable[[], None]
) -> Iterator[TimedChanges]:
    """The changes of one subscribe after the other. A later one begins at the newest time: `as_of` may be too old by
    then. Raises Error where the first one is refused, or a later one for good."""
    has_begun = False
    while True:
        try:
            for change in _subscribe(link, request, rows):
                has_begun = True
                yield change
            return
        except Error as error:
            if not has_begun or not is_passing(error):
                raise
            rows.note = f"trying again: {error}"
            request.ClearField("as_of")
        changed()
        link.forget()
        time.sleep(AGAIN_SECONDS)


def _subscribe(link: Link, request: SubscribeRequest, rows: CurrentRows) -> Iterator[TimedChanges]:
    with subscribed(link, request) as (header, batches):
        rows.begin(header)
        divided = TimeDivider(list(header.column_names), header.as_of)
        for batch, data in batches:
            yield from divided.complete(batch, data)
            if divided.kept_bytes > BYTES_MAX:
                raise rows.too_many()
            if idle := divided.idle(batch.upper):
                yield idle
