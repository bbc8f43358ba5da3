"""Failures of calls to the gateway, as PostgreSQL's clients read them: a SQLSTATE, a text, a position."""

from __future__ import annotations

import asyncio

import grpc

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_protocol.wire.cancellation import is_canceled

GATEWAY_SILENT = "the gateway does not answer"
CODES = {code.value[0]: code for code in grpc.StatusCode}
"""Statuses of gRPC by their numbers."""
_SQLSTATES = {
    grpc.StatusCode.INVALID_ARGUMENT: "42000",
    grpc.StatusCode.OUT_OF_RANGE: "72000",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "53400",
    grpc.StatusCode.FAILED_PRECONDITION: "55000",
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.QUERY_CANCELED,
    grpc.StatusCode.ABORTED: "40001",
    grpc.StatusCode.UNAUTHENTICATED: errors.INVALID_AUTHORIZATION,
    grpc.StatusCode.PERMISSION_DENIED: "42501",
    grpc.StatusCode.UNAVAILABLE: errors.CANNOT_CONNECT_NOW,
    grpc.StatusCode.UNIMPLEMENTED: errors.FEATURE_NOT_SUPPORTED,
}


class call_errors:
    """Failures of calls in the block become WireErrors. `sql`: the statement, for positions."""

    def __init__(self, sql: str = "") -> None:
        self._sql = sql

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            raise wire_error(error, self._sql) from None
        if isinstance(error, asyncio.CancelledError) and not is_canceled():
            raise channel_closed() from None


def wire_error(failed: grpc.aio.AioRpcError, sql: str = "") -> WireError:
    """The failure of a call as PostgreSQL's clients read it."""
    metadata = {str(key): str(value) for key, value in failed.trailing_metadata() or ()}
    told = metadata.get("tidemark-sqlstate", ""), metadata.get("tidemark-position", "")
    return refusal(failed.code(), failed.details() or failed.code().name, *told, sql)


def refusal(code: grpc.StatusCode, text: str, sqlstate: str, position: str, sql: str) -> WireError:
    """A failure as PostgreSQL's clients read it. `sqlstate`, `position`: as the gateway says them; empty: it does
    not."""
    if code is grpc.StatusCode.UNAVAILABLE:
        return gateway_unavailable()
    if code is grpc.StatusCode.INTERNAL or code is grpc.StatusCode.UNKNOWN:
        return WireError(errors.INTERNAL_ERROR, "a defect of the gateway: the operator's log has it")
    return WireError(sqlstate or _SQLSTATES.get(code, errors.INTERNAL_ERROR), text, position=_position(sql, position))


def gateway_unavailable() -> WireError:
    """The error of a call that the gateway does not answer."""
    return WireError(errors.CANNOT_CONNECT_NOW, GATEWAY_SILENT, hint="Ask again in a moment.")


def channel_closed() -> WireError:
    """The error of a call whose channel was closed."""
    hint = "Its address changed, and the call was on the old one for too long: ask again."
    return WireError(errors.CANNOT_CONNECT_NOW, GATEWAY_SILENT, hint=hint)


def _position(sql: str, at: str) -> int:
    """The position of the character at LINE:COLUMN, from 1; 0: not known."""
    line, _, column = at.partition(":")
    if not (line.isdigit() and column.isdigit()):
        return 0
    before = sql.split("\n")[: int(line) - 1]
    return min(sum(len(each) + 1 for each in before) + int(column), len(sql))
