"""The extended protocol: prepared statements, and portals of them.

Parse ──► Prepared: the command, the types of its parameters
Bind ──► BoundStatement: the values ──► Describe, Execute: its rows begin ──► suspended after max_rows, or complete
Sync: outside a transaction, all portals end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from sys import getsizeof

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages import backend, frontend
from tidemark_pgwire.session import definitions, writes
from tidemark_pgwire.session.portal import Portal
from tidemark_pgwire.session.statements import (
    StatementSession,
    cursor,
    describe,
    is_endless,
    open_rows,
    parameter_types,
    run,
)
from tidemark_pgwire.statements import commands as sql
from tidemark_pgwire.statements.binding import has_local_times, parameter_count
from tidemark_pgwire.statements.binding import parameter_types as parameter_types_of
from tidemark_pgwire.statements.commands import Command, parse
from tidemark_pgwire.statements.definitions import Define, Drop
from tidemark_pgwire.statements.inserts import Write
from tidemark_pgwire.statements.lexer import split
from tidemark_pgwire.statements.prepared import parameters_of
from tidemark_pgwire.statements.words import MAX_NAME
from tidemark_pgwire.values.parameters import UNKNOWN, Parameter, decoded, kind_of, null_of
from tidemark_pgwire.values.rows import ResultColumn
from tidemark_pgwire.values.types import TEXT
from tidemark_pgwire.writes.body import by_thread

MAX_PREPARED, MAX_PORTALS = 1000, 64
MAX_BYTES = 4 << 20
"""The limit for the texts, types and values of all prepared statements and portals of a session."""
PREPARED_BYTES, PARAMETER_BYTES = 500, 150
"""The bytes of a prepared statement and of a parameter, besides their texts."""
ROWS = (sql.Select, sql.Subscribe, sql.Explain)
ROWS_OF_TEXT = (sql.Select, sql.Explain)
SYNC = b"S"
Shape = tuple[bytes, bytes]
"""Digests of the columns' oids and names."""


@dataclass(frozen=True)
class Prepared:
    """`command` None: an empty statement. `types`: oids of the parameters; 0: of an untyped text. `dialect`: of its
    text. `size`: bytes. `described`: the columns that the client knows by the last Describe; None: by none. `zone`: of
    its times without an offset; empty: it has none."""

    command: Command | None
    types: tuple[int, ...]
    dialect: str
    size: int
    described: Shape | None = None
    zone: str = ""


@dataclass
class BoundStatement:
    """A portal, of the statement `name`. `size`: bytes of the parameters. `rows`: once they have begun. `finished`: all
    were sent."""

    name: str
    of: Prepared
    parameters: tuple[Parameter, ...]
    formats: tuple[int, ...]
    size: int
    rows: Portal | None = None
    finished: bool = False

    async def close(self) -> None:
        if self.rows is not None and not isinstance(self.of.command, sql.Fetch):
            await self.rows.close()


