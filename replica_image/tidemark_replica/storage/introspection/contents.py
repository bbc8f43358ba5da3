"""The documents in which the operator sends the rows of its relations, and the place where the newest one waits.

    {"term": 3, "moment": 1732..., "relations": {"frontiers": {"name": ["a.b"], ...}, ...}}    columns, by relation
    {"term": 3, "moment": 1732..., "obstacle": "TooManyRows: ..."}                             none, and why

A document has every relation, as of one moment of one operator. A newer one takes the place of one that waits, and an
older one never does. A tick that was missed is not made up for, and one that is bound takes no second document:

    tick 1 ── document: bound ──────────── document: dropped ── tick 2 ── document: bound ── ...

If the second one waited for tick 2, it would take the place of the document of tick 2, and so on for good.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pyarrow as pa

from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import IntrospectionSource, IntrospectionTable
from tidemark_protocol.plan.successors import spec_name
from tidemark_replica.storage.clock import tick_at, wall_clock_ms
from tidemark_replica.storage.written.inbox import WriteAnswer
from tidemark_replica.storage.written.receive import WriteHeader
from tidemark_replica.storage.written.refusal import BAD_REQUEST, MALFORMED, TOO_LARGE, WriteRefused
from tidemark_replica.values.arrow_types import arrow_schema

REPLACE = "replace"
DOCUMENT_BYTES_MAX = 16 << 20
PATIENCE_SECONDS, PATIENCE_TICKS = 30.0, 3
"""A document is waited for, and waits, for so long, or for so many ticks where that is longer."""
NO_WORD = (
    "WaitingForOperator: the operator has sent no rows for a while, so the tables stand still; look whether an "
    "operator leads, and in its log"
)


@dataclass(frozen=True)
class RelationContents:
    """The rows of all tables of a source, by the table's name; or, without any, why there are none. `made`: the term of
    the operator, and its moment in milliseconds; none of an operator that does not tell."""

    tables: Mapping[str, pa.Table]
    obstacle: str = ""
    made: tuple[int, int] | None = None


@dataclass(frozen=True)
class ReceivedDocument:
    """A document is answered once it is received: what becomes of it is seen in the tables."""

    rows: int

    def answer(self, timeout_s: float) -> WriteAnswer:
        return WriteAnswer(Time(0), self.rows)

    def abandon(self) -> None:
        return


class ContentsSlot:
    """The newest document of one source, until a tick takes it. Callable from any thread."""

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms, self._patience = tick_ms, max(PATIENCE_SECONDS, PATIENCE_TICKS * tick_ms / 1000)
        self._lock = threading.Lock()
        self._waiting: RelationContents | None = None
        self._bound, self._newest = -1, (0, 0)
        self._obstacle, self._came = "", monotonic()

    def put(self, contents: RelationContents) -> ReceivedDocument:
        """The document counts unless it, or a newer one, came before; its rows, unless this tick is bound already."""
        with self._lock:
            late = monotonic() - self._came > self._patience  # a clock was put back, if documents come all the same
            if contents.made is None or contents.made > self._newest or late:
                self._newest, self._obstacle = contents.made or self._newest, contents.obstacle
                self._came = monotonic()
                if contents.obstacle:
                    self._waiting = None
                elif tick_at(wall_clock_ms(), self._tick_ms) > self._bound:
                    self._waiting = contents
        return ReceivedDocument(sum(table.num_rows for table in contents.tables.values()))

    def resume(self, upper: Time) -> None:
        """The last tick that is bound is the one before `upper`."""
        with self._lock:
            self._bound = upper - 1

    def take(self, time: Time) -> RelationContents | None:
        """The document that waits, for this tick; it waits no more."""
        with self._lock:
            taken, self._waiting = self._waiting, None
            if taken is not None:
                self._bound = time
            return taken

    def reason_to_wait(self) -> str | None:
        """None: a document waits. Else why none does, for people; empty if the next one is not due yet."""
        with self._lock:
            late = monotonic() - self._came > self._patience
            if late:
                self._waiting = None  # the moment of these rows is long past
            if self._waiting is not None:
                return None
            return NO_WORD if late else self._obstacle


def receive(spec: IntrospectionSource, header: WriteHeader, pieces: Iterable[bytes]) -> RelationContents:
    """The document of a call. Raises WriteRefused, and what `pieces` raises."""
    if (header.table, header.operation, header.format, header.parts) != ("", REPLACE, "json", ()):
        raise WriteRefused(BAD_REQUEST, "the rows of relations are replaced, all together, as json")
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > DOCUMENT_BYTES_MAX:
            raise WriteRefused(TOO_LARGE, f"the rows of the relations have more than {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = json.loads(bytes(body))
        made = (int(document["term"]), int(document["moment"])) if "moment" in document else None
        if obstacle := document.get("obstacle"):
            return RelationContents({}, str(obstacle), made)
        found = document["relations"]
        tables = {table.name: _table(table, found[spec_name(table.name)]) for table in spec.tables}
        return RelationContents(tables, made=made)
    except KeyError as error:
        raise WriteRefused(MALFORMED, f"this operator has no relation {error}; use the version that had it") from None
    except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowException) as error:
        text = " ".join(str(error).split())[:200]
        raise WriteRefused(MALFORMED, f"the rows of the relations cannot be read: {text}") from None


def _table(table: IntrospectionTable, columns: Mapping[str, list[Any]]) -> pa.Table:
    """Its rows; a column that the operator does not know, of another version, is NULL."""
    schema, rows = arrow_schema(table.columns), max(map(len, columns.values()), default=0)
    arrays = [pa.array(columns.get(field.name, [None] * rows), field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
