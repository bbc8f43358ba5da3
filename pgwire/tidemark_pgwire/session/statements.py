"""Runs one statement of a session.

text ──► command ──► a command of the session: done at once, with a tag
                ──► rows: the catalogue's, or the gateway's with the user's token ──► a portal
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from tidemark_pgwire import errors
from tidemark_pgwire.catalogue.facts import AnswerDescription, CatalogueRelation, SessionFacts
from tidemark_pgwire.catalogue.session_catalogue import Catalogue
from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, WireError
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.messages import backend
from tidemark_pgwire.messages.wire import Wire
from tidemark_pgwire.session import answers
from tidemark_pgwire.session.answers import StatementAnswer
from tidemark_pgwire.session.portal import Portal
from tidemark_pgwire.session.settings import IDLE, TRANSACTION, SessionSettings
from tidemark_pgwire.session.transaction import SessionTransaction
from tidemark_pgwire.session.transaction_lease import TOO_OLD, TOO_OLD_HINT, TransactionLease
from tidemark_pgwire.statements import commands as sql
from tidemark_pgwire.statements import definitions
from tidemark_pgwire.statements.binding import bind
from tidemark_pgwire.statements.commands import Command
from tidemark_pgwire.statements.inserts import Write
from tidemark_pgwire.statements.subjects import StatementSubject, subject_of
from tidemark_pgwire.values.parameters import RECEIVED, Parameter
from tidemark_pgwire.values.rows import ResultColumn, columns_of_oids
from tidemark_pgwire.values.types import TEXT, of_sql
from tidemark_pgwire.values.types import modifier as modifier_of
from tidemark_pgwire.writes.body import BodySpool, by_thread
from tidemark_pgwire.writes.cells import parameter_oids
from tidemark_pgwire.writes.table import WritableTable
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.types import Column as TableColumn
from tidemark_protocol.types import SqlType

RELATIONS_SECONDS = 1.0
"""The time for which a session uses a list of relations before it asks the gateway again."""
MAX_CURSORS = 64
T = TypeVar("T")
Done = str
"""The tag of a command that has no rows."""


@dataclass
class StatementSession:
    """State that the statements of one connection share. `idle_seconds`: how long rows wait for a client that sends
    nothing; `transaction_seconds`: how long they wait in all; 0: for ever. `is_writing`: while the call that writes its
    rows runs."""

    link: GatewayLink
    wire: Wire
    token: str = field(repr=False)
    facts: SessionFacts
    settings: SessionSettings
    spool: BodySpool
    idle_seconds: float = 0
    transaction_seconds: float = 0
    is_writing: bool = False
    transaction: SessionTransaction = field(default_factory=SessionTransaction)
    cursors: dict[str, tuple[Portal, bool]] = field(default_factory=dict)
    """Portals of DECLARE, and whether each outlives its transaction."""

    def __post_init__(self) -> None:
        self.catalogue, self.lease = Catalogue(self.facts), TransactionLease(self.link, self.token, self.namespace)
        self._relations: tuple[float, tuple[CatalogueRelation, ...]] = (0.0, ())
        self._table: tuple[float, tuple[str, str, str], WritableTable | None] = (0.0, ("", "", ""), None)

    @property
    def namespace(self) -> str:
        return self.facts.database

    @property
    def user(self) -> str:
        return self.facts.user

    async def relations(self) -> tuple[CatalogueRelation, ...]:
        """The relations that the user may see, a second old at most. Raises WireError."""
        asked, found = self._relations
        now = time.monotonic()
        if not asked or now - asked > RELATIONS_SECONDS:
            found = await self.link.relations(self.token, self.namespace)
            self._relations = (now, found)
        return found

    async def written_table(self, source: str, table: str, operation: str) -> WritableTable:
        """A table whose rows the user may write by the operation, as it was a second ago at most. Raises
        WireError."""
        asked, name, found = self._table
        now = time.monotonic()
        if found is None or name != (source, table, operation) or now - asked > RELATIONS_SECONDS:
            asked_for = {"source": source, "table": table, "operation": operation}
            request = pb.DescribeTableRequest(namespace=self.namespace, **asked_for)
            reply = await self.link.table(self.token, request)
            described = zip(reply.column_names, reply.column_types, strict=True)
            columns = tuple(TableColumn(name, SqlType.parse(type)) for name, type in described)
            found = WritableTable(source, reply.table, columns, tuple(reply.primary_key), reply.table_id)
            self._table = (now, (source, table, operation), found)
        return found

    def forget_table(self) -> None:
        """The next statement asks for its table again: it may have changed."""
        self._table = (0.0, ("", "", ""), None)

    @property
    def idle_limit(self) -> float | None:
        """The seconds for which the client may send nothing between statements; None: for ever."""
        waits = self.transaction.pending is not None
        limits = (
            self.idle_seconds if waits else None,
            self.settings.seconds(IDLE) if waits or self.transaction.explicit else None,
        )
        return min((each for each in limits if each), default=None)

    def transaction_left(self, begins: bool = False) -> float | None:
        """The seconds that the transaction may still last, at most; None: for ever. `begins`: what has not begun yet
        does so now."""
        now, rows = asyncio.get_running_loop().time(), self.transaction.pending
        limits = (
            (self.settings.seconds(TRANSACTION), self.transaction.since),
            (self.transaction_seconds, rows.since if rows is not None else None),
        )
        begun = [
            (limit, now if since is None else since)
            for limit, since in limits
            if limit and (begins or since is not None)
        ]
        left = [limit - (now - since) for limit, since in begun]
        return max(min(left), 0.0) if left else None

    async def receive(self, coming: Awaitable[T], limit: float | None) -> T:
        """The client's next message. Raises WireError where the client sends nothing for `limit` seconds."""
        if limit is None:
            return await coming
        try:
            async with asyncio.timeout(limit):
                return await coming
        except TimeoutError:
            raise errors.idle() from None

    async def receive_parts(self, size: int, limit: float | None) -> AsyncIterator[bytes]:
        """The next bytes of the message whose head was read. Raises as `receive`, for each part."""
        parts = self.wire.read_parts(size)
        while part := await self.receive(anext(parts, b""), limit):
            yield part

    def notify(self, text: str, sqlstate: str = "00000") -> None:
        self.wire.write(backend.notice(text, sqlstate))

    def warn(self, text: str, sqlstate: str = "01000") -> None:
        self.wire.write(backend.notice(text, sqlstate, "WARNING"))

    def require_writable(self, tag: str) -> None:
        """Raises WireError."""
        if self.settings.read_only:
            raise WireError(errors.READ_ONLY, f"cannot execute {tag} in a read-only transaction")

    def forget_relations(self) -> None:
        """The session changed them."""
        self._relations = (0.0, ())
        self.forget_table()

    async def close(self) -> None:
        """End the cursors and the lease, and forget rows that wait."""
        self.transaction.forget_rows()
        self.lease.end()
        await self.close_cursors()

    async def close_cursors(self) -> None:
        for name in list(self.cursors):
            await self.close_cursor(name)

    async def close_cursor(self, name: str) -> None:
        portal, _ = self.cursors.pop(name)
        await portal.close()

    def fail_transaction(self) -> None:
        """A statement failed. The transaction lets go of what it holds where nothing more is read in it."""
        self.transaction.fail()
        if self.transaction.is_over:
            self.lease.end()

    async def end_transaction(self) -> None:
        self.transaction.end()
        self.lease.end()
        await self.close_cursors_of_transaction()

    async def close_cursors_of_transaction(self) -> None:
        for name, (_, hold) in list(self.cursors.items()):
            if not hold:
                await self.close_cursor(name)


