"""Each error reaches callers as its own gRPC status, with its reason."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tidemark_operator import errors
from tidemark_operator.errors import OperatorError
from tidemark_operator.gateway.auth.access import Forbidden, ReviewUnavailable, Unauthenticated
from tidemark_operator.gateway.server.grpc_status import grpc_errors

STATUS = grpc.StatusCode


class Aborted(Exception):
    pass


class Context:
    async def abort(self, status: STATUS, details: str, metadata: tuple[tuple[str, str], ...]) -> None:
        self.ended, self.metadata = (status, details), dict(metadata)
        raise Aborted


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.QueryRefused("why"), STATUS.INVALID_ARGUMENT),
        (errors.TimeNotReadable("why"), STATUS.OUT_OF_RANGE),
        (errors.TooMany("why"), STATUS.RESOURCE_EXHAUSTED),
        (errors.NoCompleteTime("why"), STATUS.FAILED_PRECONDITION),
        (errors.NoReplicaAnswers("why"), STATUS.FAILED_PRECONDITION),
        (errors.SubscribeBehind("why"), STATUS.RESOURCE_EXHAUSTED),
        (errors.SubscribeEnded("why"), STATUS.FAILED_PRECONDITION),
        (errors.SubscribeRevoked("why"), STATUS.PERMISSION_DENIED),
        (errors.AnswerIsError("why"), STATUS.FAILED_PRECONDITION),
        (errors.AnswerLost("why"), STATUS.ABORTED),
        (errors.AnswerNotRead("why"), STATUS.RESOURCE_EXHAUSTED),
        (errors.AnswerTimedOut("why"), STATUS.DEADLINE_EXCEEDED),
        (errors.PlannerUnavailable("why"), STATUS.FAILED_PRECONDITION),
        (Forbidden("why"), STATUS.PERMISSION_DENIED),
        (Unauthenticated("why"), STATUS.UNAUTHENTICATED),
        (ReviewUnavailable("why"), STATUS.FAILED_PRECONDITION),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, OperatorError) else None,
)
def test_every_refusal_has_its_status(error: OperatorError, status: STATUS) -> None:
    """Never UNKNOWN, which says nothing to a program."""
    context: Any = Context()

    async def call() -> None:
        async with grpc_errors(context):
            raise error

    with pytest.raises(Aborted):
        asyncio.run(call())
    assert context.ended[0] is status
    assert context.ended[1].startswith("why")
    assert len(context.metadata["tidemark-sqlstate"]) == 5


def test_a_refusal_of_the_planner_has_its_sqlstate_and_position() -> None:
    """PostgreSQL's clients look at them."""
    context: Any = Context()

    async def call() -> None:
        async with grpc_errors(context):
            raise errors.StatementRefused("why", "UNRESOLVED_COLUMN", 3, 14)

    with pytest.raises(Aborted):
        asyncio.run(call())
    assert context.metadata == {"tidemark-sqlstate": "42703", "tidemark-position": "3:14"}
