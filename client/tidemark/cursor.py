"""A cursor of PEP 249: one statement at a time, its rows as tuples or as Arrow.

execute ──► header: description, as_of ──► record batches, fetched as they are wanted
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

import grpc
import pyarrow as pa

from tidemark.answers import open_rows, read_header
from tidemark.errors import DataError, Error, InterfaceError, NotSupportedError, OperationalError
from tidemark.gateway.channel import call_errors
from tidemark.gateway.discovery import Gateway
from tidemark.link import LOST, Link
from tidemark.literals import bind
from tidemark_protocol.pb.gateway_pb2 import QueryHeader, QueryRequest
from tidemark_protocol.rows.values import values

Row = tuple[Any, ...]
Description = tuple[str, str, None, None, None, None, None]
"""Name and type of SQL; PEP 249's other five items."""


def milliseconds(time: int | datetime) -> int:
    """Raises DataError: a datetime without a time zone names no time."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise DataError(f"{time} has no time zone: give it tzinfo, as in datetime.now(UTC)")
        return int(time.timestamp() * 1000)
    return time


class Cursor:
    """Rows are fetched while they are read: read them soon, or the gateway may end a statement that others wait for."""

    arraysize = 1

    def __init__(self, link: Link, namespace: str, instance: str, timeout: float | None) -> None:
        self._link, self._namespace, self._instance, self._timeout = link, namespace, instance, timeout
        self._call: Any = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None
        self._schema: pa.Schema | None = None
        self._rows: Iterator[Row] = iter(())
        self._taken = 0
        self._closed = False
        self._failure: Error | None = None
        self.description: Sequence[Description] | None = None
        self.rowcount = -1
        self.as_of: int | None = None
        """The time of the answer: ms since 1970."""
        self.skipped_errors = 0
        self.leased: tuple[str, ...] = ()
        """The ids of the relations that the statement's lease holds."""

    def execute(
        self,
        sql: str,
        parameters: Sequence[object] = (),
        *,
        as_of: int | datetime | None = None,
        strict: bool = False,
        skip_errors: bool = False,
        replica: str = "",
        lease: str = "",
    ) -> Self:
        """Ask for the answer to a SELECT. `parameters` replace each `?`. `lease`: the id of a lease that holds what is
        read (held_times.py). The other options: `kubectl tidemark query`.

        Raises:
            ProgrammingError: the statement is refused.
            DataError: `as_of` cannot be read.
            OperationalError: it cannot be answered now, or not for this caller.
        """
        self._require_open()
        self._cancel()
        request = QueryRequest(
            namespace=self._namespace,
            sql=bind(sql, parameters) if parameters else sql,
            as_of=None if as_of is None else milliseconds(as_of),
            instance=self._instance,
            strict=strict,
            skip_errors=skip_errors,
            replica=replica,
            lease=lease,
        )
        header = self._ask(request)
        described = zip(header.column_names, header.column_types, strict=True)
        self.description = [(name, type, None, None, None, None, None) for name, type in described]
        self.as_of, self.skipped_errors = header.as_of, header.skipped_errors
        self.leased = tuple(header.leased)
        return self

    def executemany(self, sql: str, parameters: Sequence[Sequence[object]]) -> None:
        """Raises NotSupportedError: statements only read."""
        raise NotSupportedError("statements only read: execute each, or write rows by kubectl tidemark insert")

    def fetchone(self) -> Row | None:
        """The next row; None after the last one."""
        self._require_rows()
        while (row := next(self._rows, None)) is None:
            if not self._next_batch():
                return None
        self._taken += 1
        return row

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return up to `size` rows, `arraysize` by default."""
        self._require_rows()
        wanted, rows = self.arraysize if size is None else size, list[Row]()
        with self._break_off_on_error():
            while len(rows) < wanted and (row := self.fetchone()) is not None:
                rows.append(row)
        return rows

    def fetchall(self) -> list[Row]:
        """The rows that are left."""
        self._require_rows()
        with self._break_off_on_error():
            return list(self)

    def fetch_arrow(self) -> pa.Table:
        """The rows that are left, as a table of Arrow: `.to_pandas()`, or `polars.from_arrow` of it."""
        self._require_rows()
        left = [] if self._batch is None else [self._batch.slice(self._taken)]
        self._rows, self._batch = iter(()), None
        assert self._batches is not None
        with self._break_off_on_error():
            return pa.Table.from_batches([*left, *self._batches], self._schema)

    def fetch_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that are left, in batches of Arrow as they come."""
        self._require_rows()
        if self._batch is not None and self._taken < self._batch.num_rows:
            yield self._batch.slice(self._taken)
        self._rows, self._batch = iter(()), None
        assert self._batches is not None
        with self._break_off_on_error():
            yield from self._batches

    def close(self) -> None:
        """End the statement; the cursor cannot be used any more."""
        self._cancel()
        self._closed = True

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """PEP 249 wants it; it does nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """PEP 249 wants it; it does nothing."""

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: QueryRequest) -> QueryHeader:
        """Where the way to the gateway was lost, ask once more by a new one."""
        try:
            return self._header(request)
        except grpc.RpcError as error:
            gateway = self._link.gateway()
            if error.code() not in LOST:
                with call_errors(gateway):
                    raise
        self._link.forget()
        gateway = self._link.gateway()
        with call_errors(gateway):
            return self._header(request)

    def _header(self, request: QueryRequest) -> QueryHeader:
        stub, gateway = self._link.stub(), self._link.gateway()
        self._call = stub.Query(request, metadata=gateway.metadata, timeout=self._timeout)
        header = read_header(self._call)
        rows = open_rows(self._call)
        self._schema = pa.schema(
            [field.with_name(name) for field, name in zip(rows.schema, header.column_names, strict=True)]
        )
        self._batches = self._named(rows, gateway)
        return header

    def _named(self, rows: pa.RecordBatchReader, gateway: Gateway) -> Iterator[pa.RecordBatch]:
        with call_errors(gateway):
            for batch in rows:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)

    def _next_batch(self) -> bool:
        assert self._batches is not None
        with self._break_off_on_error():
            self._batch, self._taken = next(self._batches, None), 0
            self._rows = iter(()) if self._batch is None else zip(*map(values, self._batch.columns), strict=True)
        return self._batch is not None

    @contextmanager
    def _break_off_on_error(self) -> Iterator[None]:
        """Where the block fails or is interrupted, the cursor cancels the call, and every later fetch fails: the rows
        that are left are no answer."""
        try:
            yield
        except BaseException as error:
            if self._failure is None:
                broken = OperationalError(f"the answer was broken off ({type(error).__name__}): execute it again")
                self._failure = error if isinstance(error, Error) else broken
            self._rows, self._batch = iter(()), None
            if self._call is not None:
                self._call.cancel()
            raise

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._call = self._batches = self._batch = self._schema = self.description = self.as_of = None
        self._rows, self._failure = iter(()), None

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")

    def _require_rows(self) -> None:
        self._require_open()
        if self._batches is None:
            raise InterfaceError("the cursor has no answer: execute a statement first")
        if self._failure is not None:
            raise self._failure