async def open_rows(
    session: StatementSession, command: sql.Source | sql.Explain, parameters: Sequence[Parameter]
) -> StatementAnswer:
    """The rows of a query, SUBSCRIBE or EXPLAIN. Raises WireError."""
    if isinstance(command, sql.Subscribe):
        session.transaction.require_no_rows()
        with _positions(None):
            subscription = await _subscribe_request(session, command, parameters)
            return await answers.subscribe(session.link, session.token, subscription)
    at = None if parameters else command.at
    dialect = session.settings.planned_dialect
    if isinstance(command, sql.Explain):
        with _positions(at):
            if command.define is not None and parameters:
                raise WireError(FEATURE_NOT_SUPPORTED, f"{command.define.tag} takes no parameters: write the values")
            subject = await _bound(session, command.sql, parameters)
            definition = None if command.define is None else definition_request(session, command.define)
            request = pb.ExplainRequest(
                namespace=session.namespace, subject=subject, dialect=dialect, definition=definition
            )
            text = await session.link.explain(session.token, request)
        return answers.texts("QUERY PLAN", text.rstrip("\n").split("\n"))
    if _is_answered_here(session, command.sql):
        return await _of_catalogue(session, command.sql, parameters)
    session.transaction.require_no_rows()
    with _positions(at):
        return await _query(session, await query_request(session, command.sql, parameters))


def definition_request(session: StatementSession, command: definitions.Define) -> Any:
    """The gateway's request for a definition, which waits for nothing."""
    return pb.DefineRequest(
        namespace=session.namespace,
        name=command.name,
        action=command.action,
        kind=command.kind,
        sql=command.sql,
        dialect=session.settings.dialect,
        key=command.key,
        options={name: value for name, value in command.options.items() if name != "wait"},
        if_absent=command.optional_column or (command.optional and command.action in _NEW),
        if_present=command.optional and command.action == definitions.REPLACE,
        id=uuid.uuid4().hex,
        columns=[
            pb.TableColumn(name=name, type=type, required=name in command.required)
            for name, type in command.columns.items()
        ],
        table=command.table,
        instance=session.settings.instance,
    )


