"""An error of the operator ends a gRPC call with its status; the status's details are the error's text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tidemark_operator.errors import OperatorError
from tidemark_operator.gateway.server.status import status_of


@asynccontextmanager
async def grpc_errors(rpc: Any) -> AsyncIterator[None]:
    """End the call with the status and text of an OperatorError raised in the block."""
    try:
        yield
    except OperatorError as error:
        error.__traceback__ = None  # its frames hold the answer, and a client that reads nothing may stay for long
        if (status := status_of(error)) is not None:
            await rpc.abort(status.grpc, f"{error}{status.advice}")
        raise
