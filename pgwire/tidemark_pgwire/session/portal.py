"""A statement that runs: rows go to the client as it takes them.

    batch ──► SLICE_ROWS rows ──► messages ──► written, and awaited until there is room

A portal that has sent as many rows as Execute asked for is suspended: the rest of its slice waits, and its answer is
read no further. A portal whose reading failed or was canceled gives no more rows: some may be lost, so it is not at
its end either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pyarrow as pa

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages import backend
from tidemark_pgwire.messages.wire import Wire
from tidemark_pgwire.session.answers import StatementAnswer
from tidemark_pgwire.statements.copy_options import CopyOptions
from tidemark_pgwire.values.rows import (
    COPY_DATA,
    COPY_HEADER,
    COPY_TRAILER,
    SLICE_ROWS,
    ResultColumn,
    data_rows,
    result_formats,
    text_columns,
)

SLICE_BYTES = 256 << 10
AT_HAND_ROWS = 32
"""The rows that are sent at once: encoding them takes no longer than the rest of a statement."""
MESSAGE_HEAD = 5
ALL = 0


class Portal:
    """`tag`: of its completion, before the number of rows. `zone`: the session's."""

    def __init__(self, answer: StatementAnswer, formats: Sequence[int], zone: str, tag: str = "SELECT") -> None:
        self.answer, self._zone, self.tag = answer, zone, tag
        self.formats = result_formats(formats, len(answer.columns))
        self._slice: pa.RecordBatch | None = None
        self._ready: list[bytes] = []
        self._taken = 0
        self._batch: pa.RecordBatch | None = None
        self._at = 0
        self._done = self._broken = False

    @property
    def columns(self) -> tuple[ResultColumn, ...]:
        return self.answer.columns

    def reformat(self, formats: Sequence[int]) -> None:
        """Send what is left in these formats: each FETCH of a cursor asks for its own."""
        wanted = result_formats(formats, len(self.columns))
        if wanted != self.formats and self._slice is not None:
            left = self._slice.slice(self._taken)
            self._ready, self._slice, self._taken = data_rows(left, self.columns, wanted, self._zone), left, 0
        self.formats = wanted

    def description(self) -> bytes:
        return backend.row_description([c.field(f) for c, f in zip(self.columns, self.formats, strict=True)])

    async def send(self, wire: Wire, max_rows: int = ALL, waits: bool = True) -> tuple[int, bool]:
        """The number of rows that were sent, and whether more may come. `max_rows` ALL: until the last one. Where not
        `waits`, rows that an endless answer has already, and at least one. Raises WireError."""
        async with self._break_off_on_error():
            return await self._send(wire, max_rows, waits)
        raise AssertionError

    def send_at_hand(self, wire: Wire) -> int | None:
        """Send all rows, where they are a single slice that is here already; returns how many. None: `send` does it.
        Raises WireError."""
        rows = self.answer.rows
        if rows is None or self._slice is not None or self._done or rows.num_rows > AT_HAND_ROWS:
            return None
        try:
            wire.write(b"".join(data_rows(rows, self.columns, self.formats, self._zone)))
        except WireError:
            self._broken = True
            raise
        finally:
            self._done = True
        return len(rows)

    async def _send(self, wire: Wire, max_rows: int, waits: bool) -> tuple[int, bool]:
        sent = 0
        while not max_rows or sent < max_rows:
            if self._taken == len(self._ready) and not await self._refill(waits or not sent):
                return sent, not self._done
            rows = self._ready[self._taken : self._taken + (max_rows - sent if max_rows else len(self._ready))]
            wire.write(b"".join(rows))
            self._taken += len(rows)
            sent += len(rows)
            if self.answer.endless or not wire.has_room:
                await wire.drain()
        return sent, True

    async def skip(self, max_rows: int) -> int:
        """Read so many rows, and send none. Raises WireError."""
        skipped = 0
        async with self._break_off_on_error():
            while (not max_rows or skipped < max_rows) and (self._taken < len(self._ready) or await self._refill(True)):
                step = len(self._ready) - self._taken
                step = min(step, max_rows - skipped) if max_rows else step
                self._taken += step
                skipped += step
        return skipped

    async def copy(self, wire: Wire, options: CopyOptions) -> int:
        """Send all rows as the data of COPY; returns how many."""
        sent, before = 0, COPY_HEADER if options.binary else b""
        forced = options.forced([column.name for column in self.columns])
        wire.write(backend.copy_out(len(self.columns), backend.BINARY if options.binary else backend.TEXT))
        if options.header:
            names = tuple(column.name.encode() for column in self.columns)
            wire.write(backend.copy_data(options.line(names)))
        while (rows := await self._next_slice(True)) is not None:
            messages = self._tuples(rows) if options.binary else self._lines(rows, options, forced)
            if before:  # psycopg, for one, wants them in one message, as PostgreSQL sends them
                messages[0], before = backend.copy_data(before + messages[0][MESSAGE_HEAD:]), b""
            wire.write(b"".join(messages))
            sent += rows.num_rows
            await wire.drain()
            await asyncio.sleep(0)
        if options.binary:
            wire.write(backend.copy_data(before + COPY_TRAILER))
        wire.write(backend.COPY_DONE)
        return sent

    def _tuples(self, rows: pa.RecordBatch) -> list[bytes]:
        formats = [backend.BINARY] * len(self.columns)
        return data_rows(rows, self.columns, formats, self._zone, COPY_DATA)

    def _lines(self, rows: pa.RecordBatch, options: CopyOptions, forced: tuple[bool, ...]) -> list[bytes]:
        found = text_columns(rows, self.columns, self._zone)
        return [backend.copy_data(options.line(row, forced)) for row in zip(*found, strict=True)]

    @asynccontextmanager
    async def _break_off_on_error(self) -> AsyncIterator[None]:
        """Where the block fails or is canceled, the portal is closed, and broken from then on. Raises WireError where
        it is broken already."""
        if self._broken:
            raise WireError(
                errors.NOT_IN_STATE,
                "the cursor or portal cannot be run: an earlier read of it failed or was canceled",
                hint="Close it, and open it anew: rows of the failed read are lost.",
            )
        try:
            yield
        except BaseException:
            self._broken = True
            await self.close()
            raise

    async def close(self) -> None:
        self._ready, self._slice, self._batch, self._done = [], None, None, True
        await self.answer.close()

    async def _refill(self, waits: bool) -> bool:
        rows = await self._next_slice(waits)
        if rows is None:
            return False
        self._ready, self._slice, self._taken = data_rows(rows, self.columns, self.formats, self._zone), rows, 0
        await asyncio.sleep(0)  # other sessions, as a slice takes some milliseconds
        return True

    async def _next_slice(self, waits: bool) -> pa.RecordBatch | None:
        while self._batch is None or self._at >= self._batch.num_rows:
            if self._done or (self.answer.endless and not waits):
                return None
            self._batch, self._at = await anext(self.answer.batches, None), 0
            if self._batch is None:
                self._done = True
                await self.answer.close()
                return None
        size = max(self._batch.nbytes // self._batch.num_rows, 1)
        rows = self._batch.slice(self._at, max(1, min(SLICE_ROWS, SLICE_BYTES // size)))
        self._at += rows.num_rows
        return rows
