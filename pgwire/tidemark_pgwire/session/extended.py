"""The extended protocol: prepared statements, and portals of them.

Parse ──► Prepared: the command, the types of its parameters
Bind ──► Bound: the values ──► Describe, Execute: its rows begin ──► suspended after max_rows, or complete
Sync: outside a transaction, all portals end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages import backend, frontend
from tidemark_pgwire.session.portal import Portal
from tidemark_pgwire.session.statements import Session, cursor, describe, open_rows, parameter_types, run
from tidemark_pgwire.statements import commands as sql
from tidemark_pgwire.statements.binding import parameter_count
from tidemark_pgwire.statements.commands import Command, parse
from tidemark_pgwire.statements.lexer import split
from tidemark_pgwire.values.parameters import UNKNOWN, Parameter, decoded, kind_of, null_of
from tidemark_pgwire.values.rows import Column
from tidemark_pgwire.values.types import TEXT

MAX_PREPARED, MAX_PREPARED_CHARACTERS, MAX_PORTALS = 1000, 4 << 20, 64
ROWS = (sql.Select, sql.Subscribe, sql.Explain)


@dataclass(frozen=True)
class Prepared:
    """`command` None: an empty statement. `types`: oids of the parameters; 0: of an untyped text. `dialect`: of its
    text."""

    sql: str
    command: Command | None
    types: tuple[int, ...]
    dialect: str


@dataclass
class Bound:
    """A portal. `rows`: once they have begun. `finished`: all were sent."""

    of: Prepared
    parameters: tuple[Parameter, ...]
    formats: tuple[int, ...]
    rows: Portal | None = None
    finished: bool = False

    async def close(self) -> None:
        if self.rows is not None and not isinstance(self.of.command, sql.Fetch):
            await self.rows.close()


class Extended:
    """The prepared statements and portals of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Bound] = {}

    async def parse(self, message: frontend.Parse) -> None:
        """Raises WireError."""
        if message.name and message.name in self._prepared:
            raise WireError(errors.DUPLICATE_STATEMENT, f'prepared statement "{message.name}" already exists')
        dialect = self._session.settings.dialect
        found = split(message.sql, dialect)
        if len(found) > 1:
            raise WireError(errors.SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")
        command = parse(found[0][0], dialect) if found else None
        self._require_usable(command)
        for oid in message.types:
            kind_of(oid)
        count = max(parameter_count(found[0][0], dialect) if found else 0, len(message.types))
        self._prepared.pop(message.name, None)
        self._require_room(len(message.sql))
        types = (*message.types, *[0] * (count - len(message.types)))
        self._prepared[message.name] = Prepared(message.sql, command, types, dialect)
        self._session.wire.write(backend.PARSE_COMPLETE)

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
        formats = message.formats or (backend.TEXT,)
        formats = formats * len(message.values) if len(formats) == 1 else formats
        parameters = tuple(map(decoded, prepared.types, formats, message.values))
        if message.portal and message.portal in {*self._portals, *self._session.cursors}:
            raise WireError(errors.DUPLICATE_CURSOR, f'cursor "{message.portal}" already exists')
        await self.close_portal(message.portal)
        if len(self._portals) >= MAX_PORTALS:
            raise WireError(errors.LIMIT_EXCEEDED, f"a session has at most {MAX_PORTALS} portals: close one")
        self._portals[message.portal] = Bound(prepared, parameters, message.results)
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
            wire.write(_description(columns))
        elif message.name in self._session.cursors:
            wire.write(cursor(self._session, message.name).description())
        else:
            bound = self._portal(message.name)
            self._require_usable(bound.of.command)
            rows = await self._rows(bound)
            wire.write(backend.NO_DATA if rows is None else rows.description())

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
            tag = await self.run(command, bound.parameters)
            session.wire.write(backend.command_complete(tag))
            return
        sent, more = 0, False
        if isinstance(command, sql.Fetch):
            sent = await fetch(session, rows, command.count)
        elif not bound.finished:
            sent, more = await rows.send(session.wire, message.max_rows)
            bound.finished = not more
        session.wire.write(backend.PORTAL_SUSPENDED if more else backend.command_complete(f"{rows.tag} {sent}"))

    async def run(self, command: Command, parameters: Sequence[Parameter] = ()) -> str:
        """A command without rows: its tag. Raises WireError."""
        match command:
            case sql.Deallocate(name):
                if name and name not in self._prepared:
                    raise WireError(errors.INVALID_STATEMENT, f'prepared statement "{name}" does not exist')
                self._forget(name)
                return "DEALLOCATE" if name else "DEALLOCATE ALL"
            case sql.Discard(what):
                if what == "ALL":
                    await self._discard()
                return f"DISCARD {what}"
        return await run(self._session, command, parameters)

    async def close(self, message: frontend.Close) -> None:
        """What does not exist is closed already."""
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

    # --- what the messages name ---

    def _statement(self, name: str) -> Prepared:
        if (found := self._prepared.get(name)) is None:
            raise WireError(errors.INVALID_STATEMENT, f'prepared statement "{name}" does not exist')
        if found.dialect != self._session.settings.dialect:
            raise WireError(errors.FEATURE_NOT_SUPPORTED, "the dialect is another one now: prepare the statement again")
        return found

    def _portal(self, name: str) -> Bound:
        if (found := self._portals.get(name)) is None:
            raise WireError(errors.INVALID_CURSOR, f'portal "{name}" does not exist')
        return found

    async def _rows(self, bound: Bound) -> Portal | None:
        """They begin once; None: the command has none."""
        session, command = self._session, bound.of.command
        if isinstance(command, ROWS) and bound.rows is None:
            answer = await open_rows(session, command, bound.parameters)
            bound.rows = Portal(answer, bound.formats, session.settings.zone)
        elif isinstance(command, sql.Fetch) and not command.move:
            bound.rows = cursor(session, command.name)
            bound.rows.reformat(bound.formats)
        return bound.rows

    async def _columns(self, prepared: Prepared) -> tuple[Column, ...] | None:
        """Parameters are NULL. Where an untyped one is refused, it is a text."""
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

    def _require_room(self, characters: int) -> None:
        used = sum(len(each.sql) for each in self._prepared.values())
        if len(self._prepared) >= MAX_PREPARED or used + characters > MAX_PREPARED_CHARACTERS:
            raise WireError(
                errors.LIMIT_EXCEEDED,
                f"a session has at most {MAX_PREPARED} prepared statements of {MAX_PREPARED_CHARACTERS} characters",
                hint="DEALLOCATE those that are not needed.",
            )

    def _forget(self, name: str) -> None:
        if name:
            del self._prepared[name]
        else:
            self._prepared.clear()

    async def _discard(self) -> None:
        if self._session.transaction.explicit:
            raise WireError("25001", "DISCARD ALL cannot run inside a transaction block")
        await self.close_portals()
        await self._session.close()
        self._session.settings.reset()
        self._prepared.clear()


async def fetch(session: Session, rows: Portal, count: int) -> int:
    """Send rows of a cursor; returns how many."""
    if not count:
        return 0
    sent, _ = await rows.send(session.wire, 0 if count == sql.ALL else count, waits=count == sql.ALL)
    return sent


def _description(columns: Sequence[Column] | None) -> bytes:
    return backend.NO_DATA if columns is None else backend.row_description([c.field(backend.TEXT) for c in columns])
