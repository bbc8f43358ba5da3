"""The destination of a view that is kept in a table of a PostgreSQL database: connections, limits, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import DestinationFailed, DestinationStopped, Reached
from tidemark_replica.sinks.postgres.delivery import Delivery
from tidemark_replica.sinks.postgres.progress import Writer, recorded_time
from tidemark_replica.sinks.postgres.target_table import Connection
from tidemark_replica.storage.errors import IngestionError, SourceNotReady
from tidemark_replica.storage.postgres.connection import SETTINGS, Upstream
from tidemark_replica.storage.source_secrets import SourceSecrets

DELIVERY_SECONDS = 3600.0
"""A delivery that takes longer is given up; the server rolls it back."""
SETTINGS_OF_SINKS = SETTINGS | {
    "statement_timeout": "1h",
    "idle_in_transaction_session_timeout": "10min",  # the shard is read meanwhile
}
_DATA, _CONSTRAINT = "22", "23"
"""Classes of SQLSTATE whose messages have values of rows."""
_NAMES_ONLY = frozenset({"", "08", "25", "28", "3D", "3F", "42", "53", "55", "57"})
"""Classes whose messages name objects, limits and settings (connections, rights, resources, locks), and libpq's own
messages. All others may have values of rows: a trigger of the user raises what it likes."""
_REASONS = {
    "42501": "PermissionDenied",
    "3F000": "SchemaMissing",
    "25006": "ServerReadOnly",
    "53100": "ServerFull",
}


class PostgresDestination:
    """The table of an export. Texts of errors have no value of a Secret, and none of a row."""

    kind = PostgresSink.KIND

    def __init__(
        self, id: GlobalId, shard: ShardMetadata, sink: PostgresSink, handles: ShardHandles, secrets: SourceSecrets
    ) -> None:
        """`id`: the export's."""
        self._uid, self._shard, self._sink = id.partition("/")[0], shard, sink
        self._handles, self._secrets = handles, secrets
        self._upstream = Upstream(sink, lambda: secrets.read(sink.secret), SETTINGS_OF_SINKS)

    def publish(self, time: Time, term: WriterTerm) -> Reached:
        reader = self._handles.reader(self._shard.location, self._shard.shard_id)
        delivery = Delivery(reader, self._sink, self._shard.columns, Writer(self._uid, term))
        with self._connection() as connection:
            return delivery.deliver(connection, time)

    def progress_time(self, contents: str) -> Time | None:
        with self._connection() as connection:
            return recorded_time(connection, self._sink, contents)

    def clean(self) -> None:
        """Does nothing: whatever a delivery needs goes with its session."""
        return

    def close(self) -> None:
        """Nothing is kept open: a delivery has a connection of its own."""

    def interrupt(self) -> None:
        """Ends the connection of a delivery that runs, within a second; the server rolls it back."""
        self._upstream.interrupted.set()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """A connection in autocommit mode. Raises DestinationFailed, DestinationStopped for the database's errors."""
        upstream = self._upstream
        try:
            upstream.check_goes_on()
            connection = upstream.opened()
        except IngestionError as error:
            raise DestinationFailed(self._secrets.scrub(str(error))) from None
        try:
            with upstream.patience(connection.pgconn, DELIVERY_SECONDS):
                yield connection
        except psycopg.Error as error:
            raise self._failure(upstream.name, error) from None
        except SourceNotReady:
            raise DestinationFailed(f"PostgreSQL {upstream.name}: the delivery was ended") from None
        finally:
            connection.close()  # a rollback would wait for the server

    def _failure(self, server: str, error: psycopg.Error) -> DestinationFailed | DestinationStopped:
        """The error without values of rows: statuses are read by people who may not read the view."""
        state = error.sqlstate or ""
        where = f"PostgreSQL {server}, table {self._sink.schema}.{self._sink.table}"
        if state.startswith(_DATA):
            return DestinationStopped(
                "ValueNotSupported",
                f"{where}: it cannot hold a value of the view (SQLSTATE {state}); cast it in the SQL",
            )
        if state.startswith(_CONSTRAINT):
            name = error.diag.constraint_name or error.diag.column_name or "of a column"
            return DestinationStopped(
                "ConstraintViolated", f"{where}: constraint {name} refuses the view's rows (SQLSTATE {state})"
            )
        if state[:2] not in _NAMES_ONLY:
            return DestinationFailed(f"{where}: the server refused (SQLSTATE {state}); its log has the message")
        text = error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
        message = self._secrets.scrub(f"{where}: {text}")
        return DestinationStopped(_REASONS[state], message) if state in _REASONS else DestinationFailed(message)
