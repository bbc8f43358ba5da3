"""The status of each error that a call can end with: gRPC's, whose name HTTP has as `reason`, and HTTP's number."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from tidemark_operator.errors import (
    AnswerIsError,
    AnswerLost,
    AnswerNotRead,
    AnswerTimedOut,
    OperatorError,
    PlannerUnavailable,
    QueryNotReady,
    QueryRefused,
    RelationChanged,
    SubscribeBehind,
    SubscribeEnded,
    SubscribeRevoked,
    TimeNotReadable,
    TooMany,
    WriteUnknown,
)
from tidemark_operator.gateway.auth.access import Forbidden, ReviewUnavailable, Unauthenticated


@dataclass(frozen=True)
class Status:
    """`advice`: what the text of the error goes on with."""

    grpc: grpc.StatusCode
    http: int
    advice: str = ""


_AGAIN = "; try again"
_STATUS: tuple[tuple[type[OperatorError], Status], ...] = (
    (TimeNotReadable, Status(grpc.StatusCode.OUT_OF_RANGE, 409)),
    (TooMany, Status(grpc.StatusCode.RESOURCE_EXHAUSTED, 429)),
    (QueryNotReady, Status(grpc.StatusCode.FAILED_PRECONDITION, 503)),
    (RelationChanged, Status(grpc.StatusCode.INVALID_ARGUMENT, 409)),
    (QueryRefused, Status(grpc.StatusCode.INVALID_ARGUMENT, 400)),
    (SubscribeBehind, Status(grpc.StatusCode.RESOURCE_EXHAUSTED, 429)),
    (SubscribeRevoked, Status(grpc.StatusCode.PERMISSION_DENIED, 403)),
    (SubscribeEnded, Status(grpc.StatusCode.FAILED_PRECONDITION, 409)),
    (AnswerIsError, Status(grpc.StatusCode.FAILED_PRECONDITION, 409)),
    (AnswerLost, Status(grpc.StatusCode.ABORTED, 503)),
    (WriteUnknown, Status(grpc.StatusCode.ABORTED, 503)),
    (AnswerTimedOut, Status(grpc.StatusCode.DEADLINE_EXCEEDED, 504)),
    (AnswerNotRead, Status(grpc.StatusCode.RESOURCE_EXHAUSTED, 429)),
    (Forbidden, Status(grpc.StatusCode.PERMISSION_DENIED, 403)),
    (Unauthenticated, Status(grpc.StatusCode.UNAUTHENTICATED, 401)),
    (ReviewUnavailable, Status(grpc.StatusCode.FAILED_PRECONDITION, 503, _AGAIN)),
    (PlannerUnavailable, Status(grpc.StatusCode.FAILED_PRECONDITION, 503, _AGAIN)),
)


def status_of(error: OperatorError) -> Status | None:
    """None: a defect, which callers learn nothing of but that there is one."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), None)