_NEW = (definitions.CREATE, definitions.ADD)


async def _query(session: StatementSession, request: pb.QueryRequest) -> StatementAnswer:
    """The answer, whose time is that of the transaction, and held for it. Raises WireError."""
    transaction, as_of = session.transaction, request.as_of if request.HasField("as_of") else None
    is_leased = transaction.explicit and transaction.as_of in (None, as_of)
    if is_leased:
        request.lease = session.lease.ask()
    try:
        answer = await answers.query(session.link, session.token, request)
    except WireError as error:
        if error.sqlstate == TOO_OLD and as_of is not None and as_of == transaction.as_of:
            error.hint = error.hint or TOO_OLD_HINT
        raise
    if is_leased and (refused := session.lease.take(answer.header)):
        session.warn(f"the time of this transaction is not held: {refused}")
    transaction.pin(answer.header.as_of)
    return answer


async def describe(
    session: StatementSession, command: Command, parameters: Sequence[Parameter]
) -> tuple[ResultColumn, ...] | None:
    """The columns of a statement that does not run yet; None: it has no rows. Raises WireError."""
    match command:
        case sql.Explain():
            return (ResultColumn("QUERY PLAN", TEXT),)
        case sql.Fetch(name, _, False) if name in session.cursors:
            return session.cursors[name][0].columns
        case sql.Select(text) if _is_answered_here(session, text):
            found_here = await _described(session, text)
            return columns_of_oids(found_here.names, found_here.oids)
        case sql.Select(text):
            request = await query_request(session, text, parameters)
            with _positions(None if parameters else command.at):
                found = await session.link.describe(session.token, request)
            return tuple(ResultColumn(each.name, of_sql(each.type), modifier_of(each.type)) for each in found)
        case sql.Subscribe():
            answer = await open_rows(session, command, parameters)
            await answer.close()
            return answer.columns
    return None


@contextmanager
def _positions(at: int | None) -> Iterator[None]:
    """Positions of errors count in the client's text. `at`: how many characters further than in the gateway's; None:
    the gateway's text is another one, as with literals in the place of parameters."""
    try:
        yield
    except WireError as error:
        if error.position:
            error.position = 0 if at is None else error.position + at
        raise


async def query_request(session: StatementSession, text: str, parameters: Sequence[Parameter]) -> pb.QueryRequest:
    settings, dialect = session.settings, session.settings.planned_dialect
    as_of = settings.as_of if settings.as_of is not None else session.transaction.as_of
    return pb.QueryRequest(
        namespace=session.namespace,
        sql=await _bound(session, text, parameters),
        as_of=as_of,
        instance=settings.instance,
        strict=settings.strict and as_of is None,
        dialect=dialect,
    )


async def run(session: StatementSession, command: Command, parameters: Sequence[Parameter] = ()) -> Done:
    """A command that gives no rows of its own: its tag. Raises WireError."""
    match command:
        case sql.Begin() | sql.Commit() | sql.Rollback() | sql.Savepoint() | sql.Release():
            return await _transact(session, command)
        case sql.SetTo(name, value, local):
            session.settings.set(name, value, local)
            return "SET"
        case sql.Reset(name):
            session.settings.reset(name)
            return "RESET"
        case sql.Declare():
            return await _declare(session, command, parameters)
        case sql.CloseCursor(name):
            return await _close_cursor(session, name)
        case sql.Fetch(name, count, _):
            portal = cursor(session, name)
            skipped = await portal.skip(0 if count == sql.ALL else count) if count else 0
            return f"MOVE {skipped}"
        case sql.CopyOut():
            return await _copy(session, command, parameters)
        case sql.Nothing(tag):
            return tag
    raise WireError(errors.INTERNAL_ERROR, f"{type(command).__name__} has no rows and is no command")


def is_endless(session: StatementSession, command: Command | None) -> bool:
    """Whether the command waits for changes of what it reads."""
    match command:
        case sql.Subscribe() | sql.CopyOut(sql.Subscribe()):
            return True
        case sql.Fetch(name) if name in session.cursors:
            return session.cursors[name][0].answer.endless
    return False


def cursor(session: StatementSession, name: str) -> Portal:
    """Raises WireError."""
    if name not in session.cursors:
        raise WireError(errors.INVALID_CURSOR, f'cursor "{name}" does not exist')
    return session.cursors[name][0]


async def _bound(session: StatementSession, text: str, parameters: Sequence[Parameter]) -> str:
    if not parameters:
        return text
    return await by_thread(session.spool, len(text), partial(bind, text, session.settings.dialect, parameters))


