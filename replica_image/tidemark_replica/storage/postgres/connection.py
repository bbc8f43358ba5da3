"""Connections to the upstream database: ordinary ones for the catalogue and COPY, and one for replication.

psycopg's `pq` is used for replication, message by message: nothing is confirmed upstream but what `confirm` was given.
The Secret is read anew for each connection, so that a renewed password is used.
"""

from __future__ import annotations

import select
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo, pq
from psycopg.pq.abc import PGconn

from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres.pgoutput import DATA, KEEPALIVE, feedback, keepalive, lsn_text, parse_lsn

Credentials = Callable[[], Mapping[str, str]]
"""Reads the Secret: `username`, `password`, and perhaps `ca.crt`."""

SETTINGS = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "row_security": "off",  # hidden rows are an error, and not left out
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "30s",
    "synchronous_commit": "on",
}
CONNECT_SECONDS = 10
STALLED_SECONDS = 60.0
"""A server that owes more changes and sends none for so long is taken as gone."""
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
_EXPECTED = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COPY_BOTH)


@dataclass(frozen=True)
class System:
    """The database that answers: cluster, timeline (changed by a failover or a restore), its name."""

    id: str
    timeline: int
    database: str


class Upstream:
    """The address, and the way to it. Raises IngestionError with the address, and without a secret."""

    def __init__(self, spec: PostgresSource, credentials: Credentials) -> None:
        self._spec, self._credentials = spec, credentials
        self.name = f"{spec.host}:{spec.port}/{spec.database}"

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        """An ordinary connection, in autocommit mode."""
        with self._parameters() as parameters, self.errors():
            connection = psycopg.connect(conninfo.make_conninfo(**parameters), autocommit=True)
        with connection, self.errors():
            yield connection

    def replicate(self) -> Replication:
        """A connection for replication commands."""
        with self._parameters() as parameters, self.errors():
            text = conninfo.make_conninfo(**parameters, replication="database")
            connection = pq.PGconn.connect(text.encode())
            if connection.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError(connection.get_error_message())
        return Replication(self, connection)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the database as IngestionError."""
        try:
            yield
        except psycopg.Error as error:
            detail = " ".join(str(error).split()) or type(error).__name__
            raise IngestionError(f"PostgreSQL {self.name}: {detail}") from None

    @contextmanager
    def _parameters(self) -> Iterator[dict[str, Any]]:
        secret = self._credentials()
        parameters: dict[str, Any] = {
            "host": self._spec.host.strip("[]"),
            "port": self._spec.port,
            "dbname": self._spec.database,
            "user": secret["username"],
            "password": secret["password"],
            "sslmode": self._spec.ssl_mode,
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "tidemark",
            "options": " ".join(f"-c {name}={value}" for name, value in SETTINGS.items()),
            **_KEEPALIVES,
        }
        if "ca.crt" not in secret:
            yield parameters | ({"sslrootcert": "system"} if self._spec.ssl_mode == "verify-full" else {})
            return
        with tempfile.NamedTemporaryFile("w", suffix=".crt") as file:
            file.write(secret["ca.crt"])
            file.flush()
            yield parameters | {"sslrootcert": file.name}


class Replication:
    """A connection for replication. `sent`: the server sent all changes that were committed before this position."""

    def __init__(self, upstream: Upstream, connection: PGconn) -> None:
        self._upstream, self._connection = upstream, connection
        self._poll = select.poll()
        self._poll.register(connection.socket, select.POLLIN)
        self._confirmed = 0
        self.sent = 0
        self.read_at = time.monotonic()

    def system(self) -> System:
        row = self._command("IDENTIFY_SYSTEM")
        return System(row[0], int(row[1]), row[3])

    def create_slot(self, name: str, temporary: bool = False) -> tuple[int, str]:
        """The position at which the slot begins, and the snapshot of the contents there, which is valid until the next
        command."""
        kind = "TEMPORARY " if temporary else ""
        row = self._command(f'CREATE_REPLICATION_SLOT "{name}" {kind}LOGICAL pgoutput EXPORT_SNAPSHOT')
        return parse_lsn(row[1]), row[2]

    def drop_slot(self, name: str) -> None:
        self._command(f'DROP_REPLICATION_SLOT "{name}"')

    def start(self, slot: str, lsn: int, publication: str) -> None:
        """Begins to receive the transactions that were committed at or after the position."""
        quoted = '"' + publication.replace('"', '""').replace("'", "''") + '"'
        options = f"proto_version '1', publication_names '{quoted}'"
        self._command(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(lsn)} ({options})')
        self._confirmed = self.sent = lsn

    def read(self, wait: bool = False, until: int = 0) -> bytes | None:
        """The next message with data; None if there is none yet. It waits for one where there must be one (`wait`), or
        until the server has sent everything before the position `until`."""
        deadline = time.monotonic() + STALLED_SECONDS
        while True:
            size, data = self._connection.get_copy_data(1)
            if size > 0:
                self.read_at = time.monotonic()
                message = bytes(data)
                if message[0] == DATA:
                    return message
                if message[0] == KEEPALIVE:
                    self._answer(message)
                continue
            if size < 0:
                self._ended()
            waits = wait or self.sent < until
            if not self._receive(waits):
                if not waits:
                    return None
                if time.monotonic() > deadline:
                    raise psycopg.OperationalError(
                        f"the server owes more changes, and sent none for {STALLED_SECONDS:g} s"
                    )
                if not wait:
                    self.confirm(self._confirmed, ask=True)

    def confirm(self, lsn: int, ask: bool = False) -> None:
        """Tells the server that nothing before the position is needed again. `ask`: it is to answer how far it is."""
        self._confirmed = lsn
        self._connection.put_copy_data(feedback(lsn, int(time.time() * 1000), ask))
        self._connection.flush()

    def close(self) -> None:
        self._connection.finish()

    def _receive(self, wait: bool) -> bool:
        if not self._poll.poll(200 if wait else 0):
            return False
        self._connection.consume_input()
        return True

    def _answer(self, message: bytes) -> None:
        self.sent, wanted = keepalive(message)
        if wanted:
            self.confirm(self._confirmed)

    def _ended(self) -> None:
        result = self._connection.get_result()
        text = result.get_error_message() if result is not None else ""
        raise psycopg.OperationalError(text or "the server ended the replication")

    def _command(self, text: str) -> tuple[str, ...]:
        """The first row of the answer."""
        result = self._connection.exec_(text.encode())
        if result.status not in _EXPECTED:
            raise psycopg.errors.error_from_result(result)
        if not result.ntuples:
            return ()
        return tuple((result.get_value(0, column) or b"").decode() for column in range(result.nfields))
