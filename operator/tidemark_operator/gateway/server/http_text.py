"""Rows as text: JSON lines, one JSON document, CSV, server-sent events. Values are those that the command line prints.

    query       application/x-ndjson   {"carrier": "UA", "flights": 58665}
                application/json       {"as_of": 1769860800000, "export": "delays.delays", "rows": [...]}
                text/csv               carrier,flights
    subscribe   application/x-ndjson   {"__time": 1769860801000, "__diff": 1, "carrier": "UA", "flights": 58666}
                                       {"__progress": 1769860802000}
                text/event-stream      id: 1769860801000.5f2a81c09b3de674
                                       data: {"__time": 1769860801000, ...      one line for each change of the time

Functions here take as long as there are rows: they run in a thread, for few rows at a time (`slices`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidemark_operator.gateway.streams.query_answer import QueryAnswer
from tidemark_protocol.rows.csv import csv_line
from tidemark_protocol.rows.updates import DIFF_COLUMN, TIME_COLUMN
from tidemark_protocol.rows.values import plain, values
from tidemark_protocol.times import EMPTY

SLICE_ROWS, SLICE_BYTES = 1000, 256 << 10
EVENTS = "text/event-stream"
LAST_ID = "end"
"""The id of the last event: a client that connects again after it has everything."""
VOID_ID = "void"
"""The id of an event after which none may follow: another program changed what is read."""


def slices(batch: Any) -> Iterator[Any]:
    """The rows of a batch or table in parts of about SLICE_BYTES, at most SLICE_ROWS."""
    size = max(batch.nbytes // max(batch.num_rows, 1), 1)
    rows = max(1, min(SLICE_ROWS, SLICE_BYTES // size))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


class QueryText(ABC):
    """The text of one answer, in order: `head`, `rows` for each part, `tail`."""

    one_name_one_column = True
    """Columns of one name cannot both be shown."""

    def __init__(self, answer: QueryAnswer) -> None:
        self.names = [column.name for column in answer.columns]

    def head(self) -> str:
        return ""

    @abstractmethod
    def rows(self, rows: pa.RecordBatch) -> str: ...

    def tail(self) -> str:
        return ""

    def failed(self, error: dict[str, str], *, is_void: bool = False) -> str:
        """The text after a part of the answer where the rest is lost. The server closes the connection as well."""
        return ""


class JsonLines(QueryText):
    def rows(self, rows: pa.RecordBatch) -> str:
        return "".join(f"{line}\n" for line in _objects(self.names, rows.columns))

    def failed(self, error: dict[str, str], *, is_void: bool = False) -> str:
        return _error_line(error)


class JsonDocument(QueryText):
    def __init__(self, answer: QueryAnswer) -> None:
        super().__init__(answer)
        self._head = {"as_of": answer.as_of, "export": answer.reads or None}
        if answer.skipped:
            self._head["skipped_errors"] = answer.skipped
        self._separator = "\n"

    def head(self) -> str:
        return json.dumps(self._head)[:-1] + ', "rows": ['

    def rows(self, rows: pa.RecordBatch) -> str:
        text = ",\n".join(_objects(self.names, rows.columns))
        before, self._separator = self._separator, ",\n"
        return before + text

    def tail(self) -> str:
        return "\n]}\n"


class Csv(QueryText):
    """The rows as CSV, as rows/csv.py of the protocol writes them."""

    one_name_one_column = False

    def head(self) -> str:
        return csv_line(self.names)

    def rows(self, rows: pa.RecordBatch) -> str:
        return "".join(map(csv_line, zip(*map(values, rows.columns), strict=True)))


QUERY_TEXTS: dict[str, type[QueryText]] = {
    "application/x-ndjson": JsonLines,
    "application/json": JsonDocument,
    "text/csv": Csv,
}


class SubscribeText(ABC):
    """The text of one subscribe. `progress`: the client wants to know up to which time the changes are complete.
    `as_of`: the first time. `fingerprint`: of what is read."""

    def __init__(self, names: Sequence[str], progress: bool, as_of: int, fingerprint: str) -> None:
        self._names, self._progress = [TIME_COLUMN, DIFF_COLUMN, *names], progress
        self._as_of, self._fingerprint = as_of, fingerprint

    @abstractmethod
    def changes(self, updates: pa.Table) -> str: ...

    @abstractmethod
    def upper(self, upper: int) -> str:
        """The text that tells the client that it has all changes before `upper`; empty where there is none."""

    def end(self) -> str:
        """No change can come any more."""
        return ""

    @abstractmethod
    def failed(self, error: dict[str, str], *, is_void: bool = False) -> str:
        """`is_void`: nothing may follow what the client has."""

    def _lines(self, updates: pa.Table) -> Iterator[str]:
        columns = [updates.column(TIME_COLUMN), updates.column(DIFF_COLUMN), *updates.columns[:-3]]
        return _objects(self._names, columns)

    def _is_progress(self, upper: int) -> bool:
        """Whether a client may go on from here. Before the first time is complete it would never get the rows of it."""
        return self._progress and upper > self._as_of

    def _progress_line(self, upper: int) -> str:
        return json.dumps({"__progress": None if upper == EMPTY else upper})


class ChangeLines(SubscribeText):
    def changes(self, updates: pa.Table) -> str:
        return "".join(f"{line}\n" for line in self._lines(updates))

    def upper(self, upper: int) -> str:
        return f"{self._progress_line(upper)}\n" if self._is_progress(upper) else ""

    def failed(self, error: dict[str, str], *, is_void: bool = False) -> str:
        return _error_line(error)


class ChangeEvents(SubscribeText):
    """One event has all changes of one time. Clients take an event once the empty line after it has come."""

    _time: int | None = None
    """The time of the event whose end was not sent yet."""

    def changes(self, updates: pa.Table) -> str:
        text = []
        for time, line in zip(updates.column(TIME_COLUMN).to_pylist(), self._lines(updates), strict=True):
            if time != self._time:
                text.append(f"{self._close()}id: {self._id(time)}\n")
                self._time = time
            text.append(f"data: {line}\n")
        return "".join(text)

    def upper(self, upper: int) -> str:
        if self._time is not None and upper <= self._time:
            return ""
        closed = self._close()
        if not self._is_progress(upper) or upper == EMPTY:
            return closed
        return f"{closed}event: progress\nid: {self._id(upper - 1)}\ndata: {self._progress_line(upper)}\n\n"

    def end(self) -> str:
        return f"{self._close()}event: end\nid: {LAST_ID}\ndata: {{}}\n\n"

    def failed(self, error: dict[str, str], *, is_void: bool = False) -> str:
        """Clients drop an event that is not complete when the connection ends. An end of it would make them take it for
        all changes of its time, so the error is a comment there. Where what they have is void, an id that is refused
        takes the place of theirs: a browser connects again by itself. The event that is not complete then ends as one
        of a kind that nobody takes for changes."""
        named = json.dumps(error)
        if is_void:
            dropped = "" if self._time is None else f"event: incomplete\nid: {VOID_ID}\n\n"
            return f"{dropped}event: failed\nid: {VOID_ID}\ndata: {named}\n\n"
        return f"event: failed\ndata: {named}\n\n" if self._time is None else f": failed {named}\n"

    def _id(self, time: int) -> str:
        return f"{time}.{self._fingerprint}"

    def _close(self) -> str:
        end, self._time = "" if self._time is None else "\n", None
        return end


SUBSCRIBE_TEXTS: dict[str, type[SubscribeText]] = {"application/x-ndjson": ChangeLines, EVENTS: ChangeEvents}


def _objects(names: Sequence[str], columns: Sequence[Any]) -> Iterator[str]:
    for row in zip(*map(values, columns), strict=True):
        yield json.dumps(plain(dict(zip(names, row, strict=True))))


def _error_line(error: dict[str, str]) -> str:
    return json.dumps({"__error": error}) + "\n"
