"""Statements over the PostgreSQL protocol, one at a time: definitions are refused in transactions, and nothing that a
run does could be rolled back.

statement ──► sent ──► 57P03, 40001: the gateway cannot take it now ──► sent again, `retries` times
                   ──► another error: with its SQLSTATE and advice
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

LOG = AdapterLogger("Tidemark")
RETRIED = (psycopg.errors.CannotConnectNow, psycopg.errors.SerializationFailure)
RETRY_SECONDS = 1.0
CANCEL_SECONDS = 10.0
_ADVICE: dict[str | None, str] = {
    "42602": "the name of a model is that of a Dataflow: give the model an alias",
    "42P07": "an object that dbt did not create has this name",
    "42809": "the object is of another kind: --full-refresh drops it and creates it anew, when nothing reads it",
    "2BP01": "drop first what reads it",
    "40003": "run dbt again: what is stored already is left as it is",
    "55000": "what was stored stays, and the definition before it serves on: correct it and run dbt again",
    "57014": "a definition that was stored hydrates on: run dbt again, or raise statement_seconds of the profile",
}


class TidemarkConnectionManager(SQLConnectionManager):
    """A connection for each thread of dbt."""

    TYPE = "tidemark"

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            LOG.debug(f"error of Tidemark: {error}")
            raise DbtDatabaseError(_described(error)) from error
        except DbtRuntimeError:
            raise
        except Exception as error:
            raise DbtRuntimeError(str(error)) from error

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state == ConnectionState.OPEN:
            return connection
        try:
            connection.handle = _connected(connection.credentials)
        except (psycopg.Error, OSError) as error:
            connection.handle, connection.state = None, ConnectionState.FAIL
            raise FailedToConnectError(str(error)) from error
        connection.state = ConnectionState.OPEN
        return connection

    def cancel(self, connection: Connection) -> None:
        """End the statement that the connection runs."""
        with suppress(psycopg.Error):
            connection.handle.cancel_safe(timeout=CANCEL_SECONDS)

    def add_query(
        self,
        sql: str,
        auto_begin: bool = True,
        bindings: Any = None,
        abridge_sql_log: bool = False,
        retryable_exceptions: tuple[type[Exception], ...] = RETRIED,
        retry_limit: int = 0,
    ) -> tuple[Connection, Any]:
        limit = retry_limit or 1 + self.profile.credentials.retries
        sent: tuple[Connection, Any] = super().add_query(
            sql, False, bindings, abridge_sql_log, retryable_exceptions, limit
        )
        return sent

    def begin(self) -> Connection:
        """Nothing: each statement is done when it ends."""
        return self.get_thread_connection()

    def commit(self) -> Connection:
        return self.get_thread_connection()

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        message = str(cursor.statusmessage or "OK")
        code = message.rstrip("0123456789").strip()
        return AdapterResponse(_message=message, code=code, rows_affected=cursor.rowcount)

    @classmethod
    def data_type_code_to_name(cls, type_code: int) -> str:
        """The name of a type by its oid."""
        found = psycopg.adapters.types.get(type_code)
        return found.regtype if found is not None else "text"


def _connected(credentials: Any) -> psycopg.Connection[Any]:
    """Raises psycopg.Error, OSError."""
    for left in range(credentials.retries, -1, -1):
        try:
            options = credentials.libpq()
            return psycopg.connect(**options, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            if not left or "password" in str(error) or "token" in str(error):
                raise
            LOG.debug(f"no connection yet, {left} attempts are left: {error}")
            time.sleep(RETRY_SECONDS)
    raise AssertionError("unreachable")


def _described(error: psycopg.Error) -> str:
    """The error's message, with the place in the statement and the hint."""
    text = str(error).strip()
    state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    advice = _ADVICE.get(error.sqlstate)
    return f"{text}{state}" + (f"\n{advice}" if advice else "")
