"""An error of the operator ends a gRPC call with its status; the status's details are the error's text.

tidemark-sqlstate   42703       trailing metadata: PostgreSQL's code
tidemark-position   3:14        line and column in the statement, from 1, where the planner knows them
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tidemark_operator.errors import OperatorError, StatementRefused
from tidemark_operator.gateway.server.status import CallStatus, sqlstate_of, status_of


@asynccontextmanager
async def grpc_errors(rpc: Any) -> AsyncIterator[None]:
    """End the call with the status and text of an OperatorError raised in the block."""
    try:
        yield
    except OperatorError as error:
        error.__traceback__ = None  # its frames hold the answer, and a client that reads nothing may stay for long
        if (status := status_of(error)) is not None:
            await rpc.abort(status.grpc, f"{error}{status.advice}", _metadata(error, status))
        raise


def _metadata(error: OperatorError, status: CallStatus) -> tuple[tuple[str, str], ...]:
    sqlstate = ("tidemark-sqlstate", sqlstate_of(error, status))
    position = position_of(error)
    return (sqlstate, ("tidemark-position", position)) if position else (sqlstate,)


def position_of(error: OperatorError) -> str:
    """LINE:COLUMN in the statement; empty: it is not known."""
    return f"{error.line}:{error.column}" if isinstance(error, StatementRefused) and error.line else ""
