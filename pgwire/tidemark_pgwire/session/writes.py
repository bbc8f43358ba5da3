"""Runs INSERT, UPDATE, DELETE and COPY FROM: rows wait in the transaction, and its end writes them as one call.

statement ──► the gateway: may the user, which columns ──► rows as csv ──► the transaction's body
                                   COMMIT, the end of the message, Sync ──► one call ──► durable, at one time
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial

from tidemark_pgwire import errors
from tidemark_pgwire.errors import Gone, ProtocolError, WireError
from tidemark_pgwire.messages import backend
from tidemark_pgwire.messages.wire import COPY_DATA
from tidemark_pgwire.session.statements import Session
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
from tidemark_pgwire.writes.table import WrittenTable
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.types import Column

MAX_MESSAGE_BYTES = 1 << 20
"""Of a message beside COPY's data."""
LARGE_BYTES, LARGE_ROWS = 64 << 10, 1000
"""From here on the rows of a statement are not made in the event loop."""
MIXED_BYTES, MIXED_SECTIONS = 4 << 20, 10_000
"""What the ingester takes of a call with sections."""
HEADER_BYTES = 1 << 20
"""Of the sections of a call, in its first message."""
_ROW = re.compile(r"MALFORMED: row (\d+):")


async def change(session: Session, command: Write, parameters: Sequence[Parameter]) -> str:
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


async def copy(session: Session, command: CopyIn) -> str:
    """Take the client's data, and have the rows wait; returns the tag. Raises WireError."""
    session.require_writable(command.tag)
    table = await _table(session, command.table, INSERT)
    columns = table.chosen(command.columns)
    blocks = _blocks(table, columns, command.options)
    body, zone = _body(session, table, INSERT), session.settings.zone
    before = body.rows

    def keep(last: bool) -> None:
        texts = blocks.last() if last else blocks.take()
        if texts is not None:
            body.append(csv_of(table, columns, texts, zone), len(texts[0]))

    with session.spool.copying(session.user):
        session.wire.write(backend.copy_in(len(columns), backend.BINARY if command.options.binary else backend.TEXT))
        await session.wire.drain()
        async for data in _data(session):
            blocks.add(data)
            if blocks.is_full:
                await run_to_end(session.spool.parsers, partial(keep, False))
        await run_to_end(session.spool.parsers, partial(keep, True))
    assert session.transaction.pending is not None
    session.transaction.pending.copied = blocks if before == 0 else None
    return f"COPY {body.rows - before}"


def _blocks(table: WrittenTable, columns: tuple[Column, ...], options: CopyOptions) -> Blocks | BinaryBlocks:
    if options.binary:
        return BinaryBlocks(str(table), columns)
    return Blocks(str(table), tuple(column.name for column in columns), options)


async def write(session: Session, tag: str = "") -> str:
    """Write the rows that wait, if there are some; return once they are durable. `tag`: of the last statement, whose
    client does not have it yet; returns the one that it gets. Raises WireError: the rows are not durable, or nobody
    knows.

    A DELETE or UPDATE that is alone says how many rows were there. All others have said that each of their keys is
    there.
    """
    pending, session.transaction.pending = session.transaction.pending, None
    if pending is None:
        return tag
    sections = list(_sections(pending))
    found_by_key = sum(section.rows for section in sections if section.operation in (DELETE, UPDATE))
    verb = sections[0].operation.upper() if found_by_key and len(sections) == 1 else ""
    counts = bool(verb) and pending.statements == 1 and tag.startswith(verb)
    alone = len(sections) == 1 and not sections[0].changed
    try:
        if not sections:
            return tag
        header = pb.InsertHeader(
            namespace=session.namespace,
            source=pending.table.source,
            table=pending.table.name,
            operation=sections[0].operation if alone else "",
            format="csv",
            key=pending.key,
            table_id=pending.table.id,
            must_find=0 if counts else found_by_key,
        )
        if not alone:
            header.sections.extend(sections)
        session.is_writing = True
        reply = await session.link.insert(session.token, header, pending.body.pieces, pending.body.size)
    except WireError as error:
        session.forget_table()
        raise _placed(error, pending) from None
    finally:
        session.is_writing = False
        pending.body.close()
    if reply.repeated and header.must_find and reply.rows != pending.body.rows:
        raise WireError(
            "P0002",
            f"an earlier call with this tidemark.write_key changed {reply.rows} rows of {pending.table}, and this "
            f"transaction has said {pending.body.rows}: nothing more is changed",
        )
    if reply.repeated:
        text = f"an earlier call with this tidemark.write_key wrote these rows of {pending.table}: they are not doubled"
        session.wire.write(backend.notice(text))
    return f"{verb} {reply.rows}" if counts else tag


