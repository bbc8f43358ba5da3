"""Errors as PostgreSQL's clients read them."""

from __future__ import annotations

PROTOCOL_VIOLATION = "08P01"
FEATURE_NOT_SUPPORTED = "0A000"
SYNTAX_ERROR = "42601"
QUERY_CANCELED = "57014"
NOT_IN_REPERTOIRE = "22021"
INVALID_TEXT = "22P02"
INVALID_BINARY = "22P03"
OUT_OF_RANGE = "22003"
INVALID_PARAMETER = "22023"
INVALID_AUTHORIZATION = "28000"
INVALID_PASSWORD = "28P01"
IN_FAILED_TRANSACTION = "25P02"
IDLE_IN_TRANSACTION = "25P03"
TRANSACTION_TIMEOUT = "25P04"
INVALID_CURSOR = "34000"
INVALID_STATEMENT = "26000"
DUPLICATE_CURSOR = "42P03"
DUPLICATE_STATEMENT = "42P05"
NOT_IN_STATE = "55000"
ACTIVE_TRANSACTION = "25001"
NO_ACTIVE_TRANSACTION = "25P01"
READ_ONLY = "25006"
TOO_MANY_CONNECTIONS = "53300"
LIMIT_EXCEEDED = "54000"
TOO_COMPLEX = "54001"
UNDEFINED_COLUMN = "42703"
TYPE_MISMATCH = "42804"
BAD_COPY = "22P04"
OUTCOME_UNKNOWN = "40003"
CANNOT_CONNECT_NOW = "57P03"
ADMIN_SHUTDOWN = "57P01"
INTERNAL_ERROR = "XX000"


class WireError(Exception):
    """Ends a statement. `position`: of the character in the statement, from 1; 0: unknown. `fatal`: ends the
    connection, too. `routine`: the name by which drivers know an error that has its SQLSTATE with others. `where`: the
    place in the data of COPY."""

    def __init__(
        self,
        sqlstate: str,
        message: str,
        *,
        hint: str = "",
        position: int = 0,
        fatal: bool = False,
        routine: str = "",
        where: str = "",
    ) -> None:
        super().__init__(message)
        self.sqlstate, self.hint, self.position, self.fatal = sqlstate, hint, position, fatal
        self.routine, self.where = routine, where


class ClientProtocolError(WireError):
    """The client's bytes are no messages: the connection ends."""

    def __init__(self, message: str) -> None:
        super().__init__(PROTOCOL_VIOLATION, message, fatal=True)


def idle() -> WireError:
    """The error of a client that sends nothing in its transaction for too long."""
    return _timed_out(IDLE_IN_TRANSACTION, "idle-in-transaction timeout")


def late_transaction() -> WireError:
    """The error of a transaction that lasts too long as a whole."""
    return _timed_out(TRANSACTION_TIMEOUT, "transaction timeout")


def _timed_out(sqlstate: str, why: str) -> WireError:
    hint = "Rows that waited for COMMIT are forgotten."
    return WireError(sqlstate, f"terminating connection due to {why}", hint=hint, fatal=True)


class ConnectionClosed(Exception):
    """The connection is closed: nobody reads."""
