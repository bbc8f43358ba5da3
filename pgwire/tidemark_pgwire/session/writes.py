"""Runs INSERT, UPDATE, DELETE and COPY FROM: rows wait in the transaction, and its end writes them as one call.

statement ──► the gateway: may the user, which columns ──► rows as csv ──► the transaction's body
                                   COMMIT, the end of the message, Sync ──► one call ──► durable, at one time
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from tidemark_pgwire import errors
from tidemark_pgwire.errors import ClientProtocolError, ConnectionClosed, WireError
from tidemark_pgwire.messages import backend
from tidemark_pgwire.messages.wire import COPY_DATA
from tidemark_pgwire.session.statements import StatementSession
from tidemark_pgwire.session.transaction import Pending, Section
from tidemark_pgwire.statements.commands import CopyIn
from tidemark_pgwire.statements.copy_options import CopyOptions
from tidemark_pgwire.statements.inserts import DELETE, INSERT, UPDATE, UPSERT, TableName, Write
from tidemark_pgwire.values.parameters import Parameter
from tidemark_pgwire.writes.binary_blocks import BinaryBlocks
from tidemark_pgwire.writes.blocks import Blocks
from tidemark_pgwire.writes.body import Body, run_to_end
from tidemark_pgwire.writes.cells import changed_columns, lines
from tidemark_pgwire.writes.rows import csv_of, header_of
from tidemark_pgwire.writes.table import WritableTable
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.types import Column

MAX_MESSAGE_BYTES = 1 << 20
"""The bytes of a message beside COPY's data, at most."""
LARGE_BYTES, LARGE_ROWS = 64 << 10, 1000
"""The size from which on the rows of a statement are not made in the event loop."""
MIXED_BYTES, MIXED_SECTIONS = 4 << 20, 10_000
"""The greatest call with sections that the ingester takes."""
HEADER_BYTES = 1 << 20
"""The bytes of the sections of a call in its first message, at most."""
MOST_TABLES = 16
"""The tables of a transaction, at most."""
_ROW = re.compile(r"MALFORMED: row (\d+):")


async def change(session: StatementSession, command: Write, parameters: Sequence[Parameter]) -> str:
    """Have the rows wait, to be inserted, upserted, updated or deleted; returns the tag. Raises WireError."""
    session.require_writable(command.tag)
    table = await _table(session, command.table, command.operation)
    make = partial(lines, table, command, parameters, session.settings.zone)
    is_small = len(command.rows) < LARGE_ROWS and _size(command, parameters) < LARGE_BYTES
    made, rows = make() if is_small else await asyncio.to_thread(make)
    if rows:
        body = _body(session, table, command.operation, changed_columns(table, command), len(made))
        await body.do_file_work(partial(body.append, made, rows), len(made))
    if session.transaction.pending is not None:
        session.transaction.pending.statements += 1
    return f"{command.tag} {rows}" if command.by_key else f"{command.tag} 0 {rows}"


def _size(command: Write, parameters: Sequence[Parameter]) -> int:
    size = sum(len(cell.text or "") for row in command.rows for cell in row)
    return size + sum(len(each.text or "") for each in parameters)


async def copy(session: StatementSession, command: CopyIn) -> str:
    """Take the client's data, and have the rows wait; returns the tag. Raises WireError."""
    session.require_writable(command.tag)
    table = await _table(session, command.table, INSERT)
    columns = table.chosen(command.columns)
    blocks = _blocks(table, columns, command.options)
    body, zone = _body(session, table, INSERT), session.settings.zone
    before, pending = body.rows, session.transaction.pending
    assert pending is not None

    def keep(last: bool) -> None:
        texts = blocks.take_last() if last else blocks.take()
        if texts is not None:
            body.append(csv_of(table, columns, texts, zone), len(texts[0]))
            if pending.others:
                _require_small(pending)

    with session.spool.copying(session.user):
        session.wire.write(backend.copy_in(len(columns), backend.BINARY if command.options.binary else backend.TEXT))
        await session.wire.drain()
        async for data in _data(session):
            blocks.add(data)
            if blocks.is_full:
                await run_to_end(session.spool.parsers, partial(keep, False))
        await run_to_end(session.spool.parsers, partial(keep, True))
    pending.copied = blocks if before == 0 and not pending.others else None
    return f"COPY {body.rows - before}"


def _blocks(table: WritableTable, columns: tuple[Column, ...], options: CopyOptions) -> Blocks | BinaryBlocks:
    if options.binary:
        return BinaryBlocks(str(table), columns)
    return Blocks(str(table), tuple(column.name for column in columns), options)


