"""The status of each error that a call can end with: gRPC's, whose name HTTP has as `reason`, HTTP's number, and the
SQLSTATE that PostgreSQL's clients know."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from tidemark_operator.errors import (
    AnswerIsError,
    AnswerLost,
    AnswerNotRead,
    AnswerTimedOut,
    DefinitionRefused,
    OperatorError,
    PlannerUnavailable,
    QueryNotReady,
    QueryRefused,
    RelationChanged,
    StatementRefused,
    SubscribeBehind,
    SubscribeEnded,
    SubscribeRevoked,
    TimeNotReadable,
    TooMany,
    WriteRefused,
    WriteStopped,
    WriteUnknown,
)
from tidemark_operator.gateway.auth.access import Forbidden, ReviewUnavailable, Unauthenticated
from tidemark_operator.gateway.auth.rights import SQLSTATES


@dataclass(frozen=True)
class CallStatus:
    """`sqlstate`: PostgreSQL's code. `advice`: the end of the error's text."""

    grpc: grpc.StatusCode
    http: int
    sqlstate: str
    advice: str = ""


_AGAIN = "; try again"
_OF_WRITE = {
    "NO_SUCH_TABLE": "42P01",
    "UNKNOWN_FIELD": "42703",
    "MALFORMED": "22P02",
    "TOO_LARGE": "54000",
    "KEY_NULL": "23502",
    "COLUMN_NULL": "23502",
    "KEY_TWICE": "23505",
    "DUPLICATE_KEY": "23505",
    "ROWS_MISSING": "P0002",
    "KEY_NOT_UNIQUE": "21000",
    "TABLE_CHANGED": "40001",
    "NO_PRIMARY_KEY": "42P10",
    "APPEND_ONLY": "0A000",
    "KEY_REUSED": "22023",
}
"""The SQLSTATEs of the codes with which rows are refused; all others: 42000."""
_STATUS: tuple[tuple[type[OperatorError], CallStatus], ...] = (
    (TimeNotReadable, CallStatus(grpc.StatusCode.OUT_OF_RANGE, 409, "72000")),
    (TooMany, CallStatus(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "53300")),
    (WriteStopped, CallStatus(grpc.StatusCode.FAILED_PRECONDITION, 503, "55000")),
    (QueryNotReady, CallStatus(grpc.StatusCode.FAILED_PRECONDITION, 503, "57P03")),
    (RelationChanged, CallStatus(grpc.StatusCode.INVALID_ARGUMENT, 409, "40001")),
    (QueryRefused, CallStatus(grpc.StatusCode.INVALID_ARGUMENT, 400, "42000")),
    (SubscribeBehind, CallStatus(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "53400")),
    (SubscribeRevoked, CallStatus(grpc.StatusCode.PERMISSION_DENIED, 403, "42501")),
    (SubscribeEnded, CallStatus(grpc.StatusCode.FAILED_PRECONDITION, 409, "55000")),
    (AnswerIsError, CallStatus(grpc.StatusCode.FAILED_PRECONDITION, 409, "22000")),
    (AnswerLost, CallStatus(grpc.StatusCode.ABORTED, 503, "40001")),
    (WriteUnknown, CallStatus(grpc.StatusCode.ABORTED, 503, "40003")),
    (AnswerTimedOut, CallStatus(grpc.StatusCode.DEADLINE_EXCEEDED, 504, "57014")),
    (AnswerNotRead, CallStatus(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "53400")),
    (Forbidden, CallStatus(grpc.StatusCode.PERMISSION_DENIED, 403, "42501")),
    (Unauthenticated, CallStatus(grpc.StatusCode.UNAUTHENTICATED, 401, "28000")),
    (ReviewUnavailable, CallStatus(grpc.StatusCode.FAILED_PRECONDITION, 503, "57P03", _AGAIN)),
    (PlannerUnavailable, CallStatus(grpc.StatusCode.FAILED_PRECONDITION, 503, "57P03", _AGAIN)),
)


def status_of(error: OperatorError) -> CallStatus | None:
    """None: a defect, which callers learn nothing of but that there is one."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), None)


def sqlstate_of(error: OperatorError, status: CallStatus) -> str:
    """A refusal of the planner has the SQLSTATE of its first diagnostic, one of rows that of its code."""
    if isinstance(error, DefinitionRefused):
        return error.sqlstate
    if isinstance(error, WriteRefused):
        return _OF_WRITE.get(str(error).partition(":")[0], status.sqlstate)
    return SQLSTATES.get(error.code, status.sqlstate) if isinstance(error, StatementRefused) else status.sqlstate