class Extended:
    """The prepared statements and portals of one session."""

    def __init__(self, session: StatementSession) -> None:
        self._session = session
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, BoundStatement] = {}

    async def parse(self, message: frontend.Parse) -> None:
        """Raises WireError."""
        self._require_new(message.name)
        dialect = self._session.settings.dialect
        read = partial(_read, message.sql, dialect)
        command, count, known = await by_thread(self._session.spool, len(message.sql), read)
        self._require_usable(command)
        for oid in message.types:
            kind_of(oid)
        types = [*message.types, *[0] * (count - len(message.types))]
        for number, oid in known.items():
            types[number - 1] = types[number - 1] or oid
        self._keep(message.name, command, tuple(types), getsizeof(message.sql))
        self._session.wire.write(backend.PARSE_COMPLETE)

    def _keep(self, name: str, command: Command | None, types: tuple[int, ...], text: int) -> None:
        """`text`: bytes of the statement's. Raises WireError where the session has too many statements."""
        size = PREPARED_BYTES + 2 * text + getsizeof(name) + 36 * len(types)
        self._prepared.pop(name, None)
        if len(self._prepared) >= MAX_PREPARED:
            raise WireError(
                errors.LIMIT_EXCEEDED,
                f"a session has at most {MAX_PREPARED} prepared statements",
                hint="DEALLOCATE those that are not needed.",
            )
        self._require_room(size)
        settings = self._session.settings
        zone = settings.zone if has_local_times(command.sql if isinstance(command, ROWS_OF_TEXT) else "") else ""
        self._prepared[name] = Prepared(command, types, settings.dialect, size, zone=zone)

    def executed(self, command: Command) -> tuple[Command, tuple[Parameter, ...]]:
        """The statement that EXECUTE means, and its parameters; others are what they are. Raises WireError."""
        if not isinstance(command, sql.ExecuteStatement):
            return command, ()
        found = self._executable(command.name)
        assert found.command is not None
        return found.command, parameters_of(command.name, found.types, command.values)

    def _executable(self, name: str) -> Prepared:
        """A query, or a statement that writes: others may end the transaction, or are not to run beside others."""
        found = self._statement(name)
        if not isinstance(found.command, sql.Select | Write):
            text = f'EXECUTE runs queries, INSERT, UPDATE and DELETE, and "{name}" is none of them'
            raise WireError(errors.FEATURE_NOT_SUPPORTED, text, hint="Run the statement itself.")
        return found

    async def bind(self, message: frontend.Bind) -> None:
        """Raises WireError."""
        prepared = self._statement(message.statement)
        self._require_usable(prepared.command)
        if len(message.values) != len(prepared.types):
            name, given, wanted = message.statement, len(message.values), len(prepared.types)
            raise WireError(
                errors.PROTOCOL_VIOLATION,
                f'bind message supplies {given} parameters, but prepared statement "{name}" requires {wanted}',
            )
        _require_name(message.portal)
        if message.portal and message.portal in {*self._portals, *self._session.cursors}:
            raise WireError(errors.DUPLICATE_CURSOR, f'cursor "{message.portal}" already exists')
        await self.close_portal(message.portal)
        if len(self._portals) >= MAX_PORTALS:
            raise WireError(errors.LIMIT_EXCEEDED, f"a session has at most {MAX_PORTALS} portals: close one")
        size = sum(8 if each is None else PARAMETER_BYTES + 4 * len(each) for each in message.values)
        self._require_room(size)
        formats = message.formats or (backend.TEXT,)
        formats = formats * len(message.values) if len(formats) == 1 else formats
        if isinstance(prepared.command, Write):
            _require_types(prepared.types, formats, message.values)
        parameters = tuple(map(decoded, prepared.types, formats, message.values))
        if isinstance(prepared.command, sql.ExecuteStatement):
            command, parameters = self.executed(prepared.command)
            prepared = replace(prepared, command=command, types=self._executable(prepared.command.name).types)
            size = sum(PARAMETER_BYTES + 2 * getsizeof(each.text) for each in parameters)
            self._require_room(size)
        self._portals[message.portal] = BoundStatement(message.statement, prepared, parameters, message.results, size)
        self._session.wire.write(backend.BIND_COMPLETE)

    async def describe(self, message: frontend.Describe) -> None:
        """Raises WireError."""
        wire = self._session.wire
        if message.kind == b"S":
            prepared = self._statement(message.name)
            self._require_usable(prepared.command)
            types = await parameter_types(self._session, prepared.command, prepared.types)
            if types != prepared.types:
                prepared = self._prepared[message.name] = replace(prepared, types=types)
            wire.write(backend.parameter_description([oid or TEXT.oid for oid in types]))
            columns = await self._columns(prepared)
            self._prepared[message.name] = replace(prepared, described=_shape(columns))
            wire.write(_description(columns))
        elif message.name in self._session.cursors:
            wire.write(cursor(self._session, message.name).description())
        else:
            bound = self._portal(message.name)
            self._require_usable(bound.of.command)
            rows = await self._rows(bound, known=False)
            if rows is not None:
                self._remember(bound, rows)
            wire.write(backend.NO_DATA if rows is None else rows.description())

    def execute_at_hand(self, message: frontend.Execute) -> bool:
        """Run a query whose few rows are here already, as after Describe; False: `execute` does it. Raises
        WireError."""
        session, bound = self._session, self._portals.get(message.portal)
        if bound is None or bound.rows is None or bound.finished or message.max_rows:
            return False
        if not isinstance(bound.of.command, sql.Select):
            return False
        self._require_usable(bound.of.command)
        sent = bound.rows.send_at_hand(session.wire)
        if sent is None:
            return False
        bound.finished = True
        session.wire.write(backend.command_complete(f"{bound.rows.tag} {sent}"))
        return True

    async def execute(self, message: frontend.Execute) -> None:
        """Raises WireError."""
        session, bound = self._session, self._portal(message.portal)
        command = bound.of.command
        if command is None:
            session.wire.write(backend.EMPTY_QUERY)
            return
        self._require_usable(command)
        rows = await self._rows(bound)
        if rows is None:
            if isinstance(command, Write):
                if bound.finished:
                    raise WireError(errors.NOT_IN_STATE, f'portal "{message.portal}" cannot be run again')
                bound.finished = True
            tag = await self.run(command, bound.parameters)
            if session.transaction.is_last:
                following = await session.receive(session.wire.next_kind(), session.idle_limit)
                if following == SYNC:
                    tag = await writes.write(session, tag)  # an error of the write is this statement's
            session.wire.write(backend.command_complete(tag))
            return
        sent, more = 0, False
        if isinstance(command, sql.Fetch):
            sent = await fetch(session, rows, command.count)
        elif not bound.finished:
            sent, more = await rows.send(session.wire, message.max_rows)
            bound.finished = not more
        session.wire.write(backend.PORTAL_SUSPENDED if more else backend.command_complete(f"{rows.tag} {sent}"))

    def is_endless(self, portal: str) -> bool:
        """Whether its statement waits for changes."""
        found = self._portals.get(portal)
        return found is not None and is_endless(self._session, found.of.command)

    async def run(self, command: Command, parameters: Sequence[Parameter] = ()) -> str:
        """A command without rows: its tag. Raises WireError."""
        match command:
            case sql.Prepare(name, types, statement, text):
                self._require_new(name)
                self._keep(name, statement, types, text)
                return "PREPARE"
            case sql.Deallocate(name):
                if name and name not in self._prepared:
                    raise WireError(errors.INVALID_STATEMENT, f'prepared statement "{name}" does not exist')
                self._forget(name)
                return "DEALLOCATE" if name else "DEALLOCATE ALL"
            case sql.Discard(what):
                if what == "ALL":
                    await self._discard()
                return f"DISCARD {what}"
            case sql.Commit() if not self._session.transaction.failed:
                return await self._commit(command)
            case Write():
                return await writes.change(self._session, command, parameters)
            case sql.CopyIn():
                return await writes.copy(self._session, command)
            case Define():
                return await definitions.define(self._session, command, parameters)
            case Drop():
                return await definitions.drop(self._session, command, parameters)
        return await run(self._session, command, parameters)

    async def _commit(self, command: Command) -> str:
        """The rows of the transaction are written; where that fails, it is rolled back. Nothing is awaited after the
        write: where COMMIT is canceled, its outcome is the write's. Raises WireError."""
        try:
            await self._session.close_cursors_of_transaction()
            await writes.write(self._session)
        except BaseException:
            await run(self._session, sql.Rollback())
            raise
        return await run(self._session, command)

    async def close(self, message: frontend.Close) -> None:
        """Close a statement or portal. One that does not exist is closed already."""
        if message.kind == b"S":
            self._prepared.pop(message.name, None)
        elif message.name in self._session.cursors:
            await self._session.close_cursor(message.name)
        else:
            await self.close_portal(message.name)
        self._session.wire.write(backend.CLOSE_COMPLETE)

    async def close_portal(self, name: str) -> None:
        if (bound := self._portals.pop(name, None)) is not None:
            await bound.close()

    async def close_portals(self) -> None:
        for name in list(self._portals):
            await self.close_portal(name)

    # --- the statement or portal that a message names ---

    def _require_new(self, name: str) -> None:
        """Raises WireError."""
        _require_name(name)
        if name and name in self._prepared:
            raise WireError(errors.DUPLICATE_STATEMENT, f'prepared statement "{name}" already exists')

    def _statement(self, name: str) -> Prepared:
        if (found := self._prepared.get(name)) is None:
            raise WireError(errors.INVALID_STATEMENT, f'prepared statement "{name}" does not exist')
        if found.dialect != self._session.settings.dialect:
            raise WireError(errors.FEATURE_NOT_SUPPORTED, "the dialect is another one now: prepare the statement again")
        if found.zone not in ("", self._session.settings.zone):  # PostgreSQL has read its times already
            raise WireError(
                errors.FEATURE_NOT_SUPPORTED,
                f"the statement has times without an offset, and was prepared in the time zone {found.zone}",
                hint="Prepare the statement again, or write the times with their offsets.",
                routine="RevalidateCachedQuery",  # pgjdbc and asyncpg prepare anew by it
            )
        return found

    def _portal(self, name: str) -> BoundStatement:
        if (found := self._portals.get(name)) is None:
            raise WireError(errors.INVALID_CURSOR, f'portal "{name}" does not exist')
        return found

    async def _rows(self, bound: BoundStatement, known: bool = True) -> Portal | None:
        """The rows, which begin once; None: the command has none. `known`: the client reads them by the statement's
        Describe."""
        session, command = self._session, bound.of.command
        if isinstance(command, ROWS) and bound.rows is None:
            answer = await open_rows(session, command, bound.parameters)
            try:
                if known:
                    await self._require_described(bound.of, answer.columns)
                bound.rows = Portal(answer, bound.formats, session.settings.zone)
            except BaseException:
                await answer.close()
                raise
        elif isinstance(command, sql.Fetch) and not command.move:
            bound.rows = cursor(session, command.name)
            if known:
                await self._require_described(bound.of, bound.rows.columns)
            bound.rows.reformat(bound.formats)
        return bound.rows

    def _remember(self, bound: BoundStatement, rows: Portal) -> None:
        """The client knows these columns, of the portal and of its statement."""
        named = self._prepared.get(bound.name) is bound.of
        bound.of = replace(bound.of, described=_shape(rows.columns))
        if named:
            self._prepared[bound.name] = bound.of

    async def _require_described(self, prepared: Prepared, columns: Sequence[ResultColumn]) -> None:
        """Raises WireError where rows of these columns would be read by the description of others. In Spark's dialect
        a name may have the parameter's value in it: such names are compared with those of a new description."""
        known, found = prepared.described, _shape(columns)
        if known is None or known == found:
            return
        same_types = found is not None and known[0] == found[0]
        if prepared.types and same_types and _shape(await self._columns(prepared)) == known:
            return
        raise WireError(
            errors.FEATURE_NOT_SUPPORTED,
            "cached plan must not change result type",
            hint="The columns are others than those that were described: prepare the statement again.",
            routine="RevalidateCachedQuery",  # pgjdbc and asyncpg prepare anew by it
        )

    async def _columns(self, prepared: Prepared) -> tuple[ResultColumn, ...] | None:
        """Parameters are NULL. Where an untyped one is refused, it is a text."""
        if isinstance(prepared.command, sql.ExecuteStatement):
            prepared = self._executable(prepared.command.name)
        if prepared.command is None:
            return None
        parameters = tuple(map(null_of, prepared.types))
        try:
            return await describe(self._session, prepared.command, parameters)
        except WireError:
            if not any(oid in UNKNOWN for oid in prepared.types):
                raise
            typed = [replace(each, kind="text") if each.kind == "unknown" else each for each in parameters]
            return await describe(self._session, prepared.command, typed)

    def _require_usable(self, command: Command | None) -> None:
        if not isinstance(command, sql.Commit | sql.Rollback | None):
            self._session.transaction.require_usable()

    def _require_room(self, size: int) -> None:
        """Raises WireError where so many more bytes are too many."""
        used = sum(each.size for each in self._prepared.values()) + sum(each.size for each in self._portals.values())
        if used + size > MAX_BYTES:
            raise WireError(
                errors.LIMIT_EXCEEDED,
                f"the prepared statements and parameters of a session have at most {MAX_BYTES >> 20} MiB",
                hint="DEALLOCATE those that are not needed.",
            )

    def _forget(self, name: str) -> None:
        if name:
            del self._prepared[name]
        else:
            self._prepared.clear()

    async def _discard(self) -> None:
        if self._session.transaction.explicit or self._session.transaction.pending is not None:
            raise WireError("25001", "DISCARD ALL cannot run inside a transaction block")
        await self.close_portals()
        await self._session.close()
        self._session.settings.reset()
        self._prepared.clear()


