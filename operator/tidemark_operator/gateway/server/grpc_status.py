"""The gRPC status of each error that a call can end with; its details are the error's text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tidemark_operator.errors import (
    AnswerLost,
    AnswerNotRead,
    AnswerTimedOut,
    OperatorError,
    PlannerUnavailable,
    QueryNotReady,
    QueryRefused,
    SubscribeBehind,
    SubscribeEnded,
    SubscribeRevoked,
    TimeNotReadable,
    TooMany,
    WriteUnknown,
)
from tidemark_operator.gateway.auth.access import Forbidden, ReviewUnavailable, Unauthenticated

_STATUS: tuple[tuple[type[OperatorError], grpc.StatusCode, str], ...] = (
    (TimeNotReadable, grpc.StatusCode.OUT_OF_RANGE, ""),
    (TooMany, grpc.StatusCode.RESOURCE_EXHAUSTED, ""),
    (QueryNotReady, grpc.StatusCode.FAILED_PRECONDITION, ""),
    (QueryRefused, grpc.StatusCode.INVALID_ARGUMENT, ""),
    (SubscribeBehind, grpc.StatusCode.RESOURCE_EXHAUSTED, ""),
    (SubscribeRevoked, grpc.StatusCode.PERMISSION_DENIED, ""),
    (SubscribeEnded, grpc.StatusCode.FAILED_PRECONDITION, ""),
    (AnswerLost, grpc.StatusCode.ABORTED, ""),
    (WriteUnknown, grpc.StatusCode.ABORTED, ""),
    (AnswerTimedOut, grpc.StatusCode.DEADLINE_EXCEEDED, ""),
    (AnswerNotRead, grpc.StatusCode.RESOURCE_EXHAUSTED, ""),
    (Forbidden, grpc.StatusCode.PERMISSION_DENIED, ""),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED, ""),
    (ReviewUnavailable, grpc.StatusCode.FAILED_PRECONDITION, "; try again"),
    (PlannerUnavailable, grpc.StatusCode.FAILED_PRECONDITION, "; try again"),
)


@asynccontextmanager
async def grpc_errors(rpc: Any) -> AsyncIterator[None]:
    """End the call with the status and text of an OperatorError raised in the block."""
    try:
        yield
    except OperatorError as error:
        error.__traceback__ = None  # its frames hold the answer, and a client that reads nothing may stay for long
        for kind, status, advice in _STATUS:
            if isinstance(error, kind):
                await rpc.abort(status, f"{error}{advice}")
        raise
