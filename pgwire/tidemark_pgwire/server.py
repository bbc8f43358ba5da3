"""The listener: connections, their number, cancel requests, and the certificate, which is read when it changes."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import secrets
import ssl
import time
from pathlib import Path

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.messages.frontend import Cancel
from tidemark_pgwire.messages.wire import Wire
from tidemark_pgwire.session.session import ClientConnection, SessionLimits
from tidemark_pgwire.session.startup import ALPN
from tidemark_pgwire.writes.body import BodySpool

LOG = logging.getLogger(__name__)
BACKLOG = 512
STOP_SECONDS = 5.0
START_PATIENCE_SECONDS = 1.0
"""The time that a connection may take to start before a newer one takes its place."""
Version = tuple[int, ...]


class ListenerRefused(Exception):
    """The options would let others read tokens, or name files that cannot be used."""


class ServerCertificate:
    """The TLS context of PEM files; a changed file makes another one. Where the new files cannot be read, the context
    of the old ones stays."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises ListenerRefused."""
        self._files = certificate, key
        try:
            self._version, self._context = self._look(), _context(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise ListenerRefused(f"{certificate} and {key} are no certificate and key: {error}") from None

    def context(self) -> ssl.SSLContext:
        try:
            version = self._look()
            if version != self._version:
                self._context, self._version = _context(*self._files), version
                LOG.info("the certificate was read anew")
        except (OSError, ssl.SSLError) as error:
            LOG.warning("the new certificate cannot be used, the old one stays: %s", error)
        return self._context

    def _look(self) -> Version:
        found = [path.stat() for path in self._files]
        return tuple(number for each in found for number in (each.st_mtime_ns, each.st_ino, each.st_size))


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols([ALPN])
    return context


class PgServer:
    """`insecure`: connections without TLS are taken, on loopback alone."""

    def __init__(
        self, link: GatewayLink, limits: SessionLimits, certificate: ServerCertificate | None, insecure: bool = False
    ) -> None:
        self.link, self.limits, self.plain_allowed = link, limits, insecure
        self.tls = certificate.context if certificate is not None else None
        self.spool = BodySpool(limits.write_bytes)
        self._connections: dict[int, ClientConnection] = {}
        self._starting: dict[int, float] = {}
        """Connections that sent no password yet, the oldest first, and when each began."""
        self._sessions: dict[int, str] = {}
        """Connections whose user logged in, and the user."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            ListenerRefused: others could read tokens.
            OSError: the address is taken.
        """
        if self.tls is None and not self.plain_allowed:
            raise ListenerRefused("give --certificate and --key: passwords are tokens, and need TLS")
        if self.plain_allowed and not _is_loopback(host):
            raise ListenerRefused(f"--insecure-loopback is for loopback alone: --listen at 127.0.0.1, not {host}")
        self._server = await asyncio.get_running_loop().create_server(self._accepted, host, port, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Send every client the reason, and end its connection. Calls that write rows have STOP_SECONDS to end."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections.values()):
            connection.end(WireError(errors.ADMIN_SHUTDOWN, "the server ends: connect anew"))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for connection in list(self._connections.values()):
            connection.cancel()  # a call that writes rows still runs: the error says that its outcome is unknown
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
        await self.link.close()

    # --- calls of connections ---

    def require_room(self) -> None:
        """Raises WireError where there are too many sessions."""
        if len(self._sessions) >= self.limits.connections:
            raise WireError(errors.TOO_MANY_CONNECTIONS, "sorry, too many clients already", fatal=True)

    def authenticate(self, connection: ClientConnection) -> None:
        """The connection sent a password. Raises WireError where too many of these wait for the gateway."""
        self._starting.pop(connection.pid, None)
        if len(self._connections) - len(self._starting) > self.limits.connections + self.limits.starting:
            raise WireError(errors.TOO_MANY_CONNECTIONS, "sorry, too many clients already", fatal=True)

    def enter(self, connection: ClientConnection, user: str) -> None:
        """The user logged in. Raises WireError where there are too many sessions, of all or of this user."""
        self.require_room()
        if list(self._sessions.values()).count(user) >= self.limits.of_user:
            raise WireError(
                errors.TOO_MANY_CONNECTIONS,
                f"too many connections of user {user:.80}: {self.limits.of_user} at most",
                hint="Close those that are idle, or use a pool of connections.",
                fatal=True,
            )
        self._sessions[connection.pid] = user

    def cancel(self, asked: Cancel) -> None:
        """End the statement that the request names. A wrong secret changes nothing, and has no answer."""
        found = self._connections.get(asked.pid)
        if found is not None and hmac.compare_digest(str(found.secret), str(asked.secret)):
            found.cancel()

    def _accepted(self) -> Wire:
        wire = Wire(self.limits.stall_seconds)
        if not self._starts():
            wire.abort()
            return wire
        connection = ClientConnection(self, wire, self._new_pid(), secrets.randbits(32))
        self._connections[connection.pid] = connection
        self._starting[connection.pid] = time.monotonic()
        task = asyncio.get_running_loop().create_task(self._serve(connection), name="connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return wire

    def _starts(self) -> bool:
        """Whether one more connection may start. The oldest one ends for it, unless all began just now."""
        if len(self._starting) < self.limits.starting:
            return True
        oldest = next(iter(self._starting))
        if time.monotonic() - self._starting[oldest] < START_PATIENCE_SECONDS:
            return False
        del self._starting[oldest]
        self._connections[oldest].abort()
        return True

    async def _serve(self, connection: ClientConnection) -> None:
        try:
            await connection.serve()
        finally:
            del self._connections[connection.pid]
            self._starting.pop(connection.pid, None)
            self._sessions.pop(connection.pid, None)

    def _new_pid(self) -> int:
        while (pid := secrets.randbelow(2**31 - 1) + 1) in self._connections:
            pass
        return pid


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
