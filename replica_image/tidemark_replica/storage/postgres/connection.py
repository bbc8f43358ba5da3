"""Connections to the upstream database: ordinary ones for the catalogue and COPY, and one for replication.

psycopg's `pq` is used for replication, message by message: nothing is confirmed upstream but what `confirm` was given.
The Secret is read anew for each connection, so that a renewed password is used.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo, pq
from psycopg.pq.abc import PGconn

from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_replica.storage.errors import IngestionError, SourceNotReady
from tidemark_replica.storage.postgres.pgoutput import DATA, KEEPALIVE, feedback, keepalive, lsn_text, parse_lsn

Credentials = Callable[[], Mapping[str, str]]
"""Reads the Secret: `username`, `password` or `tls.crt` and `tls.key`, and perhaps `ca.crt`."""

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
    "idle_session_timeout": "0",
    "lock_timeout": "30s",
    "synchronous_commit": "on",
    "lc_monetary": "C",  # the texts of money
    "jit": "off",  # the server would compile each query of its catalogue, which takes it 50 times as long as the query
    "wal_sender_timeout": "60s",  # a server that decodes a large transaction sends something each half of it
    # The server notices within half a minute that a machine is gone, and releases its slots, locks and snapshots. No
    # tcp_user_timeout: it would also end a connection whose client is there, and does not read for a while.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
SERVER_START = "select pg_postmaster_start_time()::text"
CONNECT_SECONDS = 10
COMMAND_SECONDS = 60.0
"""A query of the catalogue, or a block of COPY, that takes longer fails."""
INTERRUPT_SECONDS = 0.5
"""A wait ends at most so long after an interrupt."""
SLOT_SECONDS = 6 * 3600.0
"""A slot waits for the end of all transactions that run upstream, at most so long."""
PAUSE_MS, PAUSES_MAX = 10, 10
"""Before `read` gives None, it waits PAUSE_MS for a server that was sending, at most PAUSES_MAX times."""
STALLED_SECONDS = 90.0
"""A server that owes changes, and sends nothing at all for so long, is taken as gone."""
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
_FILES = {"sslrootcert": "ca.crt", "sslcert": "tls.crt", "sslkey": "tls.key"}
"""Parameters of libpq that are files, and the entries of the Secret that they have."""
_EXPECTED = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COPY_BOTH)


@dataclass(frozen=True)
class System:
    """The database that answers: cluster, timeline (changed by a failover or a restore), its name."""

    id: str
    timeline: int
    database: str


class Upstream:
    """The address, and the way to it. Raises IngestionError with the address, and without a secret."""

    def __init__(
        self, spec: PostgresSource | PostgresSink, credentials: Credentials, settings: Mapping[str, str] = SETTINGS
    ) -> None:
        self._spec, self._credentials, self._settings = spec, credentials, settings
        self.name = f"{spec.host}:{spec.port}/{spec.database}"
        self.interrupted = threading.Event()
        """Set from any thread: all waits for the server end."""

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        """An ordinary connection in autocommit mode, for at most COMMAND_SECONDS."""
        with self.connect_for_long() as connection, self.patience(connection.pgconn):
            yield connection

    @contextmanager
    def connect_for_long(self) -> Iterator[psycopg.Connection]:
        """An ordinary connection in autocommit mode, whose user bounds each wait for the server."""
        connection = self.opened()
        try:
            with self.errors():
                yield connection
        finally:
            connection.close()  # a rollback would wait for the server

    def opened(self) -> psycopg.Connection:
        """An ordinary connection in autocommit mode, which its caller closes."""
        with self._parameters() as parameters, self.errors():
            connection = psycopg.connect(conninfo.make_conninfo(**parameters), autocommit=True)
            _check_primary(connection.pgconn)
            return connection

    def replicate(self) -> Replication:
        """A connection for replication commands. Raises OperationalError."""
        with self._parameters() as parameters, self.errors():
            text = conninfo.make_conninfo(**parameters, replication="database")
            connection = pq.PGconn.connect(text.encode())
            if connection.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError(connection.get_error_message())
            _check_primary(connection)
        return Replication(self, connection)

    def patience(self, connection: PGconn, seconds: float | None = None) -> Patience:
        """The patience for one command. `seconds`: how long it may take; COMMAND_SECONDS if None."""
        return Patience(connection, COMMAND_SECONDS if seconds is None else seconds, self.interrupted)

    def check_goes_on(self) -> None:
        """Raises SourceNotReady after an interrupt."""
        if self.interrupted.is_set():
            raise SourceNotReady("the ingestion was ended")

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
            "password": secret.get("password", "") if "tls.crt" in secret else secret["password"],
            "sslmode": self._spec.ssl_mode,
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "tidemark",
            "options": " ".join(f"-c {name}={value}" for name, value in self._settings.items()),
            **_KEEPALIVES,
        }
        if "ca.crt" not in secret and self._spec.ssl_mode == "verify-full":
            parameters["sslrootcert"] = "system"
        with ExitStack() as files:
            for parameter, entry in _FILES.items():
                if entry in secret:
                    parameters[parameter] = files.enter_context(_in_memory(entry, secret[entry]))
            yield parameters


def _check_primary(connection: PGconn) -> None:
    """Ends the connection and raises psycopg.OperationalError where the server is a standby: it has no slot, and its
    catalogue may be of an earlier moment than the changes that were read."""
    if connection.parameter_status(b"in_hot_standby") == b"on":
        connection.finish()
        raise psycopg.OperationalError("the server is a standby; its address must lead to the primary")


@contextmanager
def _in_memory(name: str, text: str) -> Iterator[str]:
    """The path of a file that no disk has, and that ends with the process: libpq takes keys from files alone, and none
    that others may read."""
    with os.fdopen(os.memfd_create(name, os.MFD_CLOEXEC), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text + "\n")
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


class Patience:
    """Ends the connection once its block took longer than `seconds`, or once `interrupted` is set: TCP notices no proxy
    that stands still."""

    def __init__(self, connection: PGconn, seconds: float, interrupted: threading.Event) -> None:
        self._connection, self._seconds, self._interrupted = connection, seconds, interrupted
        self._lost = False
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._run, name="postgres-patience", daemon=True)

    def __enter__(self) -> Patience:
        self._watch.start()
        return self

    def __exit__(self, type: object, value: BaseException | None, trace: object) -> None:
        self._ended.set()
        self._watch.join()
        if self._lost and (value is None or isinstance(value, psycopg.Error)):
            if self._interrupted.is_set():
                raise SourceNotReady("the ingestion was ended") from value
            raise psycopg.OperationalError(f"the server did not answer within {self._seconds:g} s") from value

    def _run(self) -> None:
        latest = time.monotonic() + self._seconds
        while not self._ended.wait(min(INTERRUPT_SECONDS, self._seconds)):
            if time.monotonic() > latest or self._interrupted.is_set():
                self._lost = True
                with socket.socket(fileno=os.dup(self._connection.socket)) as end:
                    end.shutdown(socket.SHUT_RDWR)
                return


class Replication:
    """A connection for replication. `sent`: the server sent all changes that were committed before this position."""

    def __init__(self, upstream: Upstream, connection: PGconn) -> None:
        self._upstream, self._connection = upstream, connection
        self._poll = select.poll()
        self._poll.register(connection.socket, select.POLLIN)
        self._confirmed = 0
        self.sent = 0
        self._is_flowing, self._pauses = False, 0
        self.read_at = self._heard_at = time.monotonic()

    def system(self) -> System:
        row = self._command("IDENTIFY_SYSTEM")
        return System(row[0], int(row[1]), row[3])

    def server_start(self) -> str:
        """The time at which the server was started: no other one has the same."""
        return self._command(SERVER_START)[0]

    def create_slot(self, name: str, temporary: bool = False) -> tuple[int, str]:
        """The position at which the slot begins, and the snapshot of the contents there, which is valid until the next
        command."""
        kind = "TEMPORARY " if temporary else ""
        command = f'CREATE_REPLICATION_SLOT "{name}" {kind}LOGICAL pgoutput EXPORT_SNAPSHOT'
        row = self._command(command, SLOT_SECONDS)
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
        until the server has sent everything before the position `until`. Raises OperationalError."""
        self._heard_at = time.monotonic()
        while True:
            size, data = self._connection.get_copy_data(1)
            if size > 0:
                self.read_at = time.monotonic()
                message = bytes(data)
                if message[0] == DATA:
                    self._is_flowing = True
                    return message
                if message[0] == KEEPALIVE:
                    self._answer(message)
                continue
            if size < 0:
                self._raise_end()
            waits = wait or self.sent < until
            if not self._receive(waits):
                self._upstream.check_goes_on()
                if not waits:
                    self._is_flowing, self._pauses = False, 0
                    return None
                if time.monotonic() > self._heard_at + STALLED_SECONDS:
                    raise psycopg.OperationalError(
                        f"the server owes more changes, and sent nothing for {STALLED_SECONDS:g} s"
                    )
                self.confirm(self._confirmed, ask=True)

    def confirm(self, lsn: int, ask: bool = False) -> None:
        """Tells the server that nothing before the position is needed again. `ask`: it is to answer how far it is."""
        self._confirmed = lsn
        self._connection.put_copy_data(feedback(lsn, int(time.time() * 1000), ask))
        self._connection.flush()

    def close(self) -> None:
        self._connection.finish()

    def _receive(self, wait: bool) -> bool:
        if not self._poll.poll(200 if wait else self._pause_ms()):
            return False
        self._connection.consume_input()
        self._heard_at = time.monotonic()
        return True

    def _pause_ms(self) -> int:
        """A server that is sending changes may be slower than their reader: a tick for the few of each moment would
        cost more than they do."""
        if not self._is_flowing or self._poll.poll(0):
            return 0
        self._pauses += 1
        return PAUSE_MS if self._pauses <= PAUSES_MAX else 0

    def _answer(self, message: bytes) -> None:
        self.sent, wanted = keepalive(message)
        if wanted:
            self.confirm(self._confirmed)

    def _raise_end(self) -> None:
        result = self._connection.get_result()
        if result is not None and result.status not in _EXPECTED:
            raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server ended the replication: its log says why")

    def _command(self, text: str, seconds: float | None = None) -> tuple[str, ...]:
        """The first row of the answer."""
        with self._upstream.patience(self._connection, seconds):
            result = self._connection.exec_(text.encode())
        if result.status not in _EXPECTED:
            raise psycopg.errors.error_from_result(result)
        if not result.ntuples:
            return ()
        return tuple((result.get_value(0, column) or b"").decode() for column in range(result.nfields))