async def _data(session: Session) -> AsyncIterator[bytes]:
    """What the client sends, until it is complete. Raises WireError: the client breaks it off, or sends nothing for too
    long."""
    wire, limit = session.wire, session.idle_seconds or None
    while True:
        kind, size = await session.sent(wire.head(MAX_MESSAGE_BYTES), limit)
        if kind == COPY_DATA:
            async for part in session.parts(size, limit):
                yield part
            continue
        body = await session.sent(wire.body(size), limit)
        if kind == b"c":
            return
        if kind == b"f":
            reason = body.rstrip(b"\0").decode(errors="replace")
            raise WireError(errors.QUERY_CANCELED, f"COPY from stdin failed: {reason:.200}")
        if kind == b"X":
            raise Gone
        if kind not in (b"H", b"S"):
            raise ProtocolError(f"unexpected message type 0x{kind.hex()} during COPY from stdin")


async def _table(session: Session, name: TableName, operation: str) -> WrittenTable:
    pending = session.transaction.pending
    if (
        pending is not None
        and (pending.table.source, pending.table.name) == (name.source, name.table)
        and any(section.operation == operation for section in pending.sections)
    ):
        return pending.table
    return await session.written_table(name.source, name.table, operation)


def _body(session: Session, table: WrittenTable, operation: str, changed: tuple[str, ...] = (), size: int = 0) -> Body:
    """Where the rows of the transaction wait, ready for rows of this operation. `changed`: the columns that it sets
    in rows that are there; empty: all. `size`: of the rows, in bytes. Raises WireError: there are rows of another
    table, or too many for one call."""
    pending = session.transaction.rows_of(table)
    if pending is None:
        body, key = Body(session.spool, session.user, header_of(table)), session.settings.write_key or uuid.uuid4().hex
        pending = session.transaction.pending = Pending(table, body, key, [])
        pending.since = asyncio.get_running_loop().time()
    else:
        pending.copied = None
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
    return pending.body


def _is_large(pending: Pending, more: int = 0) -> bool:
    """Whether the rows, with so many bytes more, are too large for a call that has sections."""
    size = pending.body.size + more
    return len(pending.sections) > MIXED_SECTIONS or size > MIXED_BYTES or pending.header_size > HEADER_BYTES


def _sections(pending: Pending) -> Iterator[pb.WriteSection]:
    """The operations in order, without those that have no rows. Upserts that are too many for sections are one."""
    if not pending.has_kinds and _is_large(pending):
        yield pb.WriteSection(operation=pending.sections[0].operation, rows=pending.body.rows)
        return
    ends = [*(section.begin for section in pending.sections[1:]), pending.body.rows]
    for section, end in zip(pending.sections, ends, strict=True):
        if end > section.begin:
            yield pb.WriteSection(operation=section.operation, rows=end - section.begin, changed=section.changed)


def _placed(error: WireError, pending: Pending) -> WireError:
    """With the line of COPY's data, where the transaction is one COPY."""
    blocks, found = pending.copied, _ROW.match(str(error))
    if blocks is not None and found is not None and blocks.one_line_each:
        error.where = f"COPY {pending.table}, line {blocks.line_of(int(found[1]))}"
    return error