async def write(session: StatementSession, tag: str = "") -> str:
    """Write the rows that wait, if there are some; return once they are durable. `tag`: of the last statement, whose
    client does not have it yet; returns the one that it gets. Raises WireError: the rows are not durable, or nobody
    knows.

    A DELETE or UPDATE that is alone says how many rows were there. All others have said that each of their keys is
    there.
    """
    pending, session.transaction.pending = session.transaction.pending, None
    if pending is None:
        return tag
    # the digest of the call is of its tables in their order, which says nothing
    ordered, is_long = sorted(pending.of_tables, key=lambda each: each.table.name), _is_long(pending.of_tables)
    tables = [(each, sections) for each in ordered if (sections := list(_sections(each, is_long)))]
    verb = _only_verb([section for _, sections in tables for section in sections])
    counts = bool(verb) and pending.statements == 1 and tag.startswith(verb)
    header = pb.InsertHeader(namespace=session.namespace, source=pending.table.source, format="csv", key=pending.key)
    try:
        if not tables:
            return tag
        parts = [_table_part(each, sections, counts) for each, sections in tables]
        if len(parts) > 1:
            header.tables.extend(parts)
        else:
            _of_one(header, parts[0])
        bodies = [each.body for each, _ in tables]
        session.is_writing = True
        reply = await session.link.insert(
            session.token,
            header,
            lambda: chain.from_iterable(body.pieces() for body in bodies),
            sum(body.size for body in bodies),
        )
    except WireError as error:
        session.forget_table()
        raise _placed(error, pending) from None
    finally:
        session.is_writing = False
        pending.close()
    names, rows = ", ".join(str(each.table) for each, _ in tables), sum(body.rows for body in bodies)
    if reply.repeated and any(part.must_find for part in parts) and reply.rows != rows:
        raise WireError(
            "P0002",
            f"an earlier call with this tidemark.write_key changed {reply.rows} rows of {names}, and this "
            f"transaction has said {rows}: nothing more is changed",
        )
    if reply.repeated:
        text = f"an earlier call with this tidemark.write_key wrote these rows of {names}: they are not doubled"
        session.notify(text)
    return f"{verb} {reply.rows}" if counts else tag


def _only_verb(sections: Sequence[pb.WriteSection]) -> str:
    """DELETE or UPDATE, where the transaction has rows of one such statement alone."""
    alone = len(sections) == 1 and sections[0].operation in (DELETE, UPDATE)
    return sections[0].operation.upper() if alone else ""


def _table_part(pending: Pending, sections: Sequence[pb.WriteSection], counts: bool) -> pb.WriteTable:
    """The part of a call about one of its tables. `counts`: the call tells how many rows it finds, however many."""
    found_by_key = sum(section.rows for section in sections if section.operation in (DELETE, UPDATE))
    alone = len(sections) == 1 and not sections[0].changed
    return pb.WriteTable(
        table=pending.table.name,
        table_id=pending.table.id,
        operation=sections[0].operation if alone else "",
        must_find=0 if counts else found_by_key,
        sections=() if alone else sections,
        size=pending.body.size,
    )


def _of_one(header: pb.InsertHeader, part: pb.WriteTable) -> None:
    """A call of one table says so itself."""
    header.table, header.table_id, header.operation = part.table, part.table_id, part.operation
    header.must_find = part.must_find
    header.sections.extend(part.sections)


async def _data(session: StatementSession) -> AsyncIterator[bytes]:
    """The data that the client sends, to their end. Raises WireError: the client breaks off, or sends nothing for too
    long."""
    wire, limit = session.wire, session.idle_seconds or None
    while True:
        kind, size = await session.receive(wire.head(MAX_MESSAGE_BYTES), limit)
        if kind == COPY_DATA:
            async for part in session.receive_parts(size, limit):
                yield part
            continue
        body = await session.receive(wire.body(size), limit)
        if kind == b"c":
            return
        if kind == b"f":
            reason = body.rstrip(b"\0").decode(errors="replace")
            raise WireError(errors.QUERY_CANCELED, f"COPY from stdin failed: {reason:.200}")
        if kind == b"X":
            raise ConnectionClosed
        if kind not in (b"H", b"S"):
            raise ClientProtocolError(f"unexpected message type 0x{kind.hex()} during COPY from stdin")