async def _subscribe_request(
    session: StatementSession, command: sql.Subscribe, parameters: Sequence[Parameter]
) -> pb.SubscribeRequest:
    dialect, as_of = session.settings.planned_dialect, command.as_of
    return pb.SubscribeRequest(
        namespace=session.namespace,
        subject=await _bound(session, command.subject, parameters),
        instance=session.settings.instance,
        as_of=as_of if as_of is not None else session.settings.as_of,
        up_to=command.up_to,
        without_snapshot=not command.snapshot,
        dialect=dialect,
        parts=True,
    )


def _is_answered_here(session: StatementSession, text: str) -> bool:
    """Whether the session or the catalogue answers, and not the gateway."""
    return subject_of(text, session.settings.dialect) is not StatementSubject.ROWS


async def _relations_for(session: StatementSession, text: str) -> tuple[CatalogueRelation, ...]:
    """The user's relations; none where the statement cannot be about them. Raises WireError."""
    if subject_of(text, session.settings.dialect) is StatementSubject.SESSION:
        return ()
    return await session.relations()


async def _of_catalogue(session: StatementSession, text: str, parameters: Sequence[Parameter]) -> StatementAnswer:
    relations = await _relations_for(session, text)
    found = await session.catalogue.answer(text, [each.text for each in parameters], relations)
    return answers.table(found.rows, columns_of_oids(found.rows.column_names, found.oids))


async def _described(session: StatementSession, text: str) -> AnswerDescription:
    return await session.catalogue.describe(text, await _relations_for(session, text))


async def parameter_types(
    session: StatementSession, command: Command | None, types: tuple[int, ...]
) -> tuple[int, ...]:
    """The types that the client did not say, as far as the catalogue infers them. Raises WireError."""
    if isinstance(command, Write) and not all(types):
        table = await session.written_table(command.table.source, command.table.table, command.operation)
        cells = len(command.rows) * len(command.rows[0])
        inferred = await by_thread(session.spool, cells, partial(parameter_oids, table, command))
        return tuple(given or inferred.get(number, TEXT.oid) for number, given in enumerate(types, 1))
    if all(types) or not isinstance(command, sql.Select) or not _is_answered_here(session, command.sql):
        return types
    found = (await _described(session, command.sql)).parameters
    pairs = zip_longest(types, found[: len(types)], fillvalue=0)
    return tuple(given or (oid if oid in RECEIVED else TEXT.oid) for given, oid in pairs)


async def _transact(session: StatementSession, command: Command) -> Done:
    transaction, settings = session.transaction, session.settings
    match command:
        case sql.Begin(tag, read_only):
            if transaction.explicit:
                session.warn("there is already a transaction in progress", "25001")
            else:
                transaction.begin()
                settings.begin(read_only)
            return tag
        case sql.Commit():
            failed = transaction.failed
            if not transaction.explicit:
                session.warn("there is no transaction in progress", errors.NO_ACTIVE_TRANSACTION)
            settings.rollback() if failed else settings.commit()
            await session.end_transaction()
            return "ROLLBACK" if failed else "COMMIT"
        case sql.Rollback(""):
            if not transaction.explicit:
                session.warn("there is no transaction in progress", errors.NO_ACTIVE_TRANSACTION)
            settings.rollback()
            await session.end_transaction()
        case sql.Rollback(to):
            await transaction.rollback_to(to)
        case sql.Savepoint(name):
            transaction.savepoint(name)
            return "SAVEPOINT"
        case sql.Release(name):
            transaction.release(name)
            return "RELEASE"
    return "ROLLBACK"


async def _declare(session: StatementSession, command: sql.Declare, parameters: Sequence[Parameter]) -> Done:
    if not (session.transaction.explicit or command.hold):
        raise WireError(errors.NO_ACTIVE_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks")
    if command.name in session.cursors:
        raise WireError(errors.DUPLICATE_CURSOR, f'cursor "{command.name}" already exists')
    if len(session.cursors) >= MAX_CURSORS:
        raise WireError(errors.LIMIT_EXCEEDED, f"a session has at most {MAX_CURSORS} cursors: close one")
    answer = await open_rows(session, command.source, parameters)
    session.cursors[command.name] = Portal(answer, (), session.settings.zone, "FETCH"), command.hold
    return "DECLARE CURSOR"


async def _close_cursor(session: StatementSession, name: str) -> Done:
    if not name:
        await session.close_cursors()
        return "CLOSE CURSOR ALL"
    cursor(session, name)
    await session.close_cursor(name)
    return "CLOSE CURSOR"


async def _copy(session: StatementSession, command: sql.CopyOut, parameters: Sequence[Parameter]) -> Done:
    answer = await open_rows(session, command.source, parameters)
    portal = Portal(answer, (), session.settings.zone)
    try:
        sent = await portal.copy(session.wire, command.options)
    finally:
        await portal.close()
    return f"COPY {sent}"
