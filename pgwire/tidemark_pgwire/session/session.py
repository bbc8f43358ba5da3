"""The loop over the messages of one connection.

    Query ──► each statement in turn ──► ReadyForQuery
    Parse, Bind, Describe, Execute, Close ──► an error? what follows is left out until Sync ──► ReadyForQuery

A statement runs in a task of its own, which ends with the statement's time, with a cancel request, or with the client.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext
from typing import Any, Protocol, TypeVar

from tidemark_pgwire import errors
from tidemark_pgwire.catalogue.facts import SessionFacts
from tidemark_pgwire.errors import ConnectionClosed, WireError
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.gateway_errors import GATEWAY_SILENT
from tidemark_pgwire.messages import backend, frontend
from tidemark_pgwire.messages.frontend import Cancel, Message, decode
from tidemark_pgwire.messages.wire import CLOSE_SECONDS, COPY_DATA, Wire
from tidemark_pgwire.session import definitions, writes
from tidemark_pgwire.session.extended import ROWS, Extended, fetch
from tidemark_pgwire.session.portal import Portal
from tidemark_pgwire.session.settings import STATEMENT, SessionSettings
from tidemark_pgwire.session.startup import Login, ask_token, log_in, negotiate, require_confidential
from tidemark_pgwire.session.statements import StatementSession, cursor, is_endless, open_rows
from tidemark_pgwire.statements import commands as sql
from tidemark_pgwire.statements.commands import Command, parse
from tidemark_pgwire.statements.definitions import Define, Drop
from tidemark_pgwire.statements.lexer import Statement, split
from tidemark_pgwire.writes.body import LONG, SPOOL_BYTES, BodySpool, by_thread

LOG = logging.getLogger(__name__)
T = TypeVar("T")
MAX_MESSAGE_BYTES = 1 << 20
"""A statement of the gateway has 128 Ki characters; the rest is room for parameters."""


@dataclass(frozen=True)
class SessionLimits:
    """`statement_seconds`: of a statement, SUBSCRIBE excepted; `stall_seconds`: how long a client may read nothing;
    `start_seconds`: from the first byte to the password; `token_seconds`: between looks at the token. `connections`: of
    users who logged in; `user_connections`: of each, 0: a tenth, at least 20; `starting`: before the password.
    `write_bytes`: of rows that are not committed yet, on disk; `idle_seconds`: how long they wait for a client that
    sends nothing, `transaction_seconds`: how long they wait in all, 0: for ever."""

    connections: int = 1000
    statement_seconds: float = 3600.0
    stall_seconds: float = 60.0
    start_seconds: float = 10.0
    token_seconds: float = 60.0
    user_connections: int = 0
    starting: int = 256
    write_bytes: int = SPOOL_BYTES
    idle_seconds: float = 600.0
    transaction_seconds: float = 7200.0

    @property
    def of_user(self) -> int:
        return self.user_connections or max(self.connections // 10, 20)


class ConnectionHost(Protocol):
    """The part of the server that a connection needs."""

    limits: SessionLimits
    link: GatewayLink
    spool: BodySpool
    plain_allowed: bool
    tls: Callable[[], SSLContext] | None

    def cancel(self, asked: Cancel) -> None: ...

    def require_room(self) -> None: ...

    def authenticate(self, connection: ClientConnection) -> None: ...

    def enter(self, connection: ClientConnection, user: str) -> None: ...


class ClientConnection:
    """`pid`, `secret`: what a cancel request must have."""

    def __init__(self, server: ConnectionHost, wire: Wire, pid: int, secret: int) -> None:
        self._server, self._wire, self.pid, self.secret = server, wire, pid, secret
        self._running: asyncio.Task[Any] | None = None
        self._canceled = False
        self._skipping = False
        self._session: StatementSession | None = None
        self._ending: WireError | None = None
        """The reason why the connection ends, once it is known."""

    async def serve(self) -> None:
        """Serve until the client goes, or sends what is no message."""
        watch: asyncio.Task[None] | None = None
        try:
            login = await self._begin()
            if login is None:
                return
            self._session = self._opened(login)
            self._greet(self._session)
            watch = asyncio.create_task(self._watch_token(login), name="token of a session")
            await self._loop(self._session)
        except TimeoutError:
            self._send(WireError(errors.INVALID_AUTHORIZATION, "the connection was not begun in time", fatal=True))
        except WireError as error:
            error.fatal = True
            self._send(self._ending or error)
        except ConnectionClosed:
            pass
        except Exception:
            LOG.exception("a connection ends by a defect")
            self._send(WireError(errors.INTERNAL_ERROR, "a defect: the server's log has it", fatal=True))
        finally:
            if watch is not None:
                watch.cancel()
            if self._session is not None:
                self._session.transaction.forget_rows()  # first: they hold room of others
                await self._extended.close_portals()
                await self._session.close()
            await self._wire.close()

    def cancel(self) -> None:
        """End the statement that runs."""
        if self._running is not None:
            self._canceled = True
            self._running.cancel()

    def abort(self) -> None:
        """End the connection without a message."""
        self._wire.abort()

    def end(self, error: WireError) -> None:
        """Send the client the reason, and end the connection. A statement that runs is canceled, unless its call writes
        rows: they may be durable, so the client has its outcome before the reason."""
        error.fatal = True
        self._ending = error
        if self._running is None:
            self._send(error)
            self._wire.finish()
        elif self._session is None or not self._session.is_writing:
            self._running.cancel()

    # --- the start ---

    async def _begin(self) -> Login | None:
        server = self._server
        async with asyncio.timeout(server.limits.start_seconds):
            start = await negotiate(self._wire, server.tls)
            if isinstance(start, Cancel):
                server.cancel(start)
                return None
            require_confidential(self._wire, server.plain_allowed)
            server.require_room()
            given = await ask_token(self._wire, start)
        server.authenticate(self)
        login = await log_in(given, server.link)
        server.enter(self, login.user)
        return login

    def _opened(self, login: Login) -> StatementSession:
        settings = SessionSettings(login.user, login.settings)
        facts = SessionFacts(login.user, login.namespace, self.pid, self._wire.peer, settings.values)
        server = self._server
        times = server.limits.idle_seconds, server.limits.transaction_seconds
        session = StatementSession(server.link, self._wire, login.token, facts, settings, server.spool, *times)
        self._extended = Extended(session)
        return session

    def _greet(self, session: StatementSession) -> None:
        self._reported = session.settings.reported()
        status = b"".join(backend.parameter_status(name, value) for name, value in self._reported.items())
        key = backend.backend_key(self.pid, self.secret)
        self._wire.write(backend.AUTHENTICATION_OK + status + key + backend.ready_for_query(b"I"))

    async def _watch_token(self, login: Login) -> None:
        """The gateway checks it with each call; this ends sessions that make none."""
        while True:
            await asyncio.sleep(self._server.limits.token_seconds * random.uniform(0.8, 1.0))
            try:
                await self._server.link.user(login.token)
            except WireError as error:
                if error.sqlstate == errors.INVALID_AUTHORIZATION:
                    what = "password" if login.by_password else "token"
                    self.end(WireError(errors.INVALID_AUTHORIZATION, f"the {what} is not valid any more: connect anew"))
                    return

    # --- messages ---

    async def _loop(self, session: StatementSession) -> None:
        while True:
            message = await self._next_in_time(session)
            if isinstance(message, frontend.Terminate):
                return
            if (self._skipping or self._ending is not None) and not isinstance(message, frontend.Sync):
                continue
            try:
                await self._handle(session, message)
            except WireError as error:
                if error.fatal:
                    raise
                session.fail_transaction()
                self._send(error)
                if isinstance(message, frontend.Query):
                    self._report_ready(session)
                else:
                    self._skipping = True
            if not self._wire.has_room:
                await self._wire.drain()
            answered = isinstance(message, frontend.Query | frontend.Sync)  # to ReadyForQuery
            if self._ending is not None and (answered or not self._wire.has_received):
                self._wire.send()  # apart from the reason: libpq forgets what it has read together with the end
                raise self._ending

    async def _next_in_time(self, session: StatementSession) -> Message:
        """Raises WireError where the client sends nothing for too long, or its transaction lasts for too long."""
        if self._ending is not None:
            return await self._next(session, CLOSE_SECONDS)
        left, idle = session.transaction_left(), session.idle_limit
        if left is None and idle is None:
            frame = await self._wire.next_frame(MAX_MESSAGE_BYTES)
        else:
            frame = self._wire.frame_at_hand(MAX_MESSAGE_BYTES)
        if frame is not None:
            return decode(*frame)
        try:
            async with asyncio.timeout(left):
                return await self._next(session, idle)
        except TimeoutError:
            raise errors.late_transaction() from None

    async def _next(self, session: StatementSession, limit: float | None) -> Message:
        """`limit`: how many seconds the client may send nothing."""
        while True:
            async for _ in session.receive_parts(self._wire.unread, limit):  # data of a COPY that was refused
                pass
            kind, size = await session.receive(self._wire.head(MAX_MESSAGE_BYTES), limit)
            if kind != COPY_DATA:
                return decode(kind, b"".join([part async for part in session.receive_parts(size, limit)]))

    async def _handle(self, session: StatementSession, message: Message) -> None:
        extended = self._extended
        match message:
            case frontend.Query(text):
                await self._simple(session, text)
                self._report_ready(session)
            case frontend.Parse(_, text) if len(text) > LONG:
                await self._limited(session, extended.parse(message))
            case frontend.Parse():
                await extended.parse(message)
            case frontend.Bind():
                await extended.bind(message)
            case frontend.Describe():
                await self._limited(session, extended.describe(message))
            case frontend.Execute() if extended.execute_at_hand(message):
                pass
            case frontend.Execute():
                await self._limited(session, extended.execute(message), extended.is_endless(message.portal))
            case frontend.Close():
                await extended.close(message)
            case frontend.Sync():
                await self._sync(session)

    async def _sync(self, session: StatementSession) -> None:
        """The end of the statements since the last one: outside a transaction block their rows are written."""
        self._skipping = False
        if not session.transaction.explicit:
            try:
                if session.transaction.is_last:
                    await self._limited(session, writes.write(session))
            except WireError as error:
                if error.fatal:
                    raise
                session.fail_transaction()
                self._send(error)
            await self._extended.close_portals()
        self._report_ready(session)

    async def _simple(self, session: StatementSession, text: str) -> None:
        await self._extended.close_portal("")
        found = await self._read(session, len(text), partial(split, text, session.settings.dialect))
        if not found:
            if session.transaction.is_last:
                await self._limited(session, writes.write(session))
            self._wire.write(backend.EMPTY_QUERY)
        for statement in found:
            try:
                _require_dialect(session, statement)
                command = await self._read(session, len(statement.sql), partial(parse, statement))
                last = statement is found[-1]
                if len(found) > 1 and isinstance(command, Define | Drop):
                    raise definitions.not_alone(command.tag)
                await self._limited(session, self._statement(session, command, last), is_endless(session, command))
            except WireError as error:
                error.position += statement.at if error.position else 0
                raise
            await self._wire.drain()

    async def _read(self, session: StatementSession, size: int, work: Callable[[], T]) -> T:
        """The result of `work` on a text of `size` characters: within the time of a statement, where a thread reads
        it."""
        return work() if size <= LONG else await self._limited(session, by_thread(session.spool, size, work))

    async def _statement(self, session: StatementSession, command: Command, last: bool) -> None:
        """`last`: of its message, which writes the rows of them all, outside a transaction block."""
        if isinstance(command, sql.ExecuteStatement):
            session.transaction.require_usable()
        command, parameters = self._extended.executed(command)
        if not isinstance(command, sql.Commit | sql.Rollback):
            session.transaction.require_usable()
        wire = self._wire
        if isinstance(command, sql.Fetch) and not command.move:
            portal = cursor(session, command.name)
            portal.reformat(())
            wire.write(portal.description())
            sent = await fetch(session, portal, command.count)
            wire.write(backend.command_complete(f"FETCH {sent}"))
        elif isinstance(command, ROWS):
            portal = Portal(await open_rows(session, command, parameters), (), session.settings.zone)
            try:
                wire.write(portal.description())
                sent, _ = await portal.send(wire)
                wire.write(backend.command_complete(f"{portal.tag} {sent}"))
            finally:
                await portal.close()
        else:
            tag = await self._extended.run(command, parameters)
            if last and session.transaction.is_last:
                tag = await writes.write(session, tag)
            wire.write(backend.command_complete(tag))
            return
        if last and session.transaction.is_last:
            await writes.write(session)

    # --- the time of a statement ---

    async def _limited(self, session: StatementSession, work: Coroutine[Any, Any, T], endless: bool = False) -> T:
        """The result of `work`. `endless`: the session's own limit alone holds. Raises WireError where the statement or
        its transaction takes too long, where it is canceled, or the connection ends; ConnectionClosed where its client
        goes."""
        if self._ending is not None:
            work.close()
            raise self._ending
        limits = (session.settings.seconds(STATEMENT), None if endless else self._server.limits.statement_seconds)
        limit = min((each for each in limits if each), default=None)
        if session.transaction.since is None:
            session.transaction.since = asyncio.get_running_loop().time()
        self._running = task = asyncio.create_task(work, name="statement")
        late: WireError | None = None
        try:
            late = await self._until_late(session, task, limit)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        finally:
            self._running = None
            canceled, self._canceled = self._canceled, False
            task.cancel()
        if self._wire.lost.done():
            _forget(task)
            raise ConnectionClosed
        if task.cancelled():
            if self._ending is not None:
                raise self._ending
            if canceled:
                raise WireError(errors.QUERY_CANCELED, "canceling statement due to user request")
            raise late or WireError(errors.CANNOT_CONNECT_NOW, GATEWAY_SILENT, hint="Its call was ended: ask again.")
        return task.result()

    async def _until_late(
        self, session: StatementSession, task: asyncio.Task[Any], limit: float | None
    ) -> WireError | None:
        """Wait until the statement or its client ends, or a limit of time; returns the error of that. The limit of the
        transaction does not end a call that writes its rows, which has an end of its own: its outcome counts."""
        clock = asyncio.get_running_loop().time
        end = None if limit is None else clock() + limit
        while True:
            of_transaction = None if session.is_writing else session.transaction_left(begins=True)
            of_statement = None if end is None else max(end - clock(), 0.0)
            left = min((each for each in (of_statement, of_transaction) if each is not None), default=None)
            await asyncio.wait({task, self._wire.lost}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done() or self._wire.lost.done():
                return None
            if end is not None and clock() >= end:
                return WireError(errors.QUERY_CANCELED, "canceling statement due to statement timeout")
            if session.transaction_left() == 0 and not session.is_writing:
                return errors.late_transaction()

    # --- messages to the client ---

    def _send(self, error: WireError) -> None:
        self._wire.write(backend.error(error))

    def _report_ready(self, session: StatementSession) -> None:
        """Tell the client which settings have changed, and that the session is ready for a query."""
        if not session.transaction.explicit:
            session.transaction.since = None
        now = session.settings.reported()
        for name, value in now.items():
            if value != self._reported[name]:
                self._wire.write(backend.parameter_status(name, value))
        self._reported = now
        self._wire.write(backend.ready_for_query(session.transaction.state))


def _require_dialect(session: StatementSession, statement: Statement) -> None:
    """Raises WireError where an earlier statement of the message changed the rules that the client escaped texts by."""
    if statement.dialect != session.settings.dialect and "\\" in statement.sql:
        raise WireError(
            errors.FEATURE_NOT_SUPPORTED,
            "the message changes the dialect before a statement with a backslash, which would mean something else",
            hint="Send SET dialect in a message of its own.",
        )


def _forget(task: asyncio.Task[Any]) -> None:
    """Take the outcome of a statement whose client is gone, or asyncio would log it."""
    if not task.cancelled():
        task.exception()