async def _table(session: StatementSession, name: TableName, operation: str) -> WritableTable:
    pending = session.transaction.pending
    for each in pending.of_tables if pending is not None else ():
        if (each.table.source, each.table.name) == (name.source, name.table) and any(
            section.operation == operation for section in each.sections
        ):
            return each.table
    return await session.written_table(name.source, name.table, operation)


def _body(
    session: StatementSession, table: WritableTable, operation: str, changed: tuple[str, ...] = (), size: int = 0
) -> Body:
    """Where the rows of the transaction wait, ready for rows of this operation. `changed`: the columns that it sets
    in rows that are there; empty: all. `size`: of the rows, in bytes. Raises WireError: there are rows of a table of
    another source, or too many for one call."""
    pending, whole = session.transaction.rows_of(table), session.transaction.pending
    if pending is None:
        body, key = Body(session.spool, session.user, header_of(table)), session.settings.write_key or uuid.uuid4().hex
        pending = Pending(table, body, key, [])
        pending.since = asyncio.get_running_loop().time()
        if whole is None:
            whole = session.transaction.pending = pending
        else:
            whole.others.append(pending)
    assert whole is not None
    if whole is not pending or pending.sections:
        whole.copied = None
    section = Section(operation, pending.body.rows, changed)
    # an upsert may write a key of the one before it, unless they are too many
    follows = operation in (UPSERT, UPDATE) and len(pending.sections) <= MIXED_SECTIONS
    if follows or not pending.sections or not section.is_like(pending.sections[-1]):
        pending.begin(section)
    if pending.has_kinds and _is_large(pending, size):
        text = (
            "a transaction with updates, with upserts that keep columns, or with statements of several kinds has at "
            f"most {MIXED_BYTES >> 20} MiB of rows and {MIXED_SECTIONS} such statements, and {HEADER_BYTES >> 20} MiB "
            "of names of the columns that these set"
        )
        raise WireError(errors.LIMIT_EXCEEDED, text, hint="COMMIT smaller parts.")
    if whole.others:
        _require_small(whole, size)
    return pending.body


def _require_small(pending: Pending, more: int = 0) -> None:
    """Raises WireError where the rows of several tables, with so many bytes more, are too large for a call, or its
    first message is."""
    kept = (each for each in pending.of_tables if each.has_kinds)
    if pending.size + more > MIXED_BYTES or len(pending.of_tables) > MOST_TABLES or _is_long(kept):
        text = (
            f"a transaction with rows of several tables has at most {MIXED_BYTES >> 20} MiB of rows, of {MOST_TABLES} "
            f"tables; in all of them {MIXED_SECTIONS} updates, upserts that keep columns, and statements of another "
            f"kind than the one before, and {HEADER_BYTES >> 20} MiB of names of the columns that these set"
        )
        raise WireError(errors.LIMIT_EXCEEDED, text, hint="COMMIT smaller parts.")


def _is_large(pending: Pending, more: int = 0) -> bool:
    """Whether the rows, with so many bytes more, are too large for a call that has sections."""
    size = pending.body.size + more
    return len(pending.sections) > MIXED_SECTIONS or size > MIXED_BYTES or pending.header_size > HEADER_BYTES


def _is_long(tables: Iterable[Pending]) -> bool:
    """Whether the first message of a call is too large for the sections of all these tables."""
    counts = [(len(each.sections), each.header_size) for each in tables]
    return sum(count for count, _ in counts) > MIXED_SECTIONS or sum(size for _, size in counts) > HEADER_BYTES


def _sections(pending: Pending, is_long: bool) -> Iterator[pb.WriteSection]:
    """The operations in order, without those that have no rows. Upserts that are too many for sections are one.
    `is_long`: so are those of all tables together."""
    if not pending.has_kinds and pending.body.rows and (is_long or _is_large(pending)):
        yield pb.WriteSection(operation=pending.sections[0].operation, rows=pending.body.rows)
        return
    ends = [*(section.begin for section in pending.sections[1:]), pending.body.rows]
    for section, end in zip(pending.sections, ends, strict=True):
        if end > section.begin:
            yield pb.WriteSection(operation=section.operation, rows=end - section.begin, changed=section.changed)


def _placed(error: WireError, pending: Pending) -> WireError:
    """The error with the line of COPY's data, where the transaction is one COPY."""
    blocks, found = pending.copied, _ROW.match(str(error))
    if blocks is not None and found is not None and blocks.one_line_each:
        error.where = f"COPY {pending.table}, line {blocks.line_of(int(found[1]))}"
    return error