def _read(text: str, dialect: str) -> tuple[Command | None, int, dict[int, int]]:
    """The command, how many parameters it has, and the oids of those whose type follows from their place. Raises
    WireError."""
    found = split(text, dialect)
    if len(found) > 1:
        raise WireError(errors.SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")
    if not found:
        return None, 0, {}
    words = found[0].tokens
    command = parse(found[0])
    if isinstance(command, sql.Prepare | sql.ExecuteStatement):  # their $n are those of another statement
        return command, 0, {}
    return command, parameter_count(words), parameter_types_of(words)


def _require_types(types: Sequence[int], formats: Sequence[int], values: Sequence[bytes | None]) -> None:
    """Raises WireError where a value in binary has no type: the bytes of a number would be read as a text."""
    for at, (oid, format, value) in enumerate(zip(types, formats, values, strict=False)):
        if not oid and format == backend.BINARY and value is not None:
            raise WireError(
                "42P18",
                f"could not determine data type of parameter ${at + 1}",
                hint="Give its type, describe the statement before values are bound, or send the value as text.",
            )


def _require_name(name: str) -> None:
    """Raises WireError."""
    if len(name) > MAX_NAME:
        raise WireError("42622", f"the name of a statement or portal has at most {MAX_NAME} characters")


async def fetch(session: StatementSession, rows: Portal, count: int) -> int:
    """Send rows of a cursor; returns how many."""
    if not count:
        return 0
    sent, _ = await rows.send(session.wire, 0 if count == sql.ALL else count, waits=count == sql.ALL)
    return sent


def _shape(columns: Sequence[ResultColumn] | None) -> Shape | None:
    if columns is None:
        return None
    oids, names = [column.type.oid for column in columns], [column.name for column in columns]
    return blake2b(repr(oids).encode()).digest(), blake2b(repr(names).encode()).digest()


def _description(columns: Sequence[ResultColumn] | None) -> bytes:
    return backend.NO_DATA if columns is None else backend.row_description([c.field(backend.TEXT) for c in columns])
